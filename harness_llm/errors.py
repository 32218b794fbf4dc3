"""Errors for the user, and their exit codes.

HarnessError
├── ConfigError        2  wrong use or configuration
├── EnvironmentMissing 3  missing package, program, device or file
├── GateFailed         1  a check or gate failed
└── RunFailed          4  a run ended without a result
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
        """The attributes and the exit code, for `rebuild` in another process."""
        return {"exit_code": self.exit_code, **asdict(self)}

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


_KINDS: dict[int, type[HarnessError]] = {
    kind.exit_code: kind for kind in (GateFailed, ConfigError, EnvironmentMissing, RunFailed)
}


INTERRUPTED = 130
"""Exit code after Ctrl-C."""


def exit_code_of(program: Callable[[], int | None]) -> int:
    """Run `program`, and print its HarnessError to stderr.

    Returns:
        The exit code of the program, of its error, or 130 after Ctrl-C.
    """
    try:
        return program() or 0
    except HarnessError as error:
        sys.stderr.write(f"error: {error}\n")
        return error.exit_code
    except KeyboardInterrupt:
        return INTERRUPTED


def rebuild(facts: Mapping[str, Any]) -> HarnessError:
    """The error of another process from its `facts`."""
    attributes = {field: facts[field] for field in HarnessError.__dataclass_fields__}
    return _KINDS[facts["exit_code"]](**attributes)
