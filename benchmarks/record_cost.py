"""Cost of a run's records, with a replay engine without delay.

Measures the time of the calls that record, in Offline runs at the maximum rate (timed_records.py), and the shift of p99
TTFT, in pairs of Server runs.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.ceiling import JUDGED_RATE, OFFLINE_QUERIES, REPLICAS
from benchmarks.measurement import interval
from benchmarks.replayed import AT_ONCE, Figures, measure, replay_bench, with_load
from benchmarks.timed_records import TIMES, RecordTimes
from harness_llm.errors import RunFailed
from harness_llm.pipeline.panel import Panel
from harness_llm.pipeline.run import ScenarioContext, execute_run

PAIRS = 10
MAX_ADDED = 0.01
QUERIES = 4 * OFFLINE_QUERIES  # of a run that lasts some five seconds

Pair = tuple[Figures, Figures]
"""With records and without."""


def run(folder: Path, pairs: int, seconds: float, console: Console) -> dict[str, Any]:
    """Measure `pairs` Offline runs at the maximum rate, and `pairs` pairs of Server runs of `seconds` each."""
    with replay_bench(folder, "Offline", REPLICAS[0], *AT_ONCE) as bench:
        times = [_times(bench, console) for _ in range(pairs)]
    with replay_bench(folder, "Server", REPLICAS[0], *AT_ONCE) as bench:
        server = _pairs(bench, pairs, lambda own: measure(own, JUDGED_RATE, seconds=seconds), console.print)
    return {
        "added": interval([one.share for one in times]),
        "answer_ns": interval([1e9 * one.recording_s / one.answers for one in times]),
        "ttft_p99_shift_ms": interval([_p99(on) - _p99(off) for on, off in server]),
        "ttft_p99_ms": interval([_p99(off) for _, off in server]),
        "max_added": MAX_ADDED,
        "offline": [asdict(one) for one in times],
        "server": [[asdict(run) for run in pair] for pair in server],
    }


def _times(bench: ScenarioContext, console: Console) -> RecordTimes:
    """The times of one Offline run."""
    loaded = with_load(replace(bench, loadgen="benchmarks.timed_records"), 1, queries=QUERIES)
    made = execute_run(loaded, "performance", Panel(console))
    if not (made.path / TIMES).is_file():
        raise RunFailed("the run did not finish", where=str(made.path), found="; ".join(made.reasons))
    found = RecordTimes(**json.loads((made.path / TIMES).read_text()))
    console.print(f"records, Offline: {found.share:.3%} of the SUT's thread, {found.thread_cpu_s:.1f} s of CPU time")
    return found


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
        report(f"records, Server, pair {what}: p99 TTFT {_p99(on):.2f} ms with, {_p99(off):.2f} ms without")
    return found[1:]


def _p99(figures: Figures) -> float:
    return figures.ttft_ms[1] if figures.ttft_ms else 0.0


def table(found: Mapping[str, Any]) -> Table:
    """Show both differences with their intervals."""
    shown = Table("figure", "median", "95 % interval", box=None)
    rows: Sequence[tuple[str, str, str]] = (
        ("time that records add to the SUT's thread, Offline", "added", ".3%"),
        ("per query, ns", "answer_ns", ".1f"),
        (f"p99 TTFT shift at {JUDGED_RATE:g} queries/s, ms", "ttft_p99_shift_ms", ".3f"),
        ("p99 TTFT without records, ms", "ttft_p99_ms", ".3f"),
    )
    for title, name, form in rows:
        own = found[name]
        shown.add_row(title, format(own["median"], form), f"{own['low']:{form}} to {own['high']:{form}}")
    return shown


def misses(found: Mapping[str, Any]) -> list[str]:
    """Return the added time if its upper bound is too high."""
    high = found["added"]["high"]
    return [f"records: up to {high:.2%} of the SUT's thread, target below {MAX_ADDED:.0%}"] if high >= MAX_ADDED else []
