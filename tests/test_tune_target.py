"""`harness-llm tune` as a user types it: real LoadGen and replicas, with the replay engine's known capacity."""

import signal
import time
from pathlib import Path

import msgspec
import pytest
from terminal import Ended, Terminal

from harness_llm.runs.record import State, find_runs, load_run
from harness_llm.runs.trial_store import Trial, read_session, read_trials, session_folders

pytestmark = [pytest.mark.engine(seconds=60), pytest.mark.processes]

# 32 sequences at once, an answer of 20 tokens in 80 ms: 400 queries/s.
PACE = [
    *("replay_config.step_s=0.004", "replay_config.step_s_per_sequence=0", "replay_config.prefill_tokens_per_s=0"),
    *("replay_config.output_tokens=20", "replay_config.output_spread=0", "llm_config.max_num_seqs=32"),
]
THROUGHPUT = 400
WORDS = ["tune", "--model", "demo", "--engine", "replay", "--profile", "smoke", "--system-name", "box"]
SETTINGS = [word for text in PACE for word in ("--set", text)]


def tune(terminal: Terminal, scenario: str, target: float) -> list[str]:
    conf = terminal.workspace.root / f"{scenario}.conf"
    conf.write_text(f"llama2-70b.{scenario}.target_qps = {target}\n")
    return [*WORDS, *SETTINGS, "--scenarios", scenario, "--user-conf", str(conf)]


def trials(terminal: Terminal) -> list[Trial]:
    return read_trials(session_folders(terminal.workspace.tuning)[-1])


def found(terminal: Terminal, done: Ended) -> float:
    assert done.code == 0, done.err
    session = read_session(session_folders(terminal.workspace.tuning)[-1])
    assert session.found
    return float(session.found["target"])


def test_server_target_is_found_and_a_killed_session_continues(terminal: Terminal) -> None:
    words = tune(terminal, "Server", 10 * THROUGHPUT)
    command = terminal.start(*words)
    while command.process.poll() is None and not session_folders(terminal.workspace.tuning):
        time.sleep(0.1)
    while command.process.poll() is None and len(trials(terminal)) < 2:
        time.sleep(0.1)
    command.process.send_signal(signal.SIGKILL)
    command.wait()
    kept = trials(terminal)
    done = terminal.run(*words)
    target = found(terminal, done)
    assert len(session_folders(terminal.workspace.tuning)) == 1
    made = trials(terminal)
    assert [msgspec.to_builtins(trial) for trial in made[: len(kept)]] == [msgspec.to_builtins(one) for one in kept]
    assert made[0].state == "INVALID"
    confirmed = [trial for trial in made if trial.kind == "confirmation" and trial.state == "VALID"]
    assert target == max(trial.target_qps or 0 for trial in confirmed)
    assert target <= 1.1 * THROUGHPUT
    assert all(load_run(Path(one.run)).state is State.VALID for one in confirmed if one.run)
    assert f"llama2-70b.Server.target_qps = {target:g}" in done.out
    assert not find_runs(terminal.workspace.logs)


def test_offline_target_makes_the_fewest_passes(terminal: Terminal) -> None:
    done = terminal.run(*tune(terminal, "Offline", 10 * THROUGHPUT))
    target = found(terminal, done)
    assert target * 0.5 * 1.1 <= 2048  # one pass over the data set
    assert [trial.kind for trial in trials(terminal)].count("confirmation") == 1
