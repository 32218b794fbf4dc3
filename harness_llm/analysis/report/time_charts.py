"""Charts over the time of a run: throughput, load of the replicas and the drain tail of Offline."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from harness_llm.analysis.report.chart import Axis, Chart, Floats, Form, Limit, Series
from harness_llm.analysis.report.downsampling import Binned, binned, edges, rate
from harness_llm.analysis.report.recorded_run import Columns, RecordedRun
from harness_llm.analysis.report.wording import number, percent, seconds

TIME = "time since LoadGen's start (s)"
_STEADY_FROM, _STEADY_TO = 0.1, 0.9  # without ramp and drain
_FEWEST_SECONDS = 10  # for a distribution of the throughput
_TAIL_POINTS = 400
_TOKENS = "Output tokens per second"


@dataclass(frozen=True)
class Metric:
    """A column of replicas.parquet or devices.parquet as a chart; `factor` converts it to `unit`."""

    column: str
    topic: str
    unit: str
    factor: float = 1.0
    high: float | None = None


IN_FLIGHT = Metric("in_flight", "Queries in flight", "queries")
KV_CACHE = Metric("kv_cache_use", "KV cache use", "%", 100)
WAITING = Metric("waiting", "Queries in the engine's queue", "queries")
PREEMPTIONS = Metric("preemptions", "Preemptions", "sequences per second")


def throughput(run: RecordedRun, result: float | None, group: str) -> Chart:
    """Output tokens per second of all replicas, with LoadGen's result."""
    time, per_second, source = _tokens_per_second(run)
    if not len(time):
        return _empty(_TOKENS)
    found = binned(time, per_second, edges(run.end))
    return Chart(
        _TOKENS,
        _steady_title(per_second, result),
        Axis(TIME, low=0, high=run.end),
        Axis("tokens/s", low=0),
        [*_band(found), Series("tokens/s", found.time, found.mean)],
        [Limit(result, f"LoadGen: {number(result)}", outside=True)] if result else [],
        caption=f"{source}; whole seconds, without the first and the last. {_averaged(found.width)}",
        group=group,
        wide=True,
    )


def _tokens_per_second(run: RecordedRun) -> tuple[Floats, Floats, str]:
    """Middles of whole seconds, output tokens in each, and their source."""
    bounds: Floats = np.arange(0.0, run.end + 1, dtype=np.float64)
    counted = [own for own in run.replicas.values() if np.isfinite(own["output_tokens"]).any()]
    if counted:
        source = "Output tokens that the engines report"
        parts = [rate(own["time_s"], own["output_tokens"], bounds) for own in counted]
        first = max(0.0, *(float(own["time_s"].min()) for own in counted))
        last = max(float(own["time_s"].max()) for own in counted)
    elif run.queries:
        source = "Output tokens of completed queries, counted when the answer is complete"
        parts = [rate(run.queries["completion_s"], run.queries["output_tokens"], bounds)]
        first, last = 0.0, run.end
    else:
        return np.array([]), np.array([]), ""
    known = (bounds[:-1] >= first) & (bounds[1:] <= last)
    return ((bounds[:-1] + bounds[1:]) / 2)[known], np.sum(parts, axis=0)[known], source


def _steady_title(per_second: Floats, result: float | None) -> str:
    size = len(per_second)
    if size < _FEWEST_SECONDS:
        return f"{number(result)} tokens/s by LoadGen; too short a run for its variation"
    steady = per_second[int(size * _STEADY_FROM) : max(int(size * _STEADY_TO), 1)]
    low, middle, high = (number(float(np.quantile(steady, share))) for share in (0.05, 0.5, 0.95))
    return f"Median of {middle} tokens/s in the middle 80 % of the run; 90 % of its seconds are within {low} to {high}"


def _averaged(width: float) -> str:
    if width <= 1:
        return "Each value is of one second."
    return f"Lines are means of intervals of {seconds(width)}; the grey area is the lowest and highest second in each."


def _band(found: Binned) -> list[Series]:
    if found.width <= 1:
        return []
    return [Series("lowest to highest", found.time, found.low, Form.BAND, None, found.high)]


def _empty(topic: str) -> Chart:
    return Chart(topic, "", Axis(TIME), Axis(""), [])


