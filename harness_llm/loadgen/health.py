"""Health monitor: which replicas have failed, by their heartbeats and engine steps. Pure; times in seconds."""

from collections.abc import Iterator
from dataclasses import dataclass

from harness_llm.protocol.messages import HEARTBEAT_INTERVAL_S, Heartbeat

# A longer interval between two checks means that this process itself was suspended.
SUSPENDED_S = 5 * HEARTBEAT_INTERVAL_S


@dataclass
class _Timers:
    heartbeat_at: float
    step_at: float
    steps: int = -1


class HealthMonitor:
    """A replica fails when its heartbeat times out, or when its engine is busy and makes no step."""

    def __init__(self, heartbeat_timeout_s: float, stall_timeout_s: float) -> None:
        self._heartbeat_timeout_s, self._stall_timeout_s = heartbeat_timeout_s, stall_timeout_s
        self._timers: dict[str, _Timers] = {}
        self._checked_at: float | None = None

    def add(self, replica: str, now: float) -> None:
        """Start the timers of `replica`."""
        self._timers[replica] = _Timers(now, now)

    def remove(self, replica: str) -> None:
        """Stop the timers of `replica`."""
        del self._timers[replica]

    def record(self, replica: str, heartbeat: Heartbeat, now: float) -> None:
        """Reset the timers that `heartbeat` of `replica` resets."""
        timers = self._timers[replica]
        timers.heartbeat_at = now
        if not heartbeat.busy or heartbeat.steps != timers.steps:
            timers.step_at, timers.steps = now, heartbeat.steps

    def failed(self, now: float) -> list[tuple[str, str]]:
        """Return failed replicas and causes; to be called about once per second.

        All timers are reset after this process was suspended.
        """
        if self._checked_at is not None and now - self._checked_at > SUSPENDED_S:
            self._timers = {replica: _Timers(now, now) for replica in self._timers}
        self._checked_at = now
        return list(self._causes(now))

    def _causes(self, now: float) -> Iterator[tuple[str, str]]:
        for replica, timers in self._timers.items():
            if now - timers.heartbeat_at > self._heartbeat_timeout_s:
                yield replica, f"no heartbeat for {self._heartbeat_timeout_s:g} s (harness_config.heartbeat_timeout_s)"
            elif now - timers.step_at > self._stall_timeout_s:
                yield replica, f"busy without a step for {self._stall_timeout_s:g} s (harness_config.stall_timeout_s)"
