"""Result of one check."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from harness_llm.errors import ConfigError, EnvironmentMissing, HarnessError


class Level(StrEnum):
    """Severity of a result; an `ERROR` stops the submission, a `WARNING` does not."""

    OK = "ok"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True)
class CheckResult:
    """Result of one check.

    Attributes:
        name: name of the check, two or three words, such as `GPU memory`.
        level: severity.
        found: clause with the observed value, or with the error.
        expected: expected value; empty if `level` is OK.
        where: file, setting or device; empty if `name` is enough.
        hint: command or line to type next.
        exit_code: exit code of a command that an ERROR stops.
        observed: observed value, if `found` is an error message.
        self_contained: whether `found` is understandable without `name`.
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
    """Result of a check that passed."""
    return CheckResult(name, Level.OK, found)


def warned(name: str, found: str, *, expected: str = "", where: str = "", hint: str = "") -> CheckResult:
    """Result of a check that found a problem that does not stop the submission."""
    return CheckResult(name, Level.WARNING, found, expected=expected, where=where, hint=hint)


def failed(name: str, found: str, *, expected: str = "", where: str = "", hint: str = "") -> CheckResult:
    """Result of a check that found a problem of this machine that stops the submission."""
    return CheckResult(name, Level.ERROR, found, expected=expected, where=where, hint=hint)


def not_checked(name: str, reason: str, *, hint: str = "") -> CheckResult:
    """Result of a check that could not run."""
    return CheckResult(name, Level.WARNING, f"not checked: {reason}", hint=hint)


def from_error(name: str, error: HarnessError) -> CheckResult:
    """Result of a check that raised `error`."""
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
    """Results that stop the submission."""
    return [result for result in results if result.level is Level.ERROR]
