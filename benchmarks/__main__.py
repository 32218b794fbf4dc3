"""Offline tokens/s through LoadGen and the fleet, divided by those of vllm.LLM.generate on the same cores.

    python -m benchmarks --pairs 5 --seconds 30

Both arms get the same engine arguments and prompts, keep their engine warm, and take turns. The table goes to stderr;
the last line on stdout is one JSON document. A median below what is wanted ends with 1.
"""

import argparse
import json
import os
import sys
from collections.abc import Callable, Sequence

from rich.console import Console
from rich.table import Table

from benchmarks.measurement import WANTED, Pair, summary
from benchmarks.session import COMMAND, demo_request, measure_pairs, warm_arms
from harness_llm.devices import hold
from harness_llm.errors import GateFailed, HarnessError
from harness_llm.monitor.panel import Panel
from harness_llm.package.machine import detect

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


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--pairs", type=int, default=5, help="how often both arms run (default %(default)s)")
    parser.add_argument("--seconds", type=float, default=30, help="least length of a run (default %(default)s)")
    return parser.parse_args()


def _table(pairs: Sequence[Pair]) -> Table:
    table = Table(*COLUMNS, caption=LEGEND, caption_justify="left", box=None, pad_edge=False)
    for pair in pairs:
        table.add_row(*(text(pair) for text in COLUMNS.values()))
    return table


def run(pairs: int, seconds: float, console: Console) -> float:
    """Measure and report; returns the median ratio."""
    request = demo_request()
    done: list[Pair] = []
    load_before = os.getloadavg()
    with hold(request.choices.gpu, COMMAND), warm_arms(request, Panel(console)) as (bench, raw):
        for pair in measure_pairs(bench, raw, pairs, seconds):
            done.append(pair)
            console.print(f"pair {len(done)} of {pairs}: ratio {pair.ratio:.3f}")
    report = summary(done)
    ratio = report["ratio"]
    console.print(_table(done))
    console.print(f"ratio: median {ratio['median']:.3f}, {ratio['min']:.3f} to {ratio['max']:.3f}; wanted {WANTED}")
    report |= {"load_average_before": load_before, "machine": detect(), "subject": bench.subject}
    sys.stdout.write(json.dumps(report) + "\n")
    return float(ratio["median"])


def main() -> None:
    """Run the bench; errors are told as the command line tells them."""
    arguments = _arguments()
    try:
        median = run(arguments.pairs, arguments.seconds, Console(stderr=True))
        if median < WANTED:
            raise GateFailed("the harness is slower than it may be", expected=f">= {WANTED}", found=f"{median:.3f}")
    except HarnessError as error:
        sys.stderr.write(f"error: {error}\n")
        sys.exit(error.exit_code)


if __name__ == "__main__":
    main()
