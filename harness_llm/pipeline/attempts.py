"""Attempts at a run: which failures are repeated, and why a run is missing. No I/O."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from harness_llm.errors import (
    ConfigError,
    EnvironmentMissing,
    GateFailed,
    HarnessError,
    ProcessFailed,
    RunFailed,
)
from harness_llm.runs.record import Run, RunKey, State
from harness_llm.runs.selection import MISSING, NOT_COUNTED, SETTLED, Selection

MAX_REPEATS = 2

_INDENT = " " * 4
_HEAD = ("run", "state", "attempts", "cause")
_KINDS = {kind.exit_code: kind for kind in (GateFailed, ConfigError, EnvironmentMissing, RunFailed)}


@dataclass(frozen=True)
class Attempt:
    """One attempt: its record, if a run was started, and the error that ended it.

    Attributes:
        cause: why the run is not VALID, by its diagnosis; empty if that found no cause.
    """

    run: Run | None = None
    error: HarnessError | None = None
    cause: str = ""


def may_repeat(attempts: Sequence[Attempt]) -> bool:
    """Return whether to repeat a run after its `attempts`.

    | last attempt | repeated | because |
    |---|---|---|
    | ProcessFailed: no replica left, no start, no completions, end of LoadGen's process | yes | may not recur |
    | DEGRADED: a replica failed, others completed the run | yes | may not recur |
    | other RunFailed: refused prompt, answer of one token, query that ends replicas | no | recurs |
    | MEASURED: the scoring failed | no | recurs until a person acts; then the log is judged again |
    | ConfigError, EnvironmentMissing | no | recurs until a person acts |
    | INVALID: LoadGen, a gate or the probe | no | recurs with the same target |
    """
    last = attempts[-1]
    if len(attempts) > MAX_REPEATS:
        return False
    if last.error:
        return isinstance(last.error, ProcessFailed)
    return last.run is not None and last.run.state is State.DEGRADED


@dataclass(frozen=True)
class RunAttempts:
    """All attempts of a command at one run, oldest first.

    Attributes:
        blocked: why the run was not attempted.
        obstacle: why a VALID run is not selected for the result; empty if it is.
        settled: whether the run is of an earlier command, and INVALID with the present settings.
        restoring: how an earlier VALID run counts again instead of this INVALID one; empty without one.
    """

    run_key: RunKey
    attempts: tuple[Attempt, ...] = ()
    blocked: HarnessError | None = None
    obstacle: str = ""
    settled: bool = False
    restoring: str = ""

    @property
    def run(self) -> Run | None:
        """The newest run, if one was started."""
        return next((attempt.run for attempt in reversed(self.attempts) if attempt.run), None)

    @property
    def error(self) -> HarnessError | None:
        """The error that ended the last attempt."""
        return self.blocked or (self.attempts[-1].error if self.attempts else None)

    @property
    def valid(self) -> bool:
        """Whether the last attempt is a result."""
        return not (self.error or self.obstacle) and self.run is not None and self.run.state is State.VALID

    @property
    def profiled(self) -> bool:
        """Whether the last attempt has a trace, as --profile-window asks for."""
        return not self.error and self.run is not None and self.run.state is State.PROFILED

    @property
    def exit_code(self) -> int:
        """Exit code of a command that needs this run; 0 if it is a result."""
        if self.valid:
            return 0
        if self.error:
            return self.error.exit_code
        return RunFailed.exit_code if self.run and self.run.state is State.DEGRADED else GateFailed.exit_code

    @property
    def cause(self) -> str:
        """Why the run is not a result, in one line."""
        if self.error:
            parts = ["not attempted" if self.blocked else "", self.error.what, self.error.found]
            return " ".join(": ".join(filter(None, parts)).split())
        diagnosed = self.attempts[-1].cause if self.attempts else ""
        reasons = diagnosed or ("; ".join(self.run.reasons) if self.run else "")
        return self.obstacle or (f"{reasons} ({SETTLED})" if self.settled else reasons)

    @property
    def place(self) -> str:
        """The log or folder to read."""
        place = self.error.where if self.error else ""
        return place or (str(self.run.path) if self.run else "")


def with_obstacles(made: Sequence[RunAttempts], selection: Selection) -> list[RunAttempts]:
    """Return `made` with the reason for each VALID run that `selection`, which was made with it, leaves out."""
    reasons = {status.run_key: status.reason for status in selection.missing}
    return [replace(one, obstacle=reasons.get(one.run_key, "")) if one.valid else one for one in made]


def missing_runs_error(missing: Sequence[RunAttempts], asked: int, command: str) -> HarnessError:
    """Return the error of a command that ends without `missing` of the `asked` runs; `command` makes them."""
    kind = _KINDS[max(run.exit_code for run in missing)]
    restoring = [run.restoring for run in missing if run.restoring]
    return kind(
        "not every run is VALID and counted",
        found=f"{len(missing)} of {asked} runs are missing\n\n{missing_table(missing)}",
        hint="\n      ".join([*restoring, f"after removing the causes: {command}"]),
    )


def missing_table(missing: Sequence[RunAttempts]) -> str:
    """Return a table of `missing` runs; the cause is the last column because it may be long."""
    rows = [_HEAD, *(_row(run) for run in missing)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEAD) - 1)]
    lines = [_INDENT + "  ".join([*map(str.ljust, row, widths), row[-1]]) for row in rows]
    margin = " " * (len(_INDENT) + sum(widths) + 2 * len(widths))
    places = [f"{margin}{run.place}" for run in missing]
    return "\n".join(
        [lines[0], *(text for pair in zip(lines[1:], places, strict=True) for text in pair if text.strip())]
    )


def _row(run: RunAttempts) -> tuple[str, str, str, str]:
    state = run.run.state.value if run.run else MISSING
    return str(run.run_key), NOT_COUNTED if run.obstacle else state, str(len(run.attempts)), run.cause
