"""Which replicas are lost: those not heard any more, and those that work and get nowhere. Pure; times in seconds."""

from collections.abc import Iterator
from dataclasses import dataclass

from harness_llm.protocol.messages import BEAT_EVERY_S, Heartbeat

# Who did not look for so long was away, stopped or suspended, and can blame nobody for silence.
AWAY_S = 5 * BEAT_EVERY_S


@dataclass
class _Pulse:
    heard: float
    moved: float
    steps: int = -1


class HealthMonitor:
    """What the hearts of the replicas have told."""

    def __init__(self, silence_s: float, stall_s: float) -> None:
        """Lost is who is not heard for `silence_s`, or is busy and makes no step for `stall_s`."""
        self._silence_s, self._stall_s = silence_s, stall_s
        self._pulses: dict[str, _Pulse] = {}
        self._looked: float | None = None

    def join(self, replica: str, now: float) -> None:
        """Expect to hear of `replica`."""
        self._pulses[replica] = _Pulse(now, now)

    def leave(self, replica: str) -> None:
        """Expect nothing of `replica` any more."""
        del self._pulses[replica]

    def take(self, replica: str, beat: Heartbeat, now: float) -> None:
        """`replica` was heard."""
        pulse = self._pulses[replica]
        pulse.heard = now
        if not beat.busy or beat.steps != pulse.steps:
            pulse.moved, pulse.steps = now, beat.steps

    def lost(self, now: float) -> list[tuple[str, str]]:
        """Replicas to give up, and why; to be asked every second or so."""
        if self._looked is not None and now - self._looked > AWAY_S:
            self._pulses = {replica: _Pulse(now, now) for replica in self._pulses}
        self._looked = now
        return list(self._verdicts(now))

    def _verdicts(self, now: float) -> Iterator[tuple[str, str]]:
        for replica, pulse in self._pulses.items():
            if now - pulse.heard > self._silence_s:
                yield replica, f"not heard for {self._silence_s:g} s (harness_config.heartbeat_timeout_s)"
            elif now - pulse.moved > self._stall_s:
                yield replica, f"busy without a step for {self._stall_s:g} s (harness_config.stall_timeout_s)"
