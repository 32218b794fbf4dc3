"""A submission of the demo with the real vLLM, whose only replica is killed in the middle of each of its runs."""

import itertools
import time

import psutil
import pytest
from terminal import Command, Ended, Terminal

from harness_llm.loadgen.logs import DETAIL
from harness_llm.runs.record import Run, State, find_runs

pytestmark = [pytest.mark.engine(seconds=300), pytest.mark.processes, pytest.mark.slow]

SYSTEM = "night-box"
RUNS = 6  # two scenarios of three tests
POLL_S = 0.02


@pytest.fixture(scope="module")
def done(terminal: Terminal) -> Ended:
    return terminal.until_valid(lambda: submit(terminal))


def submit(terminal: Terminal) -> Ended:
    command = terminal.start("submit", "--company", "Acme", "--system-name", SYSTEM)
    kill_once_in_each_run(terminal, command)
    return command.wait()


def kill_once_in_each_run(terminal: Terminal, command: Command) -> None:
    killed: set[str] = set()
    while command.process.poll() is None and len(killed) < RUNS:
        for run in find_runs(terminal.workspace.logs, SYSTEM):
            log = run.path / DETAIL
            if run.state is State.RUNNING and str(run.run_key) not in killed and log.is_file() and log.stat().st_size:
                killed.add(str(run.run_key))
                for replica in replicas(terminal):
                    replica.kill()
        time.sleep(POLL_S)


def replicas(terminal: Terminal) -> list[psutil.Process]:
    return [process for process in terminal.processes() if "harness_llm.replicas.replica" in process.cmdline()]


def test_submission_whose_replica_is_killed_once_in_each_run_completes(done: Ended, terminal: Terminal) -> None:
    assert done.code == 0, done.err
    by_key = itertools.groupby(
        sorted(find_runs(terminal.workspace.logs, SYSTEM), key=lambda run: (run.run_key, run.path)),
        key=lambda run: run.run_key,
    )
    attempts: list[list[Run]] = [list(runs) for _, runs in by_key]
    assert [[run.state for run in runs] for runs in attempts] == [[State.FAILED, State.VALID]] * RUNS
    for failed, _ in attempts:
        assert failed.reasons[0].startswith("replica-0 failed: exit by signal 9 (SIGKILL)")
        assert "\n" not in failed.reasons[0]
    assert len(done.out.split()) == 2  # the tree and its archive
    assert done.err.count("attempt 2 of 3") == RUNS