def lines(owners: Mapping[str, Columns], metric: Metric, end: float, group: str, noun: str) -> Chart:
    """`metric` over time, a line for each owner: replica or device."""
    bounds = edges(end)
    width = float(bounds[1] - bounds[0]) if len(bounds) > 1 else 1.0
    found = []
    for name, own in owners.items():
        values = own.get(metric.column, np.array([])) * metric.factor
        if len(values) and np.isfinite(values).any():
            raw = width <= 1
            shown = (own["time_s"] >= 0) & (own["time_s"] <= end) & np.isfinite(values)
            result = (own["time_s"][shown], values[shown]) if raw else _means(own["time_s"], values, bounds)
            found.append((name, *result))
    if not found:
        return _empty(metric.topic)
    series = [Series(name, x, y, look=look) for look, (name, x, y) in enumerate(found)]
    all_time = np.concatenate([own["time_s"] for own in owners.values()])
    all_values = np.concatenate([own[metric.column] for own in owners.values()]) * metric.factor
    extremes = binned(all_time, all_values, bounds)
    inside = (all_time >= 0) & (all_time <= end)
    return Chart(
        metric.topic,
        _range_title(metric, {name: y for name, _, y in found}, all_values[inside], noun),
        Axis(TIME, low=0, high=end),
        Axis(metric.unit, low=0, high=metric.high),
        [*_band(extremes), *series],
        caption=_averaged(width),
        group=group,
    )


def _means(time: Floats, values: Floats, bounds: Floats) -> tuple[Floats, Floats]:
    found = binned(time, values, bounds)
    return found.time, found.mean


def _range_title(metric: Metric, means: Mapping[str, Floats], values: Floats, noun: str) -> str:
    known = values[np.isfinite(values)]
    if not len(known):
        return f"No value of {metric.topic.lower()} during the run"
    unit = metric.unit
    if known.max() == known.min():
        return f"Always {number(float(known.max()))} {unit}"
    text = f"{number(float(known.mean()))} {unit} on average, at most {number(float(known.max()))} {unit}"
    averages = {name: float(np.nanmean(y)) for name, y in means.items() if np.isfinite(y).any()}
    if len(averages) < 2:  # noqa: PLR2004
        return text
    low, high = min(averages, key=averages.__getitem__), max(averages, key=averages.__getitem__)
    return f"{text}; {noun} averages from {number(averages[low])} ({low}) to {number(averages[high])} ({high})"


def drain_tail(run: RecordedRun, group: str) -> Chart:
    """Queries that are not complete in the last part of an Offline run, by replica.

    The tail begins when the first replica has no more query.
    """
    if not run.queries:
        return _empty("Drain tail")
    done, last = run.queries["completion_s"], run.end
    ends = _last_completions(run)
    first_idle = min(ends.values(), default=last)
    tail = last - first_idle
    start = max(0.0, last - max(3 * tail, 0.05 * last))
    series = list(_left_by_replica(run, start, last))
    lost = sum(last - end for end in ends.values()) / (len(ends) * last) if ends else 0.0
    title = f"The last {seconds(last - start)}: {int((done > start).sum())} queries to complete"
    if len(ends) > 1:
        slowest = max(ends, key=ends.__getitem__)
        title = (
            f"Replicas wait {percent(lost)} of the run for the slowest, {slowest}: the first has no more query "
            f"{seconds(tail)} before the end"
        )
    return Chart(
        "Drain tail",
        title,
        Axis(TIME, low=start, high=last),
        Axis("queries not complete", low=0),
        series,
        [Limit(first_idle, "first replica idle", "x")] if len(ends) > 1 else [],
        caption="Queries of each replica whose answers are not complete, from queries.parquet.",
        group=group,
        wide=True,
    )


def _last_completions(run: RecordedRun) -> dict[str, float]:
    return {name: float(run.queries["completion_s"][places].max()) for name, places in run.queries_by_replica.items()}


def _left_by_replica(run: RecordedRun, start: float, last: float) -> Iterator[Series]:
    for look, (name, places) in enumerate(run.queries_by_replica.items()):
        ordered = np.sort(run.queries["completion_s"][places])
        time = np.linspace(start, last, _TAIL_POINTS)
        yield Series(
            name,
            time,
            (len(ordered) - np.searchsorted(ordered, time, side="right")).astype(np.float64),
            Form.STEPS,
            look,
        )
