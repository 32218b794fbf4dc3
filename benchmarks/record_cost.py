"""Cost of a run's records, with a replay engine without delay.

The loss of throughput is measured within Offline runs, between neighbouring blocks of time; the shift of p99 TTFT
between pairs of Server runs.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.alternating import BLOCKS
from benchmarks.ceiling import JUDGED_RATE, OFFLINE_QUERIES, REPLICAS
from benchmarks.measurement import interval
from benchmarks.replayed import AT_ONCE, Figures, measure, replay_bench, with_load
from harness_llm.errors import RunFailed
from harness_llm.pipeline.panel import Panel
from harness_llm.pipeline.run import ScenarioContext, execute_run

PAIRS = 10
MAX_LOSS = 0.01
QUERIES = 8 * OFFLINE_QUERIES  # of a run that lasts some ten seconds

Pair = tuple[Figures, Figures]
"""With records and without."""


def run(folder: Path, pairs: int, seconds: float, console: Console) -> dict[str, Any]:
    """Measure `pairs` Offline runs at the maximum rate, and `pairs` pairs of Server runs of `seconds` each."""
    with replay_bench(folder, "Offline", REPLICAS[0], *AT_ONCE) as bench:
        answers = [_answers(bench, console) for _ in range(pairs)]
        losses = [loss for one in answers for loss in losses_of(one)]
    with replay_bench(folder, "Server", REPLICAS[0], *AT_ONCE) as bench:
        server = _pairs(bench, pairs, lambda own: measure(own, JUDGED_RATE, seconds=seconds), console.print)
    return {
        "loss": interval(losses),
        "blocks": len(losses),
        "ttft_p99_shift_ms": interval([_p99(on) - _p99(off) for on, off in server]),
        "ttft_p99_ms": interval([_p99(off) for _, off in server]),
        "max_loss": MAX_LOSS,
        "offline": answers,
        "server": [[asdict(run) for run in pair] for pair in server],
    }


def _answers(bench: ScenarioContext, console: Console) -> list[tuple[int, int]]:
    """Answers of each pair of blocks of one run: with records and without."""
    loaded = with_load(replace(bench, loadgen="benchmarks.alternating"), 1, queries=QUERIES)
    made = execute_run(loaded, "performance", Panel(console))
    if not (made.path / BLOCKS).is_file():
        raise RunFailed("the run did not finish", where=str(made.path), found="; ".join(made.reasons))
    found = [(on, off) for on, off in json.loads((made.path / BLOCKS).read_text())]
    loss = interval(losses_of(found))
    console.print(f"records, Offline, {len(found)} pairs of blocks: loss {loss['low']:.2%} to {loss['high']:.2%}")
    return found


def losses_of(pairs: Sequence[tuple[int, int]]) -> list[float]:
    """Loss of each pair of blocks, relative to the mean of all blocks of the run: single blocks may be empty."""
    mean = sum(map(sum, pairs)) / (2 * len(pairs))
    return [(off - on) / mean for on, off in pairs]


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
        (f"loss of queries/s, Offline, {found['blocks']} pairs of blocks", "loss", ".2%"),
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
