from harness_llm.loadgen.health import HealthMonitor
from harness_llm.protocol.messages import Heartbeat


def beat(steps: int = 0, *, busy: bool = False) -> Heartbeat:
    return Heartbeat("ipc://a", 1, steps, busy)


def looks(health: HealthMonitor, until: int, heard: dict[int, Heartbeat]) -> dict[int, list[str]]:
    """What is said at each second, of a replica that is heard when it says."""
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


def test_silence_is_a_loss() -> None:
    assert list(looks(joined(), 12, {})) == [11, 12]
    assert list(looks(joined(), 22, {3: beat(), 9: beat()})) == [20, 21, 22]
    assert looks(joined(), 50, {now: beat() for now in range(0, 51, 10)}) == {}


def test_a_busy_engine_that_makes_no_step_is_a_loss() -> None:
    beats = {now: beat(steps=min(now, 20), busy=True) for now in range(60)}
    (cause,) = looks(joined(stall_s=30), 51, beats)[51]
    assert cause.startswith("busy without a step for 30 s")
    assert looks(joined(stall_s=30), 50, beats) == {}


def test_an_idle_engine_makes_no_steps() -> None:
    beats = {now: beat(steps=5, busy=now > 40) for now in range(60)}
    assert looks(joined(stall_s=30), 59, beats) == {}


def test_who_was_away_blames_nobody() -> None:
    health = joined()
    assert health.failed(1) == []
    assert health.failed(100) == []
    assert [health.failed(now) for now in (103, 106, 109)] == [[], [], []]
    assert health.failed(111)


def test_nothing_is_expected_of_those_that_are_gone() -> None:
    health = joined()
    health.remove("a")
    assert looks(health, 20, {}) == {}
