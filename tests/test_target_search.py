"""Search of a LoadGen target against simulated systems with a known capacity."""

import itertools
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from simulated_target import DURATION_S, System, goal_of, search

from harness_llm.config.load import Load
from harness_llm.loadgen.early_stopping import allowed_over, fewest_queries
from harness_llm.pipeline.tuning.duration_search import next_duration_trial, target_of
from harness_llm.pipeline.tuning.search_steps import Confirm, Done, Goal, Latency, Measurement, Probe
from harness_llm.pipeline.tuning.target_search import MAX_PROBES, drift, model, next_target_trial

systems = st.builds(
    System,
    throughput=st.floats(20, 500),
    limited_by=st.sampled_from(["ttft", "tpot"]),
    noise=st.sampled_from([0.0, 0.003]),
    seed=st.integers(0, 1000),
    predicts=st.booleans(),
)


@settings(max_examples=30, deadline=None)
@given(systems, st.sampled_from([0.1, 1.0, 10.0]))
def test_found_target_is_within_three_percent_of_the_capacity(system: System, start: float) -> None:
    done, trials = search(system, goal_of(start * system.capacity))
    assert done.target is not None
    assert abs(done.target / system.capacity - 1) < 0.03
    confirmations = [trial for trial in trials if trial.full]
    assert len(trials) - len(confirmations) <= MAX_PROBES
    assert len(confirmations) <= 2


def test_saturated_probe_is_only_a_lower_bound() -> None:
    """Short probes above the throughput seem VALID: their queue has not grown to the limit yet."""
    goal = goal_of(100)
    stable = Measurement(50, False, True, 90, latencies=(Latency(0.1, 0.02), Latency(0.5, 0.02)), throughput=80)
    growing = Measurement(
        100, False, False, 90, latencies=(Latency(8.0, 0.05, True), Latency(0.9, 0.02, True)), throughput=80
    )
    step = next_target_trial(goal, [growing, stable])
    assert isinstance(step, Probe)
    assert 50 < step.target < 90


def test_answers_within_the_tpot_limit_at_saturation_do_not_raise_the_next_target() -> None:
    """A full batch bounds TPOT: it is within its limit at ten times the throughput too."""
    goal = goal_of(4000)
    saturated = Measurement(
        4000, False, False, 140, latencies=(Latency(59.0, 0.02, True), Latency(0.4, 0.02)), throughput=550
    )
    step = next_target_trial(goal, [saturated])
    assert isinstance(step, Probe)
    assert step.target < 600


def test_throughput_of_an_overload_is_refuted_by_a_valid_trial_above_it() -> None:
    """At ten times the throughput, the arrivals alone slowed this system down to a fifth."""
    growing = (Latency(20.0, 0.5, True), Latency(0.3, 0.02))
    overloaded = Measurement(4000, False, False, 18, latencies=growing, throughput=78)
    slightly = Measurement(415, False, False, 28, latencies=growing, throughput=414)
    good = Measurement(389, False, True, 28, latencies=(Latency(0.04, 0.02), Latency(0.23, 0.02)))
    assert drift([overloaded, slightly, good]) == drift([slightly, good])
    assert model(goal_of(4000), [overloaded, slightly, good]).quantile(0.5) > 389


def test_target_between_a_valid_and_an_invalid_run_of_full_length_is_below_the_invalid_one() -> None:
    probe = Measurement(425, False, True, 28, latencies=(Latency(0.04, 0.02), Latency(0.2, 0.02)))
    valid = Measurement(400, True, True, 600, latencies=(Latency(0.05, 0.01), Latency(0.2, 0.01)))
    growing = (Latency(1.2, 0.01, True), Latency(0.3, 0.01))
    invalid = Measurement(432, True, False, 600, latencies=growing, throughput=470)
    step = next_target_trial(goal_of(400), [probe, valid, invalid])
    assert isinstance(step, Confirm)
    assert 400 < step.target < 432


