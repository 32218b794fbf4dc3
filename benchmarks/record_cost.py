"""Cost of a run's records: pairs of runs with and without them, with a replay engine without delay."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from rich.table import Table

from benchmarks.ceiling import JUDGED_RATE, OFFLINE_QUERIES, REPLICAS
from benchmarks.measurement import interval
from benchmarks.replayed import AT_ONCE, Figures, measure, replay_bench
from harness_llm.pipeline.run import ScenarioContext

PAIRS = 10
MAX_LOSS = 0.01
QUERIES = 4 * OFFLINE_QUERIES  # equal runs of OFFLINE_QUERIES, a second long, differ by 8 %

Pair = tuple[Figures, Figures]
"""With records and without."""


def run(folder: Path, pairs: int, seconds: float, report: Callable[[str], None]) -> dict[str, Any]:
    """Measure `pairs` pairs: Offline at the maximum rate, and Server for `seconds` each."""
    with replay_bench(folder, "Offline", REPLICAS[0], *AT_ONCE) as bench:
        offline = _pairs(bench, pairs, lambda own: measure(own, 1, queries=QUERIES), report)
    with replay_bench(folder, "Server", REPLICAS[0], *AT_ONCE) as bench:
        server = _pairs(bench, pairs, lambda own: measure(own, JUDGED_RATE, seconds=seconds), report)
    return {
        "loss": interval([1 - on.queries_per_s / off.queries_per_s for on, off in offline]),
        "ttft_p99_shift_ms": interval([_p99(on) - _p99(off) for on, off in server]),
        "ttft_p99_ms": interval([_p99(off) for _, off in server]),
        "max_loss": MAX_LOSS,
        "offline": [[asdict(run) for run in pair] for pair in offline],
        "server": [[asdict(run) for run in pair] for pair in server],
    }


def _pairs(
    bench: ScenarioContext, count: int, measured: Callable[[ScenarioContext], Figures], report: Callable[[str], None]
) -> list[Pair]:
    """Measure pairs in alternating order, after a pair that is discarded."""
    found = []
    for index in range(count + 1):
        order = (True, False) if index % 2 else (False, True)
        arms = {records: measured(replace(bench, records=records)) for records in order}
        found.append((arms[True], arms[False]))
        on, off = found[-1]
        what = "discarded" if not index else f"{index} of {count}"
        rates = f"{on.queries_per_s:,.1f} with, {off.queries_per_s:,.1f} without"
        report(f"records, {bench.plan.scenario}, pair {what}: {rates}")
    return found[1:]


def _p99(figures: Figures) -> float:
    return figures.ttft_ms[1] if figures.ttft_ms else 0.0


def table(found: Mapping[str, Any]) -> Table:
    """Show both differences with their intervals."""
    shown = Table("figure", "median", "95 % interval", box=None)
    rows: Sequence[tuple[str, str, str]] = (
        ("loss of queries/s, Offline", "loss", ".2%"),
        (f"p99 TTFT shift at {JUDGED_RATE:g} queries/s, ms", "ttft_p99_shift_ms", ".3f"),
        ("p99 TTFT without records, ms", "ttft_p99_ms", ".3f"),
    )
    for title, name, form in rows:
        own = found[name]
        shown.add_row(title, format(own["median"], form), f"{own['low']:{form}} to {own['high']:{form}}")
    return shown


def misses(found: Mapping[str, Any]) -> list[str]:
    """Return the loss if its upper bound is too high."""
    high = found["loss"]["high"]
    return [f"records: loss of up to {high:.2%}, target below {MAX_LOSS:.0%}"] if high >= MAX_LOSS else []
