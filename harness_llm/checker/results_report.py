"""Judged results as text."""

from collections.abc import Sequence

from harness_llm.checker.judged_results import JudgedResult

_RIGHT = "result"
_COLUMNS = ("submitter", "system", "benchmark", "scenario", "verdict", _RIGHT, "findings", "accuracy")


def render_results(results: Sequence[JudgedResult]) -> str:
    """Render one line per result, in columns."""
    if not results:
        return "0 results judged\n"
    rows = [_COLUMNS, *(_row(result) for result in results)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "".join(f"{_line(row, widths)}\n" for row in rows)


def _line(row: Sequence[str], widths: Sequence[int]) -> str:
    cells = zip(_COLUMNS, row, widths, strict=True)
    padded = (text.rjust(width) if name == _RIGHT else text.ljust(width) for name, text, width in cells)
    return "  ".join(padded).rstrip()


def _row(result: JudgedResult) -> tuple[str, ...]:
    mapped = "" if result.variant == result.benchmark else f" as {result.variant}"
    return (
        f"{result.division}/{result.submitter}",
        result.system,
        f"{result.benchmark}{mapped}",
        result.scenario,
        result.verdict,
        "none" if result.figure is None else f"{result.figure:,.2f} {result.unit}",
        counted_findings(result.errors, result.warnings),
        ", ".join(f"{metric} {score:.10g}" for metric, score in result.scores.items()) or "none",
    )


def counted_findings(errors: int, warnings: int) -> str:
    """Numbers of errors and warnings, in words."""
    return f"{counted(errors, 'error')}, {counted(warnings, 'warning')}"


def counted(number: int, noun: str) -> str:
    """A number and its noun."""
    return f"{number} {noun}{'' if number == 1 else 's'}"
