"""Comparisons as tables and as JSON."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.table import Table

from harness_llm.analysis.compare import Comparison, Figure
from harness_llm.analysis.interval import CONFIDENCE
from harness_llm.analysis.verdict import verdicts


def as_json(comparisons: Mapping[str, Comparison]) -> dict[str, Any]:
    """The comparison as JSON; `ratio` and `interval` are of B / A, those of `verdicts` of B's speed / A's."""
    return {
        scenario: {
            "runs": asdict(found.counts),
            "states": {test: asdict(pair) for test, pair in found.states.items()},
            "verdicts": [asdict(verdict) for verdict in verdicts(found)],
            "figures": {name: asdict(f) | {"ratio": f.ratio} for name, f in found.figures.items()},
            "differences": found.differences,
        }
        for scenario, found in comparisons.items()
    }


def show(comparisons: Mapping[str, Comparison], console: Console) -> None:
    """Print a table, the verdicts and the differences of each scenario."""
    for scenario, found in comparisons.items():
        console.print(_table(scenario, found))
        for verdict in verdicts(found):
            console.print(f"B against A: {verdict}", soft_wrap=True, highlight=False, markup=False)
        for line in found.differences:
            console.print(f"differs: {line}", soft_wrap=True, highlight=False, markup=False)


def _table(scenario: str, found: Comparison) -> Table:
    table = Table(scenario, "A", "B", "B / A", f"{CONFIDENCE:.0%} interval")
    for column in table.columns[1:]:
        column.justify = "right"
    for test, state in found.states.items():
        table.add_row(test, state.a or "-", state.b or "-")
    table.add_section()
    for name, figure in found.figures.items():
        values = (_written(value, 2) for value in (figure.a, figure.b))
        table.add_row(name, *values, _written(figure.ratio, 3), _interval(figure))
    return table


def _written(value: float | None, decimals: int) -> str:
    return "-" if value is None else f"{value:,.{decimals}f}"


def _interval(figure: Figure) -> str:
    return f"{figure.interval.low:.3f} to {figure.interval.high:.3f}" if figure.interval else "-"
