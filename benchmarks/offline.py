"""Offline tokens/s of LoadGen with the replica pool, divided by those of vllm.LLM.generate on the same cores.

Both arms have the same engine arguments and prompts, keep their engines warm, and alternate. `python -m benchmarks
offline` measures the demo; another model, for example on an accelerator, is measured with

    python -m benchmarks.offline --model llama3.1-8b --stand-in --random-weights
"""

import argparse
import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.measurement import Pair, summary
from benchmarks.session import COMMAND, DEMO, demo_request, measure_pairs, warm_arms
from harness_llm.config.request import Request
from harness_llm.errors import HarnessError
from harness_llm.hardware.device_lock import hold
from harness_llm.pipeline.panel import Panel

LLAMA_8B = {
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "vocab_size": 128256,
}
TARGET = 0.98
LEGEND = """two figures: harness, raw vLLM
per CPU s: ratio of tokens per CPU second of the engine's process
idle: CPU seconds of the other arm's engine
others: cores used by other processes
LoadGen: seconds from the start of its process to the first query, without a probe; its CPU seconds"""
COLUMNS: dict[str, Callable[[Pair], str]] = {
    "samples": lambda p: f"{p.reference.samples:,}",
    "seconds": lambda p: f"{p.harness.seconds:.1f} {p.reference.seconds:.1f}",
    "tokens/s": lambda p: f"{p.harness.tokens_per_second:,.0f} {p.reference.tokens_per_second:,.0f}",
    "ratio": lambda p: f"{p.ratio:.3f}",
    "per CPU s": lambda p: f"{p.cpu_ratio:.3f}",
    "idle": lambda p: f"{p.harness.idle_cpu_s:.1f} {p.reference.idle_cpu_s:.1f}",
    "others": lambda p: f"{max(p.harness.others_cores, 0):.2f} {max(p.reference.others_cores, 0):.2f}",
    "LoadGen": lambda p: f"{p.harness.loadgen_start_s:.1f} {p.harness.loadgen_cpu_s:.1f}",
}


def _table(pairs: Sequence[Pair]) -> Table:
    table = Table(*COLUMNS, caption=LEGEND, caption_justify="left", box=None, pad_edge=False)
    for pair in pairs:
        table.add_row(*(text(pair) for text in COLUMNS.values()))
    return table


def run(pairs: int, seconds: float, console: Console, request: Request | None = None) -> dict[str, Any]:
    """Measure `pairs` pairs of about `seconds` per arm; of the demo unless `request` is given."""
    request = request or demo_request()
    done: list[Pair] = []
    load_before = os.getloadavg()
    with hold(request.options.gpu, COMMAND), warm_arms(request, Panel(console)) as (bench, raw):
        for pair in measure_pairs(bench, raw, pairs, seconds):
            done.append(pair)
            console.print(f"offline, pair {len(done)} of {pairs}: ratio {pair.ratio:.3f}")
    console.print(_table(done))
    return summary(done) | {"target": TARGET, "load_average_before": load_before, "fingerprint": bench.fingerprint}


def table(found: Mapping[str, Any]) -> Table:
    """Show the ratios over all pairs."""
    shown = Table("harness / raw vLLM", "median", "95 % interval", "target", box=None)
    for name in ("ratio", "cpu_ratio"):
        own = found[name]
        shown.add_row(name, f"{own['median']:.3f}", f"{own['low']:.3f} to {own['high']:.3f}", f"{TARGET}")
    return shown


def misses(found: Mapping[str, Any]) -> list[str]:
    """Return the figures that miss their targets."""
    median = found["ratio"]["median"]
    return [] if median >= TARGET else [f"Offline: {median:.3f} of raw vLLM, target {TARGET}"]


def _random(request: Request) -> Request:
    """Return the request with random weights of LLAMA_8B's shape: speed does not depend on the weights."""
    [plan] = request.scenarios
    llm_config = {**plan.config.llm_config, "load_format": "dummy", "hf_overrides": LLAMA_8B}
    return replace(
        request, scenarios=(replace(plan, config=plan.config.model_copy(update={"llm_config": llm_config})),)
    )


def _arguments() -> argparse.Namespace:
    about, *_ = (__doc__ or "").partition("\n")
    parser = argparse.ArgumentParser(prog="python -m benchmarks.offline", description=about)
    parser.add_argument("--model", help="benchmark (default demo)")
    parser.add_argument("--gpu", help="GPU configuration (default cpu)")
    parser.add_argument("--stand-in", action="store_true", help="use a small model trained on this machine")
    parser.add_argument("--random-weights", action="store_true", help="use random weights of the shape of Llama 3.1 8B")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="override of the configuration")
    parser.add_argument("--repeats", type=int, default=10, help="number of pairs (default %(default)s)")
    parser.add_argument("--seconds", type=float, default=60, help="duration per arm (default %(default)s)")
    return parser.parse_args()


def main() -> None:
    """Measure the selected model; exit code as of the other benchmarks."""
    given = _arguments()
    options = replace(DEMO, model=given.model or DEMO.model, gpu=given.gpu or "", stand_in=given.stand_in)
    console = Console(stderr=True)
    try:
        request = demo_request(options=options, sets=given.set)
        request = _random(request) if given.random_weights else request
        found = run(given.repeats, given.seconds, console, request)
    except HarnessError as error:
        sys.stderr.write(f"error: {error}\n")
        sys.exit(error.exit_code)
    console.print(table(found))
    sys.stdout.write(json.dumps(found) + "\n")
    sys.exit(bool(misses(found)))


if __name__ == "__main__":
    main()
