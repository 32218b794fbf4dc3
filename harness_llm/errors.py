"""Errors for the user, and their exit codes.

HarnessError
├── ConfigError        2  wrong use or configuration
├── EnvironmentMissing 3  missing package, program, device or file
├── GateFailed         1  a check or gate failed
└── RunFailed          4  a run ended without a result
    └── ProcessFailed  4  because an engine or LoadGen's process failed
"""

import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any


@dataclass
class HarnessError(Exception):
    """An error that the user sees as a message, without a traceback.

    Attributes:
        what: the fault, without a full stop.
        where: the file, key or process concerned.
        expected: the right value.
        found: the wrong value.
        hint: what to type or to edit.
    """

    what: str
    where: str = ""
    expected: str = ""
    found: str = ""
    hint: str = ""

    exit_code = 1

    def facts(self) -> dict[str, Any]:
        """The attributes and the class, for `rebuild` in another process."""
        kind = next(kind.__name__ for kind in type(self).__mro__ if kind.__name__ in _KINDS)
        return {"kind": kind, **asdict(self)}

    @property
    def line(self) -> str:
        """The message in one line, cause first."""
        parts = [
            self.what + (f": {self.found}" if self.found else ""),
            f"expected {self.expected}" if self.expected else "",
            self.where,
            f"hint: {self.hint}" if self.hint else "",
        ]
        return " ".join("; ".join(filter(None, parts)).split())

    def __str__(self) -> str:
        """The message, one attribute per line."""
        lines = [self.what]
        lines += [
            f"  {label}: {text}"
            for label, text in (("where", self.where), ("expected", self.expected), ("found", self.found))
            if text
        ]
        if self.hint:
            lines += ["", f"hint: {self.hint}"]
        return "\n".join(lines)


class GateFailed(HarnessError):
    """A check, gate or probe failed."""

    exit_code = 1


class ConfigError(HarnessError):
    """The command line, a configuration file or an input file is wrong."""

    exit_code = 2


class EnvironmentMissing(HarnessError):
    """A required package, program, device or file is missing on this machine."""

    exit_code = 3


class RunFailed(HarnessError):
    """A run ended without a result."""

    exit_code = 4


class ProcessFailed(RunFailed):
    """An engine or LoadGen's process exited, stalled or did not start; the same run may succeed with a new engine."""


_KINDS: dict[str, type[HarnessError]] = {
    kind.__name__: kind for kind in (GateFailed, ConfigError, EnvironmentMissing, RunFailed, ProcessFailed)
}


INTERRUPTED = 130
"""Exit code after Ctrl-C."""


def report(error: Exception, hint: str = "") -> int:
    """Print an error to stderr and return its exit code; `hint` is for OS errors and bugs."""
    if isinstance(error, OSError):
        error = EnvironmentMissing(f"OS error: {error}", hint=hint)
    elif not isinstance(error, HarnessError):
        error = RunFailed(f"this is a bug: {error!r}", hint=hint)
    sys.stderr.write(f"error: {error}\n")
    return error.exit_code


def exit_code_of(program: Callable[[], int | None]) -> int:
    """Run `program`, and print its HarnessError or OSError to stderr.

    Returns:
        The exit code of the program, of its error, or 130 after Ctrl-C.
    """
    try:
        return program() or 0
    except (HarnessError, OSError) as error:
        return report(error)
    except KeyboardInterrupt:
        return INTERRUPTED


def rebuild(facts: Mapping[str, Any]) -> HarnessError:
    """The error of another process from its `facts`."""
    attributes = {field: facts[field] for field in HarnessError.__dataclass_fields__}
    return _KINDS[facts["kind"]](**attributes)
