"""Measurements of a finished run for the search: latencies as a run of full length would have them. Pure."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from harness_llm.loadgen.early_stopping import required_quantile
from harness_llm.pipeline.tuning.search_steps import Goal, Latency, Measurement

# Errors of neighbouring queries are correlated: their quantile varies more than that of independent ones.
_CORRELATION = 1.5
# Smallest standard deviation of the logarithm of a latency: machines vary between runs.
_PROBE_SD, _FULL_SD = 0.02, 0.01
_P99 = 0.99
# Blocks of time whose medians show growth; t statistic and relative growth that count as growth.
_BLOCKS = 10
_GROWTH_T = 4.0
_GROWTH = 0.1
# Growth of the queries in flight that counts, in standard deviations of a Poisson process.
_IN_FLIGHT_SIGMAS = 3.0
_SMALLEST_MS = 1e-3
_FEWEST = 50  # queries after the start of a run

Values = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Queries:
    """Times of the answered queries of a run in seconds, in order of issue; `first` is NaN without token latencies.

    Attributes:
        unanswered: times at which the other queries were issued.
    """

    issued: Values
    first: Values
    completed: Values
    tokens: Values
    unanswered: Values = field(default_factory=lambda: np.empty(0))

    @property
    def service_s(self) -> float:
        """Mean time of an answer without its time in a queue: the first queries do not wait."""
        if np.isnan(self.first).any():
            return float(np.median(self.completed - self.issued))
        return float(np.mean(self.completed - self.first) + np.median((self.first - self.issued)[:_FEWEST]))

    def latencies_ms(self, name: str) -> Values:
        """The latency of each query: `ttft`, `tpot` or `answer`."""
        seconds: Values = self.completed - self.issued
        if name == "ttft":
            seconds = self.first - self.issued
        elif name == "tpot":
            seconds = (self.completed - self.first) / np.maximum(self.tokens - 1, 1)
        return 1000 * seconds


@dataclass(frozen=True)
class FinishedRun:
    """A run that has ended; by LoadGen, or by `SaturatedProbe`.

    Attributes:
        p99_ms: LoadGen's 99th percentile of each latency, by name; empty if LoadGen did not end the run.
        duration_s: from the first query to the last answer.
        target: queries per second, or in SingleStream 1 / target_latency.
        full: whether it has the length of a run of a submission.
        valid: LoadGen's verdict.
    """

    queries: Queries
    p99_ms: Mapping[str, float]
    duration_s: float
    target: float
    full: bool
    valid: bool

    def measure_server(self, goal: Goal, limits_ms: Mapping[str, float]) -> Measurement:
        """Return the latencies with limits, and the throughput if the system was saturated."""
        latencies = tuple(self._latencies(goal, limits_ms))
        saturated = any(latency.at_least for latency in latencies) or (self.full and not self.valid)
        inside = all(latency.ratio < 1 and not latency.at_least for latency in latencies)
        return self._measurement(
            valid=self.valid if self.full else inside,
            latencies=latencies,
            throughput=_steady_rate(self.queries) if saturated else 0.0,
        )

    def measure_throughput(self, *, one_at_a_time: bool) -> Measurement:
        """Return the throughput of an Offline or SingleStream run."""
        rate = _rate(self.queries) if one_at_a_time else _steady_rate(self.queries)
        return self._measurement(valid=self.valid, latencies=(), throughput=rate)

    def _measurement(self, *, valid: bool, latencies: tuple[Latency, ...], throughput: float) -> Measurement:
        return Measurement(
            self.target,
            self.full,
            valid,
            seconds=self.duration_s,
            latencies=latencies,
            completion_s=self.queries.service_s,
            throughput=throughput,
            duration_s=self.duration_s,
        )

    def _latencies(self, goal: Goal, limits_ms: Mapping[str, float]) -> Iterator[Latency]:
        """Yield the latencies with limits, as a run of full length would have them."""
        quantile = required_quantile(goal.full_queries(self.target))
        steady = np.ones(len(self.queries.issued), dtype=bool) if self.full else _steady(self.queries)
        for name, limit in limits_ms.items():
            values = self.queries.latencies_ms(name)
            # LoadGen's latencies begin when a query is due; the records begin when LoadGen calls the SUT.
            values = values + max(self.p99_ms.get(name, 0.0) - float(np.quantile(values, _P99)), 0.0)
            value, sd = _quantile(values[steady], quantile)
            later, grows = self._later(name, value, _growth(self.queries.issued[steady], values[steady]), goal)
            sd = math.hypot(max(sd, _FULL_SD if self.full else _PROBE_SD), math.log(later / value) / 2)
            yield Latency(later / limit, sd, grows and later > limit)

    def _later(self, name: str, value: float, growth_per_s: float, goal: Goal) -> tuple[float, bool]:
        """A latency in ms at the end of a run of full length, and whether it rises until then."""
        if self.full:
            return value, growth_per_s > 0
        seats = goal.seats or math.inf
        before, now, later = _in_flight(self.queries, goal.full_s(self.target, self.target))
        if name == "tpot":  # proportional to the batch at most, which the seats bound
            return value * max(min(later, seats) / max(min(before, seats), 1), 1), False
        waits_ms = 1000 * max(later - max(seats, now), 0) / self.target
        longer_s = max(goal.full_s(self.target, self.target) - self.duration_s, 0.0)
        return value + max(growth_per_s * longer_s, waits_ms), growth_per_s > 0 or waits_ms > 0


def _in_flight(queries: Queries, full_s: float) -> tuple[float, float, float]:
    """Return the queries in flight at 2/3 and at the end of the arrivals, and after `full_s` of arrivals.

    While a batch fills, the growth of each third of the time is a constant share of that before (exponential approach);
    when the system is overloaded, the share is one.
    """
    issued, done = np.sort(np.append(queries.issued, queries.unanswered)), np.sort(queries.completed)
    span = float(issued[-1] - issued[0])
    times = issued[0] + span * np.array([1, 2, 3]) / 3
    first, before, now = (np.searchsorted(issued, times) - np.searchsorted(done, times)).tolist()
    growth, earlier = now - before, before - first
    if growth < _IN_FLIGHT_SIGMAS * math.sqrt(2 * now):
        return before, now, now
    share = min(growth / earlier, 1.0) if earlier > 0 else 1.0
    thirds = max(3 * (full_s / span - 1), 0.0)
    sums = thirds if share == 1 else share * (1 - share**thirds) / (1 - share)
    return before, now, now + growth * sums


def _steady(queries: Queries) -> npt.NDArray[np.bool_]:
    """Select queries issued while the batch is full: not in the first mean completion time, nor in the last."""
    begin, end = queries.issued[0] + queries.service_s, queries.issued[-1] - queries.service_s
    inside = (queries.issued >= begin) & (queries.issued <= end)
    return inside if inside.sum() >= _FEWEST else np.ones(len(queries.issued), dtype=bool)


def _quantile(values: Values, quantile: float) -> tuple[float, float]:
    """Return the quantile, and the standard deviation of its logarithm by order statistics."""
    over = (1 - quantile) * len(values)
    spread = math.sqrt(over + 1)
    shares = [1 - min(max(rank, 0.5), len(values)) / len(values) for rank in (over + spread, over, over - spread)]
    low, value, high = np.maximum(np.quantile(values, shares), _SMALLEST_MS)
    return float(value), _CORRELATION * math.log(high / low) / 2


def _growth(issued: Values, values: Values) -> float:
    """Return the growth per second of the medians of blocks of time; 0 if it is within noise."""
    blocks = [np.median(block) for block in np.array_split(values, _BLOCKS)]
    times = [np.mean(block) for block in np.array_split(issued, _BLOCKS)]
    slope, offset = np.polyfit(times, blocks, 1)
    rest = np.asarray(blocks) - (slope * np.asarray(times) + offset)
    error = math.sqrt(float((rest**2).sum()) / (_BLOCKS - 2) / float(((times - np.mean(times)) ** 2).sum()))
    rises = slope * (times[-1] - times[0]) > _GROWTH * abs(float(np.median(values)))
    return float(slope) if rises and slope > _GROWTH_T * error else 0.0


def _rate(queries: Queries) -> float:
    """Return completions per second of the whole run."""
    return float(len(queries.completed) / (queries.completed.max() - queries.issued[0]))


def _steady_rate(queries: Queries) -> float:
    """Return completions per second, without the time in which the batch fills or empties."""
    done = np.sort(queries.completed)
    begin, end = queries.issued[0] + queries.service_s, done[int(0.85 * (len(done) - 1))]
    inside = done[(done >= begin) & (done <= end)]
    if len(inside) < _FEWEST:
        return _rate(queries)
    return float((len(inside) - 1) / (inside[-1] - inside[0]))
