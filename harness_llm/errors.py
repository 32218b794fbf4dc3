"""The errors a user meets, and the exit code each of them ends with.

HarnessError
├── ConfigError        2  wrong use or configuration
├── EnvironmentMissing 3  something this machine lacks
├── GateFailed         1  a check or gate says no
└── RunFailed          4  a run ended without a result
"""

import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any


@dataclass
class HarnessError(Exception):
    """An error that is explained to the user instead of shown as a traceback.

    Attributes:
        what: one sentence without a full stop that names the fault.
        where: the file, key or process concerned.
        expected: what would have been right.
        found: what was there instead.
        hint: what to type or edit next.
    """

    what: str
    where: str = ""
    expected: str = ""
    found: str = ""
    hint: str = ""

    exit_code = 1

    def facts(self) -> dict[str, Any]:
        """What `rebuild` makes it of again in another process."""
        return {"exit_code": self.exit_code, **asdict(self)}

    def __str__(self) -> str:
        """The message as the terminal shows it, one fact a line."""
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
    """A check, gate or probe said no; nothing is broken."""

    exit_code = 1


class ConfigError(HarnessError):
    """The command line, a configuration file or an input file is wrong."""

    exit_code = 2


class EnvironmentMissing(HarnessError):
    """A package, program, device or file that the work needs is not on this machine."""

    exit_code = 3


class RunFailed(HarnessError):
    """A run started and ended without a result."""

    exit_code = 4


_KINDS: dict[int, type[HarnessError]] = {
    kind.exit_code: kind for kind in (GateFailed, ConfigError, EnvironmentMissing, RunFailed)
}


INTERRUPTED = 130
"""The exit code of a program that Ctrl-C ends."""


def exit_code_of(program: Callable[[], int | None]) -> int:
    """Run `program`, and print its HarnessError to stderr.

    Returns:
        The program's own exit code, that of its error, or 130 after Ctrl-C.
    """
    try:
        return program() or 0
    except HarnessError as error:
        sys.stderr.write(f"error: {error}\n")
        return error.exit_code
    except KeyboardInterrupt:
        return INTERRUPTED


def rebuild(facts: Mapping[str, Any]) -> HarnessError:
    """The error that another process told of with its `facts`."""
    words = {field: facts[field] for field in HarnessError.__dataclass_fields__}
    return _KINDS[facts["exit_code"]](**words)
