"""The result of one check."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from harness_llm.errors import ConfigError, EnvironmentMissing, HarnessError


class Level(StrEnum):
    """`ERROR` refuses the submission, `WARNING` does not."""

    OK = "ok"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True)
class CheckResult:
    """What one check found.

    Attributes:
        name: of the check, two or three words, such as `GPU memory`.
        found: a clause with the observed value.
        expected: empty where `level` is OK.
        where: the file, setting or device; empty where `name` says it.
        hint: the command or the line to type next.
        exit_code: of a command that an ERROR ends.
        observed: the value itself, where `found` names the fault.
        self_contained: whether `found` names the fault without `name`.
    """

    name: str
    level: Level
    found: str
    expected: str = ""
    where: str = ""
    hint: str = ""
    exit_code: int = EnvironmentMissing.exit_code
    observed: str = ""
    self_contained: bool = False


def passed(name: str, found: str) -> CheckResult:
    """A check that found no fault."""
    return CheckResult(name, Level.OK, found)


def warned(name: str, found: str, *, expected: str = "", where: str = "", hint: str = "") -> CheckResult:
    """A check that found a fault which does not refuse the submission."""
    return CheckResult(name, Level.WARNING, found, expected=expected, where=where, hint=hint)


def failed(name: str, found: str, *, expected: str = "", where: str = "", hint: str = "") -> CheckResult:
    """A check that found something missing on this machine."""
    return CheckResult(name, Level.ERROR, found, expected=expected, where=where, hint=hint)


def not_checked(name: str, reason: str, *, hint: str = "") -> CheckResult:
    """A check that could not be made."""
    return CheckResult(name, Level.WARNING, f"not checked: {reason}", hint=hint)


def from_error(name: str, error: HarnessError) -> CheckResult:
    """The result of a check whose fingerprint raised `error`."""
    code = ConfigError.exit_code if isinstance(error, ConfigError) else EnvironmentMissing.exit_code
    return CheckResult(
        name,
        Level.ERROR,
        error.what,
        error.expected,
        error.where,
        error.hint,
        exit_code=code,
        observed=error.found,
        self_contained=True,
    )


def errors(results: Iterable[CheckResult]) -> list[CheckResult]:
    """The results that refuse the submission."""
    return [result for result in results if result.level is Level.ERROR]
