"""Charts of latencies: distribution, over time, and against the length of the prompt."""

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from harness_llm.analysis.report.chart import Axis, Chart, Floats, Form, Limit, Scale, Series
from harness_llm.analysis.report.downsampling import (
    MOST_POINTS,
    chosen,
    groups_of_equal_size,
    loadgen_quantile,
    quantile_curve,
)
from harness_llm.analysis.report.recorded_run import RecordedRun
from harness_llm.analysis.report.time_charts import TIME
from harness_llm.analysis.report.wording import margin_text, number, percent, seconds

_P99 = 2.0  # on the scale of nines
_WINDOWS = 40
_FEWEST_IN_WINDOW = 20
_DECADES = 20  # from this ratio on, a linear axis hides the short ones
_CHANGED = 0.1  # from which a title states a trend
_RELATED = 0.3  # correlation from which a title states a relation


@dataclass(frozen=True)
class Latency:
    """A latency of the queries; `values` are in ms, by index of the query."""

    name: str
    long_name: str
    values: Callable[[RecordedRun], Floats]


TTFT = Latency("TTFT", "Time to first token", lambda run: run.ttft_ms)
TPOT = Latency("TPOT", "Time per output token", lambda run: run.tpot_ms)
ANSWER = Latency("latency", "Latency of the whole answer", lambda run: run.latency_ms)


def distribution(latency: Latency, runs: Mapping[str, RecordedRun], limit: float | None) -> Chart | None:
    """Quantiles of `latency` on the scale of nines, a line per run; None without values."""
    found = {name: values for name, run in runs.items() if len(values := latency.values(run))}
    if not found:
        return None
    series = [
        Series(name or latency.name, *quantile_curve(values), look=look)
        for look, (name, values) in enumerate(found.items())
    ]
    scale = Scale.LOG if _spans_decades(list(found.values()), limit) else Scale.LINEAR
    limits = [Limit(limit, f"p99 limit {number(limit)} ms")] if limit else []
    return Chart(
        latency.long_name,
        "; ".join(_percentiles_text(latency, name, values, limit) for name, values in found.items()),
        Axis("share of the queries", Scale.NINES, low=0),
        Axis(f"{latency.name} (ms)", scale, low=None if scale is Scale.LOG else 0),
        series,
        [*limits, Limit(_P99, "p99", "x")],
        caption="A point (99 %, y): 99 % of the queries took at most y. From LoadGen's call to the report to LoadGen, "
        "of every query; LoadGen's own figures start when a query was due.",
    )


def _spans_decades(values: list[Floats], limit: float | None) -> bool:
    positive = [value for own in values for value in (np.quantile(own, 0.01), own.max()) if value > 0]
    return bool(positive) and bool(max(*positive, limit or 0.0) > _DECADES * min(positive))


def _percentiles_text(latency: Latency, name: str, values: Floats, limit: float | None) -> str:
    middle, tail = (loadgen_quantile(values, share) for share in (0.5, 0.99))
    text = f"{name + ': median' if name else 'Median'} {latency.name} {number(middle)} ms, p99 {number(tail)} ms"
    return f"{text}, {margin_text(1 - tail / limit)}" if limit else text


def over_time(latency: Latency, run: RecordedRun, limit: float | None, group: str) -> Chart | None:
    """Median and a high percentile of `latency` by time of issue."""
    values = latency.values(run)
    if len(values) < 2 * _FEWEST_IN_WINDOW:
        return None
    count = min(_WINDOWS, len(values) // _FEWEST_IN_WINDOW)
    issue = run.queries["issue_s"]
    bounds = np.linspace(0, float(issue.max()) * (1 + 1e-9), count + 1)
    places = [np.flatnonzero((issue >= low) & (issue < high)) for low, high in itertools.pairwise(bounds)]
    time = (bounds[:-1] + bounds[1:]) / 2
    share = 0.9
    middle, tail = (
        np.array([np.quantile(values[own], at) if len(own) >= _FEWEST_IN_WINDOW // 2 else np.nan for own in places])
        for at in (0.5, share)
    )
    return Chart(
        f"{latency.long_name} over time",
        _trend_text(latency, middle),
        Axis(TIME, low=0, high=run.end),
        Axis(f"{latency.name} (ms)", low=0),
        [Series("p90", time, tail, look=1), Series("median", time, middle, look=0)],
        [Limit(limit, f"p99 limit {number(limit)} ms")] if limit else [],
        caption=f"By time of issue, in {count} windows of {seconds(float(bounds[1]))} with "
        f"{len(values) // count} queries on average. A rising line is a growing queue.",
        group=group,
    )


def _trend_text(latency: Latency, middle: Floats) -> str:
    third = max(len(middle) // 3, 1)
    first, last = float(np.nanmean(middle[:third])), float(np.nanmean(middle[-third:]))
    change = last / first - 1 if first else 0.0
    return f"Median {latency.name} {_change_text(change)} from the first third of the run to the last"


def _change_text(change: float) -> str:
    if abs(change) < _CHANGED:
        return "changes by less than 10 %"
    if change > 1:
        return f"rises to {number(1 + change)} times"
    return f"{'rises' if change > 0 else 'falls'} by {percent(abs(change))}"


def against_length(latency: Latency, run: RecordedRun) -> Chart | None:
    """`latency` of single queries against the length of the prompt, with median and p90 of groups of equal size."""
    values = latency.values(run)
    if not len(values):
        return None
    lengths = run.queries["prompt_tokens"]
    points = chosen(len(values))
    shown = "every query" if len(points) == len(values) else f"{MOST_POINTS:,} of {len(values):,} queries at random"
    groups = list(_groups(lengths, values))
    series = [Series("queries", lengths[points], values[points], Form.POINTS, None)]
    for look, (name, column) in enumerate((("median", 1), ("p90", 2))):
        series.append(Series(name, [g[0] for g in groups], [g[column] for g in groups], Form.MARKED, look))
    return Chart(
        f"{latency.long_name} against prompt length",
        _relation_text(latency, lengths, values),
        Axis("prompt (tokens)"),
        Axis(f"{latency.name} (ms)", low=0),
        series,
        caption=f"Points: {shown}. Lines: of {len(groups)} groups with equal numbers of queries, at their mean length; "
        "they use every query.",
    )


def _groups(lengths: Floats, values: Floats) -> Iterator[tuple[float, float, float]]:
    for own in groups_of_equal_size(lengths):
        yield (
            float(lengths[own].mean()),
            float(np.quantile(values[own], 0.5)),
            float(np.quantile(values[own], 0.9)),
        )


def _relation_text(latency: Latency, lengths: Floats, values: Floats) -> str:
    span = f"prompts of {number(float(lengths.min()))} to {number(float(lengths.max()))} tokens"
    if lengths.min() == lengths.max():
        return f"All prompts have {number(float(lengths.min()))} tokens"
    correlation = float(np.corrcoef(_ranks(lengths), _ranks(values))[0, 1])
    if correlation > _RELATED:
        return f"{latency.name} grows with the length of the prompt (rank correlation {correlation:.2f}); {span}"
    if correlation < -_RELATED:
        return f"{latency.name} falls with the length of the prompt (rank correlation {correlation:.2f}); {span}"
    return f"{latency.name} hardly depends on the length of the prompt (rank correlation {correlation:.2f}); {span}"


def _ranks(values: Floats) -> Floats:
    return np.argsort(np.argsort(values)).astype(float)
