"""Progress of the start of a replica pool: the phase of each process, and all of them in one line."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from harness_llm.replicas.start_phase import INITIALIZING, READY, WARM_UP, LogTail, Phase, phase_names, phase_of

_BEGIN = Phase(INITIALIZING)


@dataclass
class ProcessStart:
    """The start of one process, by its logs and messages; times in seconds of the caller's clock.

    Attributes:
        seconds: spent in each phase so far.
    """

    logs: Sequence[LogTail]
    phase: Phase = _BEGIN
    seconds: dict[str, float] = field(default_factory=dict)
    _since: float = 0.0

    def begin(self, now: float) -> None:
        """Begin a start: what the logs contain is of an earlier one."""
        for log in self.logs:
            log.skip()
        self.phase, self.seconds, self._since = _BEGIN, {}, now

    def read(self, now: float) -> None:
        """Read the logs; the engine's own phases end with its message that it is loaded."""
        lines = [line for log in self.logs for line in log.lines()]
        if self.phase.name in (WARM_UP, READY):
            return
        for phase in map(phase_of, lines):
            if phase:
                self._enter(phase, now)

    def take(self, message: Mapping[str, Any], now: float) -> None:
        """Take a message of the process."""
        if message["event"] == "loaded":
            self.read(now)  # short phases, which began since the last call
            self._enter(Phase(WARM_UP), now)
        elif message["event"] == "warm_up":
            self._enter(Phase(WARM_UP, message["done"]), now)
        elif message["event"] == "ready":
            self._enter(Phase(READY), now)

    def _enter(self, phase: Phase, now: float) -> None:
        if phase.name != self.phase.name:
            self.seconds[self.phase.name] = self.seconds.get(self.phase.name, 0.0) + now - self._since
            self._since = now
        self.phase = phase


@dataclass(frozen=True)
class StartStatus:
    """Phases of all processes of a starting replica pool.

    Attributes:
        phases: by name of the process.
        elapsed_s: since the start of the oldest process that is not ready.
        seconds: by phase, of the process that needed longest for it.
    """

    phases: Mapping[str, Phase]
    elapsed_s: float = 0.0
    seconds: Mapping[str, float] = field(default_factory=dict)

    @property
    def ready(self) -> int:
        """Number of ready processes."""
        return sum(phase.name == READY for phase in self.phases.values())

    @property
    def waiting(self) -> list[tuple[Phase, list[str]]]:
        """Processes that are not ready, by phase, the latest phase first; with the least progress among them."""
        groups: dict[str, list[str]] = {}
        for name, phase in self.phases.items():
            groups.setdefault(phase.name, []).append(name)
        order = [name for name in reversed(phase_names()) if name in groups and name != READY]
        return [(Phase(name, self._least(groups[name])), groups[name]) for name in order]

    def _least(self, names: Sequence[str]) -> float | None:
        known = [done for done in (self.phases[name].done for name in names) if done is not None]
        return min(known) if known else None

    @property
    def text(self) -> str:
        """The phases in one line, for example `6 of 8 ready; 2 capturing graphs 45%`."""
        if len(self.phases) == 1:
            return str(next(iter(self.phases.values())))
        counts = ", ".join(f"{len(names)} {phase}" for phase, names in self.waiting)
        return f"{self.ready} of {len(self.phases)} ready" + (f"; {counts}" if counts else "")


def status_of(starts: Mapping[str, ProcessStart], elapsed_s: float) -> StartStatus:
    """Return the status of `starts`, by name of the process."""
    seconds = {
        name: max(times)
        for name in phase_names()
        if (times := [start.seconds[name] for start in starts.values() if name in start.seconds])
    }
    return StartStatus({name: start.phase for name, start in starts.items()}, elapsed_s, seconds)
