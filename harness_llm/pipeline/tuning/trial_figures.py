"""Measurements of a finished run for the search, from LoadGen's log and the run's records."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from harness_llm.config.rules import BenchmarkRules
from harness_llm.loadgen.early_stopping import required_quantile
from harness_llm.loadgen.logs import DETAIL, DetailLog, parse_detail
from harness_llm.pipeline.tuning.search_steps import Goal, Latency, Measurement
from harness_llm.runs.record import Run, State
from harness_llm.runs.records import read_records

# Errors of neighbouring queries are correlated: their quantile varies more than that of independent ones.
_CORRELATION = 1.5
# Smallest standard deviation of the logarithm of a latency: machines vary between runs.
_PROBE_SD, _FULL_SD = 0.02, 0.01
_P99 = 0.99
# Blocks of time whose medians show growth; t statistic and relative growth that count as growth.
_BLOCKS = 10
_GROWTH_T = 4.0
_GROWTH = 0.1
_FEWEST = 50  # queries after the start of a run

Values = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Queries:
    """Times of the queries of a run in seconds; `first` is NaN without token latencies."""

    issued: Values
    first: Values
    completed: Values
    tokens: Values

    @property
    def service_s(self) -> float:
        """Mean time of an answer after the shortest tenth of the waiting times."""
        if np.isnan(self.first).any():
            return float(np.median(self.completed - self.issued))
        return float(np.mean(self.completed - self.first) + np.quantile(self.first - self.issued, 0.1))


def margins(run: Run | None, rules: BenchmarkRules, scenario: str) -> tuple[float | None, float | None]:
    """Return the margins of `run` to the limits of TTFT and TPOT: 1 - p99 / limit, by LoadGen; None without either."""
    figures = run.record.metrics if run and run.record else {}
    limit = rules.latency_ms.get(scenario)
    if not limit:
        return None, None
    shares = [(figures.get("p99_ttft_ms"), limit.ttft), (figures.get("p99_tpot_ms"), limit.tpot)]
    ttft, tpot = (None if latency is None else 1 - latency / bound for latency, bound in shares)
    return ttft, tpot


def read_queries(run: Run) -> Queries:
    """Read the completed queries in the records of `run`, in order of issue."""
    table = read_records(run.path).queries
    names = ("issue_s", "first_token_s", "completion_s", "output_tokens")
    columns = np.array([table[name].to_numpy() for name in names], dtype=np.float64)
    return Queries(*columns[:, ~np.isnan(columns[2])])


def measure(run: Run, goal: Goal, rules: BenchmarkRules, target: float, *, full: bool, seconds: float) -> Measurement:
    """Return the measurements of `run`, a Server run at `target` or an Offline or SingleStream run.

    A run that the engine's probe refused has only the predicted throughput.
    """
    predicted = run.record.prediction.get("samples_per_second", 0.0) if run.record else 0.0
    valid = run.state is State.VALID
    if run.state not in {State.VALID, State.INVALID}:
        return Measurement(target, full, valid=False, seconds=seconds, failed=True)
    if not (run.path / DETAIL).is_file():
        return Measurement(target, full, valid=False, seconds=seconds, throughput=predicted)
    log, queries = parse_detail(run.path / DETAIL), read_queries(run)
    measured = Measurement(
        target, full, valid=valid, seconds=seconds, completion_s=queries.service_s, duration_s=log.duration_s
    )
    if goal.load.scenario != "Server":
        return replace(measured, throughput=_steady_rate(queries, goal))
    latencies = tuple(_latencies(log, queries, goal, _limits(rules, run.run_key.scenario), target, full=full))
    saturated = any(latency.at_least for latency in latencies) or (full and not valid)
    throughput = _steady_rate(queries, goal) if saturated else predicted
    inside = all(latency.ratio < 1 and not latency.at_least for latency in latencies)
    return replace(measured, valid=valid if full else inside, latencies=latencies, throughput=throughput)


def _limits(rules: BenchmarkRules, scenario: str) -> dict[str, float]:
    """Limits of p99 latencies in ms by name."""
    limits: dict[str, float] = {}
    if limit := rules.latency_ms.get(scenario):
        limits |= {"ttft": limit.ttft, "tpot": limit.tpot}
    if answer := rules.answer_latency_ms.get(scenario):
        limits["answer"] = answer
    return limits


def _latencies(
    log: DetailLog, queries: Queries, goal: Goal, limits: Mapping[str, float], target: float, *, full: bool
) -> Iterator[Latency]:
    """Yield the latencies with limits, as a run of full length would have them."""
    quantile = required_quantile(goal.full_queries(target))
    longer_s = max(goal.full_s(target, target) - log.duration_s, 0.0)
    steady = np.ones(len(queries.issued), dtype=bool) if full else _steady(queries)
    for name, limit in limits.items():
        values, by_loadgen = _values(name, queries, log)
        # LoadGen's latencies begin when a query is due; the records begin when LoadGen calls the SUT.
        values = values + max(by_loadgen - float(np.quantile(values, _P99)), 0.0)
        value, sd = _quantile(values[steady], quantile)
        growth_per_s = 0.0 if full else _growth(queries.issued[steady], values[steady])
        if name != "tpot":  # which the batch bounds
            value += growth_per_s * longer_s
        grows = growth_per_s > 0 and (value > limit or name == "tpot")
        yield Latency(max(value, 1e-6) / limit, max(sd, _FULL_SD if full else _PROBE_SD), grows)


def _values(name: str, queries: Queries, log: DetailLog) -> tuple[Values, float]:
    """The latency of each query in ms, and LoadGen's p99."""
    if name == "ttft":
        return 1000 * (queries.first - queries.issued), log.p99_ttft_ms or 0.0
    if name == "tpot":
        return 1000 * (queries.completed - queries.first) / np.maximum(queries.tokens - 1, 1), log.p99_tpot_ms or 0.0
    return 1000 * (queries.completed - queries.issued), log.latency_percentiles_ms.get(99.0, 0.0)


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
    low, value, high = np.maximum(np.quantile(values, shares), 1e-6)
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


def _steady_rate(queries: Queries, goal: Goal) -> float:
    """Return completions per second, without the time in which the batch fills or empties."""
    done = np.sort(queries.completed)
    if goal.load.scenario == "SingleStream":
        return float(len(done) / (done[-1] - queries.issued[0]))
    begin, end = queries.issued[0] + queries.service_s, done[int(0.85 * (len(done) - 1))]
    inside = done[(done >= begin) & (done <= end)]
    if len(inside) < _FEWEST:
        return float(len(done) / (done[-1] - queries.issued[0]))
    return float((len(inside) - 1) / (inside[-1] - inside[0]))
