"""`harness-llm tune` as a user types it: real LoadGen and replicas, with the replay engine's known capacity."""

import time
from pathlib import Path

import pytest
from terminal import Ended, Terminal

from harness_llm.runs.record import State, find_runs, load_run
from harness_llm.runs.trial_store import Trial, read_session, read_trials, session_folders

pytestmark = [pytest.mark.engine(seconds=20), pytest.mark.processes]

# 32 sequences at once, an answer of 20 tokens in 80 ms: 400 queries/s.
PACE = [
    *("replay_config.step_s=0.004", "replay_config.step_s_per_sequence=0", "replay_config.prefill_tokens_per_s=0"),
    *("replay_config.output_tokens=20", "replay_config.output_spread=0", "llm_config.max_num_seqs=32"),
]
THROUGHPUT = 400
# The TTFT limit of Interactive is below the time in which the whole data set is answered: bursts are INVALID.
KEYS = {"Interactive": "llama2-70b-interactive.Server.target_qps", "Offline": "llama2-70b.Offline.target_qps"}
WORDS = ["tune", "--model", "demo", "--engine", "replay", "--profile", "smoke", "--system-name", "box"]
SETTINGS = [word for text in PACE for word in ("--set", text)]


def tune(terminal: Terminal, scenario: str, target: float) -> list[str]:
    conf = terminal.workspace.root / f"{scenario}.conf"
    conf.write_text(f"{KEYS[scenario]} = {target}\n")
    return [*WORDS, *SETTINGS, "--scenarios", scenario, "--user-conf", str(conf)]


def sessions(terminal: Terminal, scenario: str) -> list[Path]:
    folders = session_folders(terminal.workspace.tuning)
    return [folder for folder in folders if read_session(folder).scenario == scenario]


def trials(terminal: Terminal, scenario: str) -> list[Trial]:
    return [trial for folder in sessions(terminal, scenario) for trial in read_trials(folder)]


def found(terminal: Terminal, scenario: str, done: Ended) -> float:
    assert done.code == 0, done.err
    [folder] = sessions(terminal, scenario)
    values = read_session(folder).found
    assert values
    return float(values["target"])


def start_and_kill(terminal: Terminal, words: list[str], scenario: str, after: int) -> None:
    """Start the command, and kill it after some trials."""
    command = terminal.start(*words)
    while command.process.poll() is None and len(trials(terminal, scenario)) < after:
        time.sleep(0.1)
    command.process.kill()
    command.wait()


@pytest.mark.slow
def test_server_target_is_found_and_a_killed_session_continues(terminal: Terminal) -> None:
    scenario = "Interactive"
    words = tune(terminal, scenario, 10 * THROUGHPUT)
    start_and_kill(terminal, words, scenario, after=2)
    kept = trials(terminal, scenario)
    done = terminal.run(*words)
    target = found(terminal, scenario, done)
    made = trials(terminal, scenario)
    assert made[: len(kept)] == kept
    assert len(made) > len(kept)
    assert made[0].state == "INVALID"
    confirmed = [trial for trial in made if trial.kind == "confirmation" and trial.state == "VALID"]
    assert target == max(trial.target_qps or 0 for trial in confirmed)
    assert target <= 1.1 * THROUGHPUT
    assert all(load_run(Path(one.run)).state is State.VALID for one in confirmed if one.run)
    assert f"{KEYS[scenario]} = {target:g}" in done.out
    assert not find_runs(terminal.workspace.logs)


def test_offline_target_makes_the_fewest_passes_and_continues_after_a_small_budget(terminal: Terminal) -> None:
    words = tune(terminal, "Offline", 10 * THROUGHPUT)
    without = terminal.run(*words, "--budget", "1s")
    assert without.code == 1
    assert "the search ended without a VALID target" in without.err
    assert "the budget leaves no time for a run of full length" in without.err
    assert "hint: a larger --budget if the time was too short" in without.err
    [folder] = sessions(terminal, "Offline")
    assert f"where: {folder}" in without.err
    kept = trials(terminal, "Offline")
    done = terminal.run(*words)
    assert trials(terminal, "Offline")[: len(kept)] == kept
    target = found(terminal, "Offline", done)
    assert target * 0.5 * 1.1 <= 2048  # one pass over the data set
    assert [trial.kind for trial in trials(terminal, "Offline")].count("confirmation") == 1
