"""The replica pool with real processes that send the messages of replicas."""

import os
import signal
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path

import pytest
import zmq
from waiting import no_child_remains

from harness_llm.errors import EnvironmentMissing, ProcessFailed, RunFailed
from harness_llm.protocol.child_processes import Child, start, watch
from harness_llm.replicas import pool as replica_pool
from harness_llm.replicas.pool import (
    MAX_SHORT_RUNS,
    SHORT_S,
    PoolEvent,
    ReplicaFailed,
    ReplicaPool,
    ReplicaReady,
    Start,
    may_restart,
)
from harness_llm.replicas.pool_folder import LOCK, LONGEST_ROOT, PREFIX, PoolFolder, sweep

pytestmark = pytest.mark.processes

TESTS = Path(__file__).resolve().parent
ENVIRONMENT = {"PYTHONPATH": f"{TESTS}:{TESTS.parent}"}
PATIENCE_S = 120
STARTUP_S = 120.0

Program = Callable[[str, int], tuple[str, ...]]


def serving(name: str, life: int) -> tuple[str, ...]:
    return ("replica", str(life), name)


def always(word: str) -> Program:
    return lambda name, life: (word,)


@pytest.fixture
def pool() -> Iterator[ReplicaPool]:
    with no_child_remains():
        pool = ReplicaPool(PoolFolder(), [0], STARTUP_S)
        yield pool
        pool.stop()
        assert not pool.folder.exists()


@pytest.fixture
def places(tmp_path: Path) -> Callable[..., Mapping[str, Start]]:
    def begin(name: str, program: Program, life: int) -> Child:
        return start("child", program(name, life), name=name, log=tmp_path / f"{name}.log", environment=ENVIRONMENT)

    return lambda **programs: {name: partial(begin, name, program) for name, program in programs.items()}


def silent(_: str) -> None:
    pass


def addresses(pool: ReplicaPool) -> list[str]:
    return [endpoint.address for endpoint in pool.endpoints]


def happens(pool: ReplicaPool, count: int) -> list[PoolEvent]:
    """The next things that happen."""
    found: list[PoolEvent] = []
    deadline = time.monotonic() + PATIENCE_S
    while len(found) < count:
        assert time.monotonic() < deadline, found
        found += [news for event in watch(pool.replicas, 1) if (news := pool.handle(event))]
    return found


def test_killed_replica_is_restarted_at_another_address(pool: ReplicaPool, places) -> None:
    pool.start(places(a=serving, b=serving), silent)
    assert sorted(addresses(pool)) == ["ipc://replica-a.0", "ipc://replica-b.0"]
    pool.replicas[0].process.kill()
    [lost] = happens(pool, 1)
    assert isinstance(lost, ReplicaFailed)
    assert ([endpoint.address for endpoint in lost.endpoints], lost.cause[:16]) == (
        ["ipc://replica-a.0"],
        "exit by signal 9",
    )
    assert addresses(pool) == ["ipc://replica-b.0"]
    [joined] = happens(pool, 1)
    assert isinstance(joined, ReplicaReady)
    assert joined.name == "a"
    assert sorted(addresses(pool)) == ["ipc://replica-a.1", "ipc://replica-b.0"]


def test_all_replicas_of_a_killed_process_fail(pool: ReplicaPool, places) -> None:
    pool.start(places(host=lambda name, life: ("replica", str(life), "a", "b")), silent)
    assert len(pool.endpoints) == 2
    lost = pool.kill("ipc://replica-b.0", "not heard")
    assert lost
    assert len(lost.endpoints) == 2
    assert pool.endpoints == []
    assert pool.kill("ipc://replica-a.0", "not heard") is None


def test_suspended_replica_is_killed(pool: ReplicaPool, places) -> None:
    pool.start(places(a=serving), silent)
    process = pool.replicas[0].process
    os.kill(process.pid, signal.SIGSTOP)
    lost = pool.kill("ipc://replica-a.0", "not heard for 25 s")
    assert lost
    assert lost.cause == "not heard for 25 s"
    [joined] = happens(pool, 1)
    assert isinstance(joined, ReplicaReady), "the exit is the same failure"
    assert process.returncode == -signal.SIGKILL


