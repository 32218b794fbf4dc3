"""Render results of checks as text, JSON or one error."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from harness_llm.config.commands import command
from harness_llm.errors import ConfigError, EnvironmentMissing, HarnessError
from harness_llm.pipeline.doctor.check_result import CheckResult, Level, errors, problems

_LEVEL_WIDTH = max(len(level) for level in Level) + 2
_NAME_WIDTH = 22
_INDENT = " " * _LEVEL_WIDTH


def render(results: Iterable[CheckResult]) -> str:
    """Render one line per result, with where, expected, found and hint below it if it is not OK."""
    return "\n".join(line for result in results for line in _lines(result))


def _lines(result: CheckResult) -> list[str]:
    facts = {"where": result.where, "expected": result.expected, "found": result.observed}
    below = [f"{key}: {text}" for key, text in facts.items() if text]
    below += [f"→ {result.hint}"] if result.hint else []
    lines = [_INDENT + line.strip() for text in below for line in text.splitlines()]
    return [f"{result.level:{_LEVEL_WIDTH}}{result.name:{_NAME_WIDTH}} {result.found}", *lines]


def summary(results: Sequence[CheckResult]) -> str:
    """Return the number of results, in total and by level."""
    counts = {level: count for level, count in _counts(results).items() if count}
    parts = [f"{count} {_plural(level, count)}" for level, count in counts.items()]
    return f"{len(results)} {_plural('check', len(results))}: {', '.join(parts)}"


def _plural(noun: str, count: int) -> str:
    return f"{noun}s" if count != 1 and noun in ("check", Level.ERROR, Level.WARNING) else noun


def _counts(results: Sequence[CheckResult]) -> dict[Level, int]:
    levels = [result.level for result in results]
    return {level: levels.count(level) for level in (Level.OK, Level.ERROR, Level.WARNING, Level.NOT_CHECKED)}


def to_json(results: Sequence[CheckResult]) -> dict[str, Any]:
    """Fields of each result, and the number of results by level."""
    return {"checks": [asdict(result) for result in results], "count": _counts(results)}


def from_json(document: Mapping[str, Any]) -> list[CheckResult]:
    """Read results that `to_json` wrote."""
    return [CheckResult(**fields | {"level": Level(fields["level"])}) for fields in document["checks"]]


def error_type(failed: Sequence[CheckResult]) -> type[HarnessError]:
    """Return ConfigError if all failed checks are configuration errors, else EnvironmentMissing."""
    is_config = all(result.exit_code == ConfigError.exit_code for result in failed)
    return ConfigError if is_config else EnvironmentMissing


def require(results: Sequence[CheckResult], tell: Callable[[str], None]) -> None:
    """Print warnings and what could not be checked through `tell`; raises as `refuse`."""
    if found := problems(results):
        tell(render(found))
    refuse(results)


def refuse(results: Sequence[CheckResult]) -> None:
    """Raise one error with all results of level ERROR.

    Raises:
        ConfigError: all of them are wrong configurations.
        EnvironmentMissing: at least one of them is not.
    """
    found = errors(results)
    if not found:
        return
    kind = error_type(found)
    if len(found) == 1:
        (only,) = found
        what = only.found if only.self_contained else f"{only.name}: {only.found}"
        raise kind(what, only.where, only.expected, only.observed, only.hint)
    raise kind(
        f"{len(found)} checks failed",
        found=f"\n{render(found)}",
        hint=f"{command('doctor')} with the same options runs only the checks",
    )