def test_targets_fall_faster_with_each_invalid_run_of_full_length() -> None:
    goal, made = goal_of(100), list[Measurement]()
    probe = Measurement(97, False, True, 90, latencies=(Latency(0.5, 0.02), Latency(0.5, 0.02)))
    for _ in range(3):
        step = next_target_trial(goal, [probe, Measurement(98, True, False, 600), *made])
        assert isinstance(step, Confirm)
        made.append(Measurement(step.target, True, False, 600))
    steps = [98, *(trial.target for trial in made)]
    assert all(after < before for before, after in itertools.pairwise(steps))
    drops = [before / after for before, after in itertools.pairwise(steps)]
    assert drops == sorted(drops)


def test_throughput_of_an_invalid_run_of_full_length_lowers_the_next_target() -> None:
    goal = goal_of(100)
    probe = Measurement(90, False, True, 90, latencies=(Latency(0.5, 0.02), Latency(0.5, 0.02)))
    targets = []
    for throughput in (97.5, 92):
        late = Measurement(98, True, False, 600, latencies=(Latency(3.0, 0.01),) * 2, throughput=throughput)
        step = next_target_trial(goal, [probe, late])
        assert isinstance(step, Confirm)
        targets.append(step.target)
    assert targets[1] < targets[0] < 97.5


def test_interval_includes_the_spread_between_equal_runs() -> None:
    """Two saturated trials of one machine whose throughput differs by 4 % widen the interval."""
    goal, widths = goal_of(100), []
    for other in (100, 104):
        trials = [
            Measurement(90, False, True, 90, latencies=(Latency(0.3, 0.02),)),
            Measurement(110, False, False, 90, latencies=(Latency(5.0, 0.02, True),), throughput=100),
            Measurement(105, False, False, 90, latencies=(Latency(3.0, 0.02, True),), throughput=other),
        ]
        widths.append(model(goal, trials).width())
    assert widths[1] > widths[0]


def test_failed_trials_are_repeated_and_do_not_change_the_result() -> None:
    system = System(120, "tpot")
    failing = System(120, "tpot", failures=frozenset({1, 4}))
    done, trials = search(failing, goal_of(12))
    assert sum(trial.failed for trial in trials) == 2
    assert done.target == search(system, goal_of(12))[0].target


def test_budget_leaves_time_for_the_confirmation() -> None:
    done, trials = search(System(120, "tpot"), goal_of(12, budget_s=1500))
    assert sum(trial.seconds for trial in trials) <= 1500
    assert done.target is not None


def test_budget_below_a_full_run_finds_no_target() -> None:
    done, trials = search(System(120, "tpot"), goal_of(100, budget_s=300))
    assert done.target is None
    assert "budget" in done.reason
    assert sum(trial.seconds for trial in trials) <= 300


def test_long_answers_are_measured_with_full_runs() -> None:
    """Three answers of 250 s take longer than a probe is worth."""
    goal = goal_of(2)
    trial = Measurement(2, True, False, 600, latencies=(Latency(1.5, 0.01), Latency(1.2, 0.01)), completion_s=250)
    assert isinstance(next_target_trial(Goal(goal.load, math.inf, seats=0), [trial]), Confirm)


def test_next_trial_depends_on_the_trials_only() -> None:
    """An interrupted session continues as if it had not been interrupted."""
    goal = goal_of(12)
    _, trials = search(System(120, "ttft", noise=0.01), goal)
    for number in range(len(trials)):
        step = next_target_trial(goal, trials[:number])
        assert isinstance(step, Probe | Confirm)
        assert step.target == trials[number].target


def duration_search(rate: float, load: Load, *, error: float = 0.0, seats: int = 128) -> tuple[Done, list[Measurement]]:
    goal, trials = Goal(load, seats=seats), list[Measurement]()
    while not isinstance(step := next_duration_trial(goal, trials), Done):
        full = isinstance(step, Confirm)
        queries = goal.full_queries(step.target) if isinstance(step, Confirm) else step.queries
        seconds, measured = queries / rate, rate if full else rate * (1 + error)
        valid = not full or seconds >= load.min_duration_s
        trials.append(
            Measurement(step.target, full, valid, seconds, throughput=measured, duration_s=seconds, completion_s=1)
        )
        assert len(trials) < 10
    return step, trials


