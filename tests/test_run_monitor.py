"""The run monitor between LoadGen's process and the replicas, with real processes that send their messages."""

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

pytestmark = pytest.mark.processes

TESTS = Path(__file__).resolve().parent
ENVIRONMENT = {"PYTHONPATH": f"{TESTS}:{TESTS.parent}"}


def line(done: int, unanswered: int = 3) -> dict[str, Any]:
    return {"event": "progress", "issued": 9, "done": done, "tokens": 7 * done, "unanswered": unanswered}


def test_pool_without_completions_fails_the_run() -> None:
    stall = Stall(10, since=-1000)
    stall.take(line(1), 0)
    stall.take(line(2), 9)
    stall.take(line(2), 18)
    stall.check(19)
    with pytest.raises(RunFailed, match="no completions for"):
        stall.check(19.1)


def test_loadgens_process_without_a_status_message_fails_the_run() -> None:
    stall = Stall(10, since=300)
    stall.check(310)
    with pytest.raises(RunFailed, match="no completions for"):
        stall.check(310.1)


def test_pool_without_queries_is_not_stalled() -> None:
    stall = Stall(10, since=0)
    stall.take(line(2, unanswered=0), 0)
    stall.take(line(2, unanswered=0), 20)
    stall.check(29)


class Notes:
    """Collects the messages that LoadGen's process has received."""

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

    def supervise(
        *says: Mapping[str, Any], survives: bool = True, program: str = "loadgen", timeout_s: float = 100
    ) -> tuple[RunMonitor, Notes]:
        words, log, notes = [program, *map(json.dumps, says)], tmp_path / "loadgen.log", Notes()
        children.append(start("child", words, name="LoadGen", log=log, environment=ENVIRONMENT))
        return RunMonitor(children[-1], pool, notes, survives, Stall(timeout_s, time.monotonic())), notes

    yield supervise
    for child in children:
        child.stop(patience_s=0)


def test_loadgens_process_is_informed_of_failed_and_restarted_replicas(pool: ReplicaPool, supervise) -> None:
    run_monitor, notes = supervise(
        {"event": "replica_failed", "address": "ipc://replica-a.0", "cause": "?", "queries": 37}
    )
    pool.replicas[0].process.kill()
    assert run_monitor.follow()["event"] == "finished"
    lost, joined = notes.heard
    assert lost["addresses"] == ["ipc://replica-a.0"]
    assert lost["cause"] == "?" or lost["cause"].startswith("exit by signal 9")
    assert joined["endpoints"] == [
        {"address": "ipc://replica-a.1", "heartbeat": "ipc://replica-a.1.heartbeat", "key": "", "name": ""}
    ]
    assert run_monitor.losses[0].endswith("37 queries were requeued")
    assert run_monitor.losses[1] == "a was restarted and joined the run"


def test_replica_without_heartbeat_is_killed(pool: ReplicaPool, supervise) -> None:
    silent = pool.replicas[1].process
    os.kill(silent.pid, signal.SIGSTOP)
    run_monitor, notes = supervise(
        {"event": "replica_failed", "address": "ipc://replica-b.0", "cause": "not heard", "queries": 2}
    )
    run_monitor.follow()
    assert silent.returncode == -signal.SIGKILL
    assert notes.heard[0] == {"event": "replica_failed", "addresses": ["ipc://replica-b.0"], "cause": "not heard"}
    assert run_monitor.losses == [
        "b failed (not heard); 2 queries were requeued",
        "b was restarted and joined the run",
    ]


@pytest.fixture
def unkillable(pool: ReplicaPool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let replica b survive SIGKILL, as a process that a driver blocks."""
    monkeypatch.setattr(pool.replicas[1].process, "kill", lambda: None)


STALLED = {"event": "replica_failed", "address": "ipc://replica-b.0", "cause": "not heard", "queries": 2}


@pytest.mark.usefixtures("unkillable")
def test_replica_that_does_not_exit_is_a_loss_without_endpoint(pool: ReplicaPool, supervise) -> None:
    run_monitor, _ = supervise(STALLED, {"event": "finished", "counters": []}, program="brief")
    assert run_monitor.follow()["event"] == "finished"
    assert run_monitor.losses == ["b failed (not heard); 2 queries were requeued"]
    assert [endpoint.address for endpoint in pool.endpoints] == ["ipc://replica-a.0"]


@pytest.mark.usefixtures("unkillable")
def test_on_replica_failure_fail_does_not_wait_for_the_exit(supervise) -> None:
    run_monitor, _ = supervise(STALLED, survives=False, timeout_s=20)
    with pytest.raises(RunFailed, match="b failed") as raised:
        run_monitor.follow()
    assert raised.value.found == "not heard"
    assert run_monitor.losses == ["b failed (not heard); 2 queries were requeued"]


def test_messages_that_arrived_during_a_suspension_reset_the_stall_timer(supervise) -> None:
    run_monitor, _ = supervise(line(1), line(2), {"event": "finished", "counters": []}, program="brief", timeout_s=1)
    run_monitor.loadgen.process.wait()
    time.sleep(1.5)  # as if this process was suspended
    assert run_monitor.follow()["event"] == "finished"


def test_on_replica_failure_fail_fails_the_run(pool: ReplicaPool, supervise) -> None:
    run_monitor, notes = supervise(survives=False)
    pool.replicas[0].process.kill()
    with pytest.raises(RunFailed, match="a failed") as raised:
        run_monitor.follow()
    assert "exit by signal 9" in raised.value.found
    assert notes.heard == []


def test_run_without_replicas_fails(pool: ReplicaPool, supervise) -> None:
    run_monitor, _ = supervise()
    for replica in pool.replicas:
        replica.process.kill()
    with pytest.raises(RunFailed, match="failed") as raised:
        run_monitor.follow()
    assert raised.value.where.endswith(".log")
    assert len(run_monitor.losses) == 2
