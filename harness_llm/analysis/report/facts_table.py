"""Figures, configuration and environment of columns as tables. Pure functions."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from harness_llm.analysis.repeats import facts
from harness_llm.analysis.report.column import Column
from harness_llm.analysis.report.wording import instant, margin_text, number, seconds
from harness_llm.runs.facts import flat

_PERCENTILES = (50, 90, 99, 99.9)
_NONE = number(None)


@dataclass(frozen=True)
class Row:
    """A row of a table: its name and a cell per column."""

    name: str
    cells: Sequence[str]


@dataclass(frozen=True)
class Table:
    """A table; columns without any value are left out."""

    heads: Sequence[str]
    rows: Sequence[Row]


def figures(columns: Sequence[Column]) -> Table:
    """A row per run: rates, duration and counts."""
    rows = [(column.name or column.any_run.system, _figures(column)) for column in columns]
    return _table("run", [(name, figures) for name, figures in rows])


def _figures(column: Column) -> dict[str, str]:
    row, record = column.row, column.any_run.record
    metrics = record.metrics if record else {}
    found = {
        "verdict": str(column.state),
        "tokens/s": number(row.tokens_per_second),
        "samples/s": number(row.samples_per_second),
        "target": number(row.target),
        "duration": seconds(metrics["duration_s"]) if "duration_s" in metrics else _NONE,
        "samples": _count(column),
        "preemptions": number(metrics.get("preemptions")),
    }
    prediction = record.prediction if record else {}
    return found | {f"probe: {name}": number(value) for name, value in prediction.items()}


def latencies(columns: Sequence[Column]) -> Table:
    """A row per latency and run: percentiles of LoadGen's log, limit and margin."""
    names = ("TTFT", "TPOT") if any(column.margins for column in columns) else ("TTFT", "TPOT", "latency")
    rows = [
        (" ".join(filter(None, (f"{name} (ms)", column.name))), _percentiles(column, name))
        for name in names
        for column in columns
        if column.scenario != "Offline"
    ]
    return _table("latency", rows)


def _percentiles(column: Column, name: str) -> dict[str, str]:
    found = {f"p{percentile}": _percentile(column, name, percentile) for percentile in _PERCENTILES}
    margin = next((one for one in column.margins if one.name == f"p99 {name}"), None)
    return found | {
        "limit of the p99": number(margin.limit) if margin else _NONE,
        "margin": margin_text(margin.share) if margin else _NONE,
    }


def _table(first: str, rows: Sequence[tuple[str, Mapping[str, str]]]) -> Table:
    kept = [(name, cells) for name, cells in rows if any(cell != _NONE for cell in cells.values())]
    names = dict.fromkeys(name for _, cells in kept for name in cells)
    heads = [name for name in names if any(cells.get(name, _NONE) != _NONE for _, cells in kept)]
    return Table([first, *heads], [Row(name, [cells.get(head, _NONE) for head in heads]) for name, cells in kept])


def _count(column: Column) -> str:
    """Samples issued; in Offline all of them are one query."""
    queries = column.recorded.queries
    if queries:
        return number(len(queries["issue_s"]))
    return number(column.detail.get("result_query_count")) if column.detail else _NONE


def _percentile(column: Column, name: str, percentile: float) -> str:
    record = column.any_run.record
    if column.detail is None or not record or not record.metrics:
        return _NONE
    if name == "latency":
        return number(column.detail.latency_percentiles_ms.get(percentile))
    value = {"TTFT": column.detail.ttft_ms, "TPOT": column.detail.tpot_ms}[name]
    return number(value(percentile))


def environment(columns: Sequence[Column]) -> tuple[list[Row], list[Row]]:
    """The facts that differ between the columns, and those that are equal in all, with one cell."""
    found = [dict(flat(facts(column.any_run))) | _times(column) for column in columns]
    names = sorted({name for own in found for name in own})
    differing: list[Row] = []
    equal: list[Row] = []
    for name in names:
        cells = [_shown(own.get(name, "absent")) for own in found]
        (differing if len(set(cells)) > 1 else equal).append(Row(name, cells))
    return differing, [Row(row.name, row.cells[:1]) for row in equal]


def _times(column: Column) -> dict[str, str]:
    record = column.any_run.record
    return {"started": instant(record.started), "ended": instant(record.ended)} if record else {}


def _shown(value: Any) -> str:
    text = str(value)
    return text or _NONE
