"""Offline tokens/s through LoadGen and the fleet, divided by those of vllm.LLM.generate on the same cores.

Both arms get the same engine arguments and prompts, keep their engine warm, and take turns.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.measurement import WANTED, Pair, summary
from benchmarks.session import COMMAND, demo_request, measure_pairs, warm_arms
from harness_llm.devices import hold
from harness_llm.monitor.panel import Panel

LEGEND = """two figures: the harness, raw vLLM
per CPU s: the ratio of tokens per CPU second of the engine's process
idle: CPU seconds of the engine whose turn it was not
others: cores that processes of neither arm kept busy
LoadGen: seconds until its process began to load, without a probe; its CPU seconds"""
COLUMNS: dict[str, Callable[[Pair], str]] = {
    "samples": lambda p: f"{p.raw.samples:,}",
    "seconds": lambda p: f"{p.harness.seconds:.1f} {p.raw.seconds:.1f}",
    "tokens/s": lambda p: f"{p.harness.tokens_per_second:,.0f} {p.raw.tokens_per_second:,.0f}",
    "ratio": lambda p: f"{p.ratio:.3f}",
    "per CPU s": lambda p: f"{p.cpu_ratio:.3f}",
    "idle": lambda p: f"{p.harness.idle_cpu_s:.1f} {p.raw.idle_cpu_s:.1f}",
    "others": lambda p: f"{max(p.harness.others_cores, 0):.2f} {max(p.raw.others_cores, 0):.2f}",
    "LoadGen": lambda p: f"{p.harness.loadgen_start_s:.1f} {p.harness.loadgen_cpu_s:.1f}",
}


def _table(pairs: Sequence[Pair]) -> Table:
    table = Table(*COLUMNS, caption=LEGEND, caption_justify="left", box=None, pad_edge=False)
    for pair in pairs:
        table.add_row(*(text(pair) for text in COLUMNS.values()))
    return table


def run(pairs: int, seconds: float, console: Console) -> dict[str, Any]:
    """Measure `pairs` pairs, each arm for `seconds` or a little more."""
    request = demo_request()
    done: list[Pair] = []
    load_before = os.getloadavg()
    with hold(request.choices.gpu, COMMAND), warm_arms(request, Panel(console)) as (bench, raw):
        for pair in measure_pairs(bench, raw, pairs, seconds):
            done.append(pair)
            console.print(f"offline, pair {len(done)} of {pairs}: ratio {pair.ratio:.3f}")
    console.print(_table(done))
    return summary(done) | {"load_average_before": load_before, "subject": bench.subject}


def table(found: Mapping[str, Any]) -> Table:
    """The ratios over all pairs."""
    shown = Table("harness / raw vLLM", "median", "95 % interval", "wanted", box=None)
    for name in ("ratio", "cpu_ratio"):
        own = found[name]
        shown.add_row(name, f"{own['median']:.3f}", f"{own['low']:.3f} to {own['high']:.3f}", f"{WANTED}")
    return shown


def misses(found: Mapping[str, Any]) -> list[str]:
    """What is not as wanted."""
    median = found["ratio"]["median"]
    return [] if median >= WANTED else [f"Offline: {median:.3f} of raw vLLM, wanted {WANTED}"]
