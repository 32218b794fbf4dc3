"""The charts of one scenario: a chart per run with one range, or one chart of all runs."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from harness_llm.analysis.report.chart import Chart
from harness_llm.analysis.report.column import Column
from harness_llm.analysis.report.device_charts import absent_metrics, device_charts, throttle_text
from harness_llm.analysis.report.latency_charts import (
    ANSWER,
    TPOT,
    TTFT,
    Latency,
    against_length,
    distribution,
    over_time,
)
from harness_llm.analysis.report.time_charts import (
    IN_FLIGHT,
    KV_CACHE,
    PREEMPTIONS,
    WAITING,
    Metric,
    drain_tail,
    lines,
    throughput,
)
from harness_llm.analysis.report.wording import nice_ceiling

_VISIBLE = 4
MOST_CHARTED = 8
"""Columns of a scenario with charts: more lines in one chart cannot be told apart."""


@dataclass(frozen=True)
class ChartGroup:
    """Charts below one heading, with notes on what is missing."""

    heading: str
    charts: Sequence[Chart]
    notes: Sequence[str] = ()


def chart_groups(columns: Sequence[Column]) -> Iterator[ChartGroup]:
    """The charts of the performance runs of `columns`, by heading."""
    charted = columns[:MOST_CHARTED]
    notes = merged_notes(charted, [list(column.recorded.missing) for column in charted])
    if len(columns) > len(charted):
        notes.append(f"Charts show the first {MOST_CHARTED} of {len(columns)} runs; the table has all.")
    yield _group("Throughput", charted, [_throughput(charted), *_drain(charted)], notes)
    yield _group("Latency", charted, _latency(charted))
    always, if_any = (
        [_replicas(charted, own) for own in part] for part in ((IN_FLIGHT, KV_CACHE), (WAITING, PREEMPTIONS))
    )
    yield _group("Replicas", charted, [*always, *map(_if_any, if_any)])
    yield _group(
        "Devices",
        charted,
        list(_devices(charted)),
        merged_notes(charted, [list(_device_notes(one)) for one in charted]),
    )


def merged_notes(columns: Sequence[Column], notes: Sequence[Sequence[str]]) -> list[str]:
    """The notes of each column; a note with the names of its columns, unless all have it."""
    owners: dict[str, list[str]] = {}
    for column, own in zip(columns, notes, strict=True):
        for note in own:
            owners.setdefault(note, []).append(column.name)
    return [note if len(names) == len(columns) else f"{', '.join(names)}: {note}" for note, names in owners.items()]


def _time(column: Column) -> str:
    """Charts of one run show the same instant."""
    return f"time of {column.path}"


def _group(
    heading: str, columns: Sequence[Column], rows: Sequence[Sequence[Chart | None]], notes: Sequence[str] = ()
) -> ChartGroup:
    """The charts of `rows`, each with a chart per column or one of all; empty ones become notes."""
    charts: list[Chart] = []
    absent: list[list[str]] = [[] for _ in columns]
    for row in rows:
        for chart, own in zip(row, absent, strict=False):
            if chart and chart.empty:
                own.append(f"{chart.topic}: no values were recorded.")
        pairs = zip(columns, row, strict=False)
        charts += _same_range([_named(chart, column, len(row)) for column, chart in pairs if chart])
    return ChartGroup(heading, charts, [*notes, *merged_notes(columns, absent)])


def _named(chart: Chart, column: Column, count: int) -> Chart:
    return replace(chart, topic=f"{chart.topic} · {column.name}") if count > 1 else chart


def _same_range(charts: Sequence[Chart]) -> list[Chart]:
    """The charts of one metric with one range of y, so that they can be compared; two of them share a line."""
    charts = [chart for chart in charts if not chart.empty]
    if len(charts) < 2:  # noqa: PLR2004
        return charts
    high = nice_ceiling(max(chart.highest for chart in charts))
    return [replace(chart, wide=False, y=replace(chart.y, high=chart.y.high or high)) for chart in charts]


def _replicas(columns: Sequence[Column], metric: Metric) -> list[Chart]:
    return [lines(one.recorded.replicas, metric, one.recorded.end, _time(one), "replica") for one in columns]


def _if_any(charts: Sequence[Chart]) -> list[Chart]:
    """The charts, if one has another value than zero."""
    return list(charts) if any(chart.highest > 0 for chart in charts if not chart.empty) else []


def _throughput(columns: Sequence[Column]) -> list[Chart | None]:
    return [throughput(one.recorded, one.row.tokens_per_second, _time(one)) for one in columns]


def _drain(columns: Sequence[Column]) -> Iterator[list[Chart | None]]:
    if columns and columns[0].scenario == "Offline":
        yield [drain_tail(one.recorded, "") for one in columns]


def _latency(columns: Sequence[Column]) -> list[Sequence[Chart | None]]:
    streams = any(len(one.recorded.ttft_ms) for one in columns)
    shown = (TTFT, TPOT) if streams else () if columns and columns[0].scenario == "Offline" else (ANSWER,)
    runs = {one.name: one.recorded for one in columns}
    return [
        *([distribution(latency, runs, _limit(columns, latency))] for latency in shown),
        *(
            [over_time(latency, one.recorded, _near(columns, latency), _time(one)) for one in columns]
            for latency in shown
        ),
        *([against_length(latency, one.recorded) for one in columns] for latency in shown),
    ]


def _limit(columns: Sequence[Column], latency: Latency) -> float | None:
    limits = {one.limit for column in columns for one in column.margins if one.name == f"p99 {latency.name}"}
    return min(limits) if limits else None


def _near(columns: Sequence[Column], latency: Latency) -> float | None:
    """The limit, unless a chart with it would show the latencies as a flat line."""
    limit = _limit(columns, latency)
    highest = max(
        (float(np.quantile(own, 0.9)) for one in columns if len(own := latency.values(one.recorded))), default=0
    )
    return limit if limit and limit < _VISIBLE * highest else None


def _devices(columns: Sequence[Column]) -> Iterator[list[Chart | None]]:
    found = [{chart.topic: chart for chart in device_charts(one.recorded, _time(one))} for one in columns]
    for topic in dict.fromkeys(topic for own in found for topic in own):
        yield [own.get(topic) for own in found]


def _device_notes(column: Column) -> Iterator[str]:
    if column.recorded.devices:
        if absent := absent_metrics(column.recorded):
            yield f"Not reported by the devices: {', '.join(absent).lower()}."
        yield f"{throttle_text(column.recorded)}."