@settings(max_examples=30, deadline=None)
@given(
    st.floats(5, 3000),
    st.sampled_from([0.1, 1.0, 10.0]),
    st.floats(-0.1, 0.1),
    st.sampled_from(["Offline", "SingleStream"]),
    st.sampled_from([128, 8192]),
)
def test_run_is_long_enough_and_no_longer_than_needed(
    rate: float, start: float, error: float, scenario: str, seats: int
) -> None:
    load = Load(scenario, 5000, 5000, DURATION_S, start * rate, target_latency_s=1 / (start * rate))
    done, trials = duration_search(rate, load, error=error, seats=seats)
    assert done.target is not None
    samples = Goal(load).full_queries(done.target)
    assert samples / rate >= DURATION_S
    fewer = samples - load.samples
    assert fewer <= load.samples or fewer / rate < DURATION_S * 1.02
    assert sum(trial.full for trial in trials) <= 3
    probes = [trial.seconds for trial in trials if not trial.full]
    assert len(probes) <= 2
    assert max(probes) <= next(trial.seconds for trial in trials if trial.full) / 2


def first_duration_trial(scenario: str, *, samples: int, budget_s: float = math.inf) -> Probe | Confirm | Done:
    """The first trial of 8 replicas with 1024 sequences, whose target is 10 samples per second."""
    load = Load(scenario, samples, samples, DURATION_S, 10.0, target_latency_s=0.1)
    return next_duration_trial(Goal(load, budget_s, seats=8 * 1024), [])


def test_first_probe_fills_the_batches_but_has_at_most_half_of_the_queries_of_the_shortest_full_run() -> None:
    probes = [first_duration_trial("Offline", samples=samples) for samples in (5000, 24_576, 100_000)]
    assert [probe.queries for probe in probes if isinstance(probe, Probe)] == [2500, 12_288, 3 * 8 * 1024]


def test_first_probe_of_single_stream_does_not_depend_on_the_seats() -> None:
    probe = first_duration_trial("SingleStream", samples=24_576)
    assert isinstance(probe, Probe)
    assert probe.queries == 64


def test_budget_is_checked_before_the_first_probe() -> None:
    """At 10 samples per second the probe takes 250 s, and the run of full length 1000 s."""
    unlimited = Probe(10.0, 2500, predict=True)
    assert first_duration_trial("Offline", samples=5000, budget_s=1251) == unlimited
    assert first_duration_trial("Offline", samples=5000, budget_s=1249) == Confirm(10.0)
    assert first_duration_trial("Offline", samples=5000, budget_s=999) == unlimited  # the target may be too low
    done = first_duration_trial("Offline", samples=5000, budget_s=249)
    assert isinstance(done, Done)
    assert done.target is None
    assert "budget" in done.reason


def full_run(goal: Goal, passes: int, duration_s: float) -> Measurement:
    rate = passes * goal.load.samples / duration_s
    target, valid = target_of(goal, passes, rate), duration_s >= goal.load.min_duration_s
    return Measurement(target, True, valid, duration_s, throughput=rate, duration_s=duration_s)


@pytest.mark.parametrize(
    "runs",
    [
        [(10, 690), (9, 598)],
        [(9, 598), (10, 690)],
        [(10, 780), (8, 560), (9, 590)],
    ],
)
def test_passes_that_were_valid_are_not_measured_again(runs: list[tuple[int, float]]) -> None:
    goal, trials = Goal(Load("Offline", 1000, 1000, DURATION_S, 16.0)), list[Measurement]()
    for passes, duration_s in runs:
        trials.append(full_run(goal, passes, duration_s))
        step = next_duration_trial(goal, trials)
        if len(trials) < len(runs):
            assert isinstance(step, Confirm)
            assert goal.full_queries(step.target) == 1000 * runs[len(trials)][0]
    assert isinstance(step, Done)
    assert step.target is not None
    assert goal.full_queries(step.target) == 10_000


def test_early_stopping_needs_as_many_queries_as_loadgen() -> None:
    """LoadGen's documentation of early stopping: 662 queries at the 99th percentile, 64 at the 90th."""
    assert fewest_queries(over=1) == 662
    assert fewest_queries(over=1, percentile=0.9) == 64
    assert [allowed_over(queries) for queries in (458, 459, 661, 662, 24576)] == [-1, 0, 0, 1, 209]
