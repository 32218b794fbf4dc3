"""Results of checks as text, as JSON and as one error."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any

from harness_llm.errors import ConfigError, EnvironmentMissing, HarnessError
from harness_llm.pipeline.doctor.check_result import CheckResult, Level, errors

_LEVEL_WIDTH = max(len(level) for level in Level) + 2
_NAME_WIDTH = 22
_INDENT = " " * _LEVEL_WIDTH


def render(results: Iterable[CheckResult]) -> str:
    """One line for each result; where it is no OK, lines with where, expected and hint below it."""
    return "\n".join(line for result in results for line in _lines(result))


def _lines(result: CheckResult) -> list[str]:
    facts = {"where": result.where, "expected": result.expected, "found": result.observed}
    below = [f"{key}: {text}" for key, text in facts.items() if text]
    below += [f"→ {result.hint}"] if result.hint else []
    lines = [_INDENT + line.strip() for text in below for line in text.splitlines()]
    return [f"{result.level:{_LEVEL_WIDTH}}{result.name:{_NAME_WIDTH}} {result.found}", *lines]


def to_json(results: Iterable[CheckResult]) -> list[dict[str, Any]]:
    """The fields of each result."""
    return [asdict(result) for result in results]


def from_json(document: Iterable[dict[str, Any]]) -> list[CheckResult]:
    """The results that `to_json` wrote."""
    return [CheckResult(**fields | {"level": Level(fields["level"])}) for fields in document]


def refuse(results: Sequence[CheckResult]) -> None:
    """Raise one error with all results of level ERROR, if there are any.

    Raises:
        ConfigError: every error is a wrong configuration.
        EnvironmentMissing: at least one is not.
    """
    found = errors(results)
    if not found:
        return
    kind: type[HarnessError] = EnvironmentMissing
    if all(result.exit_code == ConfigError.exit_code for result in found):
        kind = ConfigError
    if len(found) == 1:
        (only,) = found
        what = only.found if only.self_contained else f"{only.name}: {only.found}"
        raise kind(what, only.where, only.expected, only.observed, only.hint)
    raise kind(
        f"{len(found)} checks refuse this submission",
        found=f"\n{render(found)}",
        hint="harness-llm doctor, with the same options, makes these checks alone",
    )
