"""Figures of a finished run, from LoadGen's log and the run's records."""

from dataclasses import replace

import numpy as np

from harness_llm.config.rules import BenchmarkRules
from harness_llm.loadgen.logs import DETAIL, parse_detail
from harness_llm.pipeline.tuning.finished_run import FinishedRun, Queries
from harness_llm.pipeline.tuning.search_steps import Goal, Measurement
from harness_llm.runs.record import Run, State
from harness_llm.runs.records import read_records


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
    """Read the queries in the records of `run`."""
    table = read_records(run.path).queries
    names = ("issue_s", "first_token_s", "completion_s", "output_tokens")
    columns = np.array([table[name].to_numpy() for name in names], dtype=np.float64)
    answered = ~np.isnan(columns[2])
    issued, first, completed, tokens = columns[:, answered]
    return Queries(issued, first, completed, tokens, unanswered=columns[0, ~answered])


def measure(run: Run, goal: Goal, rules: BenchmarkRules, target: float, *, full: bool, seconds: float) -> Measurement:
    """Return the measurements of `run`, a Server run at `target` or an Offline or SingleStream run.

    A run that the engine's probe refused has only the predicted throughput. The latencies of a run that was ended early
    are those of its records.
    """
    predicted = run.record.prediction.get("samples_per_second", 0.0) if run.record else 0.0
    valid = run.state is State.VALID
    if run.state not in {State.VALID, State.INVALID}:
        return Measurement(target, full, valid=False, seconds=seconds, failed=True)
    if not (run.path / DETAIL).is_file():
        return Measurement(target, full, valid=False, seconds=seconds, throughput=predicted)
    queries = read_queries(run)
    finished = FinishedRun(queries, *_loadgen_figures(run, queries), target, full, valid)
    if goal.load.scenario == "Server":
        measured = finished.measure_server(goal, _limits(rules, run.run_key.scenario))
    else:
        measured = finished.measure_throughput(one_at_a_time=goal.load.scenario == "SingleStream")
    return replace(measured, seconds=seconds, throughput=measured.throughput or predicted)


def loadgen_ended(run: Run) -> bool:
    """Return whether LoadGen ended the run: the engine's probe did not refuse it, and it was not ended early."""
    return run.record is not None and "duration_s" in run.record.metrics


def _loadgen_figures(run: Run, queries: Queries) -> tuple[dict[str, float], float]:
    """LoadGen's 99th percentiles in ms by name, and the duration; without percentiles if the run was ended early."""
    if not loadgen_ended(run):
        return {}, float(queries.completed.max() - queries.issued[0])
    log = parse_detail(run.path / DETAIL)
    answer = log.latency_percentiles_ms.get(99.0, 0.0)
    return {"ttft": log.p99_ttft_ms or 0.0, "tpot": log.p99_tpot_ms or 0.0, "answer": answer}, log.duration_s


def _limits(rules: BenchmarkRules, scenario: str) -> dict[str, float]:
    """Limits of p99 latencies in ms by name."""
    limits: dict[str, float] = {}
    if limit := rules.latency_ms.get(scenario):
        limits |= {"ttft": limit.ttft, "tpot": limit.tpot}
    if answer := rules.answer_latency_ms.get(scenario):
        limits["answer"] = answer
    return limits
