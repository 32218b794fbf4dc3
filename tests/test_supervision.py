"""LoadGen's process and the replicas hear of each other, with real processes that say what those say."""

import json
import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from harness_llm.errors import RunFailed
from harness_llm.pipeline.run_monitor import RunMonitor, Stall
from harness_llm.protocol.child_processes import Child, start
from harness_llm.replicas.pool import ReplicaPool
from harness_llm.replicas.pool_folder import PoolFolder

TESTS = Path(__file__).resolve().parent
ENVIRONMENT = {"PYTHONPATH": f"{TESTS}:{TESTS.parent}"}
BOUND_S = 10  # what a run may take to end that cannot go on


def line(done: int, in_flight: int = 3) -> dict[str, Any]:
    return {"event": "progress", "issued": 9, "done": done, "tokens": 7 * done, "in_flight": in_flight}


def test_a_fleet_that_answers_nothing_is_noticed() -> None:
    stall = Stall(10)
    stall.check(1000)  # nothing was said yet
    stall.take(line(1), 0)
    stall.take(line(2), 9)
    stall.take(line(2), 18)
    stall.check(19)
    with pytest.raises(RunFailed, match="no completions for"):
        stall.check(19.1)


def test_a_fleet_that_is_asked_nothing_is_not_blamed() -> None:
    stall = Stall(10)
    stall.take(line(2, in_flight=0), 0)
    stall.take(line(2, in_flight=0), 20)
    stall.check(29)


class Notes:
    """Keeps what LoadGen's process said that it heard."""

    def __init__(self) -> None:
        self.heard: list[dict[str, Any]] = []

    def progress(self, body: Mapping[str, Any]) -> None:
        self.heard += [body["heard"]] if "heard" in body else []


@pytest.fixture
def pool(tmp_path: Path) -> Iterator[ReplicaPool]:
    def place(name: str) -> Callable[[int], Child]:
        words = lambda life: ["replica", str(life), name]  # noqa: E731
        log = tmp_path / f"{name}.log"
        return lambda life: start("child", words(life), name=name, log=log, environment=ENVIRONMENT)

    pool = ReplicaPool(PoolFolder(), [0], startup_timeout_s=30)
    pool.start({name: place(name) for name in "ab"}, lambda _: None)
    yield pool
    pool.stop()


@pytest.fixture
def supervise(pool: ReplicaPool, tmp_path: Path) -> Iterator[Callable[..., tuple[RunMonitor, Notes]]]:
    children: list[Child] = []

    def supervise(*says: Mapping[str, Any], survives: bool = True) -> tuple[RunMonitor, Notes]:
        words, log, notes = ["loadgen", *map(json.dumps, says)], tmp_path / "loadgen.log", Notes()
        children.append(start("child", words, name="LoadGen", log=log, environment=ENVIRONMENT))
        return RunMonitor(children[-1], pool, notes, survives, Stall(100)), notes

    yield supervise
    for child in children:
        child.stop(patience_s=0)


def test_loadgen_hears_of_an_end_and_of_a_new_beginning(pool: ReplicaPool, supervise) -> None:
    run_monitor, notes = supervise({"event": "lost", "address": "ipc://replica-a.0", "cause": "?", "queries": 37})
    pool.replicas[0].process.kill()
    assert run_monitor.follow()["event"] == "finished"
    lost, joined = notes.heard
    assert (
        lost == {"event": "lost", "addresses": ["ipc://replica-a.0"], "cause": "exit code -9"} or lost["cause"] == "?"
    )
    assert joined["endpoints"] == [{"address": "ipc://replica-a.1", "beats": "ipc://replica-a.1.heart", "key": ""}]
    assert run_monitor.losses[0].endswith("37 queries were requeued")
    assert run_monitor.losses[1] == "a was restarted and joined the run"


def test_a_replica_that_loadgen_hears_no_more_is_killed(pool: ReplicaPool, supervise) -> None:
    silent = pool.replicas[1].process
    os.kill(silent.pid, signal.SIGSTOP)
    run_monitor, notes = supervise(
        {"event": "lost", "address": "ipc://replica-b.0", "cause": "not heard", "queries": 2}
    )
    run_monitor.follow()
    assert silent.returncode == -signal.SIGKILL
    assert notes.heard[0] == {"event": "lost", "addresses": ["ipc://replica-b.0"], "cause": "not heard"}
    assert run_monitor.losses[0] == "b failed (not heard); 2 queries were requeued"


def test_a_run_may_be_told_to_fail(pool: ReplicaPool, supervise) -> None:
    run_monitor, notes = supervise(survives=False)
    pool.replicas[0].process.kill()
    begin = time.monotonic()
    with pytest.raises(RunFailed, match="a ended") as raised:
        run_monitor.follow()
    assert time.monotonic() - begin < BOUND_S
    assert "exit code -9" in raised.value.found
    assert notes.heard == []


def test_without_a_replica_a_run_has_failed(pool: ReplicaPool, supervise) -> None:
    run_monitor, _ = supervise()
    for replica in pool.replicas:
        replica.process.kill()
    begin = time.monotonic()
    with pytest.raises(RunFailed, match="ended") as raised:
        run_monitor.follow()
    assert time.monotonic() - begin < BOUND_S
    assert raised.value.where.endswith(".log")
    assert len(run_monitor.losses) == 2