def test_replica_that_does_not_exit_after_it_was_killed_fails_the_next_run(
    pool: ReplicaPool, places, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool.start(places(a=serving, b=serving), silent)
    monkeypatch.setattr(replica_pool, "KILL_TIMEOUT_S", 0.1)
    monkeypatch.setattr(pool.replicas[0].process, "kill", lambda: None)
    pool.kill("ipc://replica-a.0", "not heard")
    assert addresses(pool) == ["ipc://replica-b.0"]
    with pytest.raises(ProcessFailed, match="a does not exit") as raised:
        pool.await_restarts(silent)
    assert raised.value.found == "not heard"
    assert raised.value.where == str(pool.replicas[0].log)


def test_killed_replica_that_ran_longer_is_restarted_each_time(
    pool: ReplicaPool, places, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replica_pool, "SHORT_S", 1e-6)
    pool.start(places(a=serving), silent)
    for life in range(MAX_SHORT_RUNS):
        assert pool.kill(f"ipc://replica-a.{life}", "not heard")
        pool.await_restarts(silent)
    assert addresses(pool) == [f"ipc://replica-a.{MAX_SHORT_RUNS}"]


def test_exception_of_an_engine_is_the_cause(pool: ReplicaPool, places) -> None:
    pool.start(places(a=lambda name, life: ("raising",) if not life else serving(name, life)), silent)
    pool.replicas[0].send(event="raise")
    [lost] = happens(pool, 1)
    assert isinstance(lost, ReplicaFailed)
    assert lost.cause == "exception OutOfMemoryError('tried to allocate 20 GiB')"
    assert lost.failure().where == str(lost.log)
    pool.await_restarts(silent)
    assert addresses(pool) == ["ipc://replica-a.1"]


def test_replica_that_does_not_start_fails_the_run(pool: ReplicaPool, places, tmp_path: Path) -> None:
    with pytest.raises(RunFailed, match="bad failed") as raised:
        pool.start(places(good=serving, bad=always("failing")), silent)
    assert raised.value.where == str(tmp_path / "bad.log")
    assert raised.value.found == "exit code 3: no such device"


def test_error_of_a_replica_is_passed_on(pool: ReplicaPool, places) -> None:
    with pytest.raises(EnvironmentMissing, match="there is no server"):
        pool.start(places(good=serving, bad=always("explaining")), silent)


def test_replica_that_is_never_ready_times_out(places) -> None:
    pool = ReplicaPool(PoolFolder(), [0], startup_timeout_s=1)
    try:
        with pytest.raises(RunFailed, match=r"not ready in 1 s \(harness_config.startup_timeout_s\)"):
            pool.start(places(a=always("mute")), silent)
    finally:
        pool.stop()


def test_replica_that_cannot_be_restarted_is_abandoned(pool: ReplicaPool, places) -> None:
    pool.start(places(a=serving, b=lambda name, life: ("failing",) if life else serving(name, life)), silent)
    pool.replicas[1].process.kill()
    os.waitid(os.P_PID, pool.replicas[1].process.pid, os.WEXITED | os.WNOWAIT)
    said: list[str] = []
    with pytest.raises(RunFailed, match="no such device") as raised:
        pool.await_restarts(said.append)
    assert "the same command then continues" in raised.value.hint
    assert [line for line in said if line.startswith("b failed")] == [
        "b failed: exit by signal 9 (SIGKILL), not for lack of memory",
        *["b failed: exit code 3: no such device"] * (MAX_SHORT_RUNS - 1),
    ]
    assert addresses(pool) == ["ipc://replica-a.0"]


# Folders of pools


@pytest.fixture(autouse=True)
def temporary(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as folder:  # pytest's paths are too long for sockets
        monkeypatch.setattr(tempfile, "tempdir", folder)
        yield Path(folder)


def abandoned(folder: Path) -> Path:
    """What a replica pool leaves that was killed with its parent."""
    folder.mkdir()
    (folder / LOCK).touch()
    (folder / "replica-0.0").touch()
    return folder


def test_folders_of_killed_pools_are_removed_by_the_next_pool(temporary: Path) -> None:
    gone = abandoned(temporary / f"{PREFIX}gone")
    foreign = abandoned(temporary / "harness-llm-something")
    folder = PoolFolder()
    assert not gone.exists()
    assert foreign.exists()
    assert folder.path.stat().st_mode & 0o777 == 0o700
    folder.remove()
    assert sorted(temporary.iterdir()) == [foreign]


def test_folder_of_a_running_pool_is_kept(temporary: Path) -> None:
    one = PoolFolder()
    unlocked = temporary / f"{PREFIX}beginning"  # made a moment ago, its lock to come
    unlocked.mkdir()
    other = PoolFolder()
    sweep()
    assert one.path.is_dir()
    assert other.path.is_dir()
    assert unlocked.is_dir()
    for folder in (one, other):
        folder.remove()


def test_temporary_folder_whose_path_is_too_long_for_sockets_is_refused(
    temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = temporary / "x"
    monkeypatch.setattr(tempfile, "tempdir", str(root).ljust(LONGEST_ROOT, "x"))
    Path(tempfile.gettempdir()).mkdir()
    folder = PoolFolder()
    with zmq.Context() as context, context.socket(zmq.ROUTER) as socket:
        socket.bind(f"ipc://{folder.path}/{uuid.uuid4()}")  # as vLLM does
        with pytest.raises(zmq.ZMQError, match="is longer than"):
            socket.bind(f"ipc://{folder.path}/{uuid.uuid4()}x")
    folder.remove()
    monkeypatch.setattr(tempfile, "tempdir", str(root).ljust(LONGEST_ROOT + 1, "x"))
    with pytest.raises(EnvironmentMissing, match="too long for sockets") as raised:
        PoolFolder()
    assert raised.value.hint == "export TMPDIR=/tmp"


# When a replica is restarted


@pytest.mark.parametrize(
    ("lives", "worth"),
    [
        ([], True),
        ([0.0] * (MAX_SHORT_RUNS - 1), True),
        ([0.0] * MAX_SHORT_RUNS, False),
        ([SHORT_S - 1] * MAX_SHORT_RUNS, False),
        ([SHORT_S + 1, 0.0, 0.0, 0.0], False),
        ([0.0, 0.0, SHORT_S + 1], True),
        ([0.0, 0.0, SHORT_S + 1, 0.0, 0.0], True),
        ([SHORT_S + 1] * 100, True),
    ],
)
def test_replica_that_repeatedly_fails_early_is_not_restarted(lives: list[float], worth: bool) -> None:
    assert may_restart(lives) is worth
