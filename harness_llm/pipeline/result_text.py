"""The result of a run as lines: state and main figures, causes, reasons and notes. Pure."""

from collections.abc import Iterator, Mapping, Sequence

from harness_llm.analysis.report.wording import number
from harness_llm.config.rules.rounds import LatencyLimit
from harness_llm.runs.record import Run

_RATES = {"tokens_per_second": "tokens/s", "samples_per_second": "samples/s"}


def result_lines(
    run: Run, limit: LatencyLimit | None, scores: Sequence[str], causes: str, *, verbose: bool
) -> Iterator[str]:
    """Return the lines that are printed at the end of a run.

    Args:
        limit: of the p99 latencies; None without.
        scores: metrics of an accuracy run that have gates.
        causes: lines of the diagnosis; a reason in them is not repeated.
        verbose: whether all metrics are shown.
    """
    metrics = run.record.metrics if run.record else {}
    shown = [*_rates(metrics), *_latencies(metrics, limit), *_scores(metrics, scores)]
    yield ", ".join([f"{run.run_key.scenario} {run.run_key.test}: {run.state}", *shown])
    if verbose and metrics:
        yield f"  {', '.join(f'{name} {value:,.2f}' for name, value in metrics.items())}"
    if causes:
        yield causes
    yield from (f"  {text}" for text in (*run.reasons, *run.notes) if text not in causes)


def _rates(metrics: Mapping[str, float]) -> Iterator[str]:
    yield from (f"{number(metrics[name])} {unit}" for name, unit in _RATES.items() if name in metrics)


def _latencies(metrics: Mapping[str, float], limit: LatencyLimit | None) -> Iterator[str]:
    for name, bound in (("ttft", limit and limit.ttft), ("tpot", limit and limit.tpot)):
        value = metrics.get(f"p99_{name}_ms")
        if value is not None:
            yield f"p99 {name.upper()} {number(value)} ms" + (f" (limit {number(bound)})" if bound else "")


def _scores(metrics: Mapping[str, float], scores: Sequence[str]) -> Iterator[str]:
    yield from (f"{name} {metrics[name]:,.2f}" for name in scores if name in metrics)
