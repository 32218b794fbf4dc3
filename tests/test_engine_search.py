"""Search of engine settings with simulated engines: result, failures, budget, and continuation after interruptions."""

import subprocess
import sys
from pathlib import Path

import pytest
import tuning_sessions
from tuning_sessions import SEQS, SESSION, Simulated, best_at_256, no_differences, search, trial
from waiting import PATIENCE_S, wait_until

from harness_llm.errors import ConfigError, RunFailed
from harness_llm.pipeline.tuning.engine_search import BASELINE, FINALISTS, LOOKS, MAX_SETTINGS, Comparison, Outcome
from harness_llm.pipeline.tuning.engine_tuning import describe_outcome
from harness_llm.pipeline.tuning.search_space import Settings
from harness_llm.runs.trial_store import Trial, open_session, read_trials, session_folders


def test_better_settings_are_found_with_an_interval_around_the_truth(tmp_path: Path) -> None:
    store, outcome = search(tmp_path, Simulated())
    assert outcome.found
    assert outcome.found.interval
    assert outcome.found.settings[SEQS] == 256
    assert (
        outcome.found.interval.low < best_at_256(outcome.found.settings) / best_at_256({}) < outcome.found.interval.high
    )
    assert "is better than shipped by +1" in describe_outcome(outcome)
    assert len(store.trials) <= 1 + BASELINE + MAX_SETTINGS + FINALISTS * 2 * LOOKS[-1]


def test_without_differences_nothing_is_found_and_the_intervals_contain_1(tmp_path: Path) -> None:
    _, outcome = search(tmp_path, Simulated(no_differences))
    assert outcome.found is None
    assert len(outcome.finalists) == FINALISTS
    assert all(one.interval and one.interval.low <= 1 <= one.interval.high for one in outcome.finalists)
    assert "none of the measured settings is better" in describe_outcome(outcome)


def test_settings_below_the_noise_are_pruned_and_not_repeated(tmp_path: Path) -> None:
    store, _ = search(tmp_path, Simulated())
    ended = [one.settings for one in store.trials if one.state == "PRUNED"]
    assert ended
    assert all([one.settings for one in store.trials].count(settings) == 1 for settings in ended)
    assert all(best_at_256(settings) < best_at_256({}) for settings in ended)


def test_failures_of_engines_are_results(tmp_path: Path) -> None:
    store, outcome = search(tmp_path, Simulated(broken=lambda settings: settings.get(SEQS) == 256))
    failed = [one for one in store.trials if one.state == "FAILED"]
    assert outcome.failed == len(failed) > 0
    assert outcome.found
    assert outcome.found.settings.get(SEQS) != 256


def test_failures_of_the_shipped_settings_end_the_search(tmp_path: Path) -> None:
    with pytest.raises(RunFailed, match="shipped engine settings") as error:
        search(tmp_path, Simulated(broken=lambda settings: not settings))
    assert "CUDA out of memory" in error.value.found


def third_pair(root: Path) -> tuple[int, Settings]:
    """The third pair of the first finalist: the number of the trial of the shipped settings, before the finalist's."""
    trials = search(root, Simulated())[0].trials
    number = [one.number for one in trials if not one.settings][1 + BASELINE + 2]
    return number, trials[number + 1].settings


def compared(outcome: Outcome, settings: Settings) -> Comparison:
    return next(one for one in outcome.finalists if one.settings == settings)


@pytest.mark.parametrize("failures", [1, 2])
def test_failed_trials_of_the_shipped_settings_in_a_pair_do_not_drop_the_finalist(
    tmp_path: Path, failures: int
) -> None:
    number, finalist = third_pair(tmp_path / "whole")
    failing = frozenset(range(number, number + failures))
    store, outcome = search(tmp_path / "failing", Simulated(failing=failing))
    assert compared(outcome, finalist).is_faster
    assert {one.number for one in store.trials if one.state == "FAILED" and not one.settings} == failing
    assert finish(tmp_path / "cut", Interrupted(failing=failing)) == store.trials


def test_three_failed_trials_of_the_shipped_settings_in_a_pair_end_the_session(tmp_path: Path) -> None:
    number, finalist = third_pair(tmp_path / "whole")
    with pytest.raises(RunFailed, match="shipped engine settings"):
        search(tmp_path / "failing", Simulated(failing=frozenset(range(number, number + 3))))
    assert compared(search(tmp_path / "failing", Simulated())[1], finalist).is_faster


@pytest.mark.parametrize(("later", "measured"), [((1,), True), ((1, 2), False), ((1, 3), False)])
def test_finalist_is_left_out_after_its_second_failed_trial(
    tmp_path: Path, later: tuple[int, ...], measured: bool
) -> None:
    number, finalist = third_pair(tmp_path / "whole")
    failing = frozenset(number + one for one in later)
    store, outcome = search(tmp_path / "failing", Simulated(failing=failing))
    assert [one.settings for one in store.trials if one.state == "FAILED"] == [finalist] * len(later)
    assert compared(outcome, finalist).is_faster is measured
    assert len(outcome.finalists) == FINALISTS


def test_budget_ends_the_screening_and_leaves_time_for_a_comparison(tmp_path: Path) -> None:
    budget_s = 30 * trial(0).seconds
    store, outcome = search(tmp_path, Simulated(), budget_s)
    assert sum(one.seconds for one in store.trials) <= budget_s
    assert outcome.finalists[0].interval
    assert outcome.reason.startswith("the budget ended the screening")


def test_search_without_time_for_a_comparison_is_inconclusive(tmp_path: Path) -> None:
    _, outcome = search(tmp_path, Simulated(), 8 * trial(0).seconds)
    assert outcome.found is None
    assert describe_outcome(outcome).startswith("inconclusive")


class Interrupted(Simulated):
    """Simulated trials of which every twelfth one is interrupted by Ctrl-C."""

    def measure(self, number: int, step: object) -> Trial:
        self.made.append({})
        if len(self.made) % 12 == 0:
            raise KeyboardInterrupt
        return super().measure(number, step)  # type: ignore[arg-type]


def finish(root: Path, probes: Simulated) -> list[Trial]:
    while True:
        try:
            return search(root, probes)[0].trials
        except KeyboardInterrupt:
            continue


def test_search_after_ctrl_c_makes_the_trials_of_one_without(tmp_path: Path) -> None:
    assert finish(tmp_path / "cut", Interrupted()) == search(tmp_path / "whole", Simulated())[0].trials


@pytest.mark.processes(seconds=20)
def test_search_after_kill_9_makes_the_trials_of_one_without(tmp_path: Path) -> None:
    for enough in (5, 30):
        with subprocess.Popen([sys.executable, tuning_sessions.__file__, "search", str(tmp_path / "cut")]) as process:
            try:
                wait_until(lambda: _count(tmp_path / "cut") >= enough, PATIENCE_S, "trials")  # noqa: B023
            finally:
                process.kill()
    again = Simulated()
    store, outcome = search(tmp_path / "cut", again)
    whole, expected = search(tmp_path / "whole", Simulated())
    assert (store.trials, outcome) == (whole.trials, expected)
    assert len(again.made) < len(store.trials) - 29


def _count(root: Path) -> int:
    return sum(len(read_trials(folder)) for folder in session_folders(root))


def test_trials_of_another_search_are_refused(tmp_path: Path) -> None:
    open_session(tmp_path, SESSION).append(trial(0, settings={SEQS: 3}))
    with pytest.raises(ConfigError, match="do not follow"):
        search(tmp_path, Simulated())
