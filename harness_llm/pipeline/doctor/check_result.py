"""Result of one check."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from harness_llm.errors import ConfigError, EnvironmentMissing, HarnessError


class Level(StrEnum):
    """Severity of a result; only an `ERROR` stops the submission."""

    OK = "ok"
    NOT_CHECKED = "not checked"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True)
class CheckResult:
    """Result of one check.

    Attributes:
        name: name of the check, two or three words, such as `GPU memory`.
        level: severity.
        found: clause with the observed value, with the error, or with the reason why the check could not run.
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
    return CheckResult(name, Level.NOT_CHECKED, reason, hint=hint)


def from_error(name: str, error: HarnessError | OSError) -> CheckResult:
    """Result of a check that raised `error`."""
    if isinstance(error, OSError):
        return failed(name, f"OS error: {error}")
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


def problems(results: Iterable[CheckResult]) -> list[CheckResult]:
    """Warnings, and results of checks that could not run."""
    return [result for result in results if result.level in (Level.WARNING, Level.NOT_CHECKED)]


def errors(results: Iterable[CheckResult]) -> list[CheckResult]:
    """Results that stop the submission."""
    return [result for result in results if result.level is Level.ERROR]
