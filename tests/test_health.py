from harness_llm.loadgen.health import HealthMonitor
from harness_llm.protocol.messages import Activity, Heartbeat


def beat(steps: int = 0, *, busy: bool = False) -> Heartbeat:
    return Heartbeat("ipc://a", 1, steps, busy, at=0.0, activity=Activity(0))


def looks(health: HealthMonitor, until: int, heard: dict[int, Heartbeat]) -> dict[int, list[str]]:
    """Failures found at each second of a replica with the given heartbeats."""
    found: dict[int, list[str]] = {}
    for now in range(until + 1):
        if now in heard:
            health.record("a", heard[now], now)
        if causes := [cause for _, cause in health.failed(now)]:
            found[now] = causes
    return found


def joined(stall_s: float = 100) -> HealthMonitor:
    health = HealthMonitor(10, stall_s)
    health.add("a", 0)
    return health


def test_replica_without_heartbeat_fails() -> None:
    assert list(looks(joined(), 12, {})) == [11, 12]
    assert list(looks(joined(), 22, {3: beat(), 9: beat()})) == [20, 21, 22]
    assert looks(joined(), 50, {now: beat() for now in range(0, 51, 10)}) == {}


def test_busy_engine_without_a_step_fails() -> None:
    beats = {now: beat(steps=min(now, 20), busy=True) for now in range(60)}
    (cause,) = looks(joined(stall_s=30), 51, beats)[51]
    assert cause.startswith("busy without a step for 30 s")
    assert looks(joined(stall_s=30), 50, beats) == {}


def test_idle_engine_needs_no_step() -> None:
    beats = {now: beat(steps=5, busy=now > 40) for now in range(60)}
    assert looks(joined(stall_s=30), 59, beats) == {}


def test_heartbeat_timeout_is_reset_after_suspend() -> None:
    health = joined()
    assert health.failed(1) == []
    assert health.failed(100) == []
    assert [health.failed(now) for now in (103, 106, 109)] == [[], [], []]
    assert health.failed(111)


def test_failed_replicas_are_not_monitored() -> None:
    health = joined()
    health.remove("a")
    assert looks(health, 20, {}) == {}
