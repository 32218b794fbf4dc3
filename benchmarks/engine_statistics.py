"""Cost of the engine's statistics, which every run records: the demo in Offline with and without them, pair by pair.

Both arms are the harness with a warm replica pool on the same cores; only `disable_log_stats` differs.
"""

import datetime as dt
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.arms import measure_harness
from benchmarks.measurement import Pair, summary
from benchmarks.session import COMMAND, demo_bench, demo_request
from harness_llm.config.load import issued
from harness_llm.config.request import Request
from harness_llm.hardware.device_lock import hold
from harness_llm.pipeline.panel import Panel
from harness_llm.pipeline.run import ScenarioContext


def run(pairs: int, seconds: float, console: Console) -> dict[str, Any]:
    """Measure `pairs` pairs of about `seconds` per run, after one that is discarded and measures the rate."""
    request, done = demo_request(), list[Pair]()
    panel = Panel(console)
    with (
        hold(request.options.gpu, COMMAND),
        demo_bench(request, panel) as on,
        demo_bench(_without_statistics(request), panel) as off,
    ):
        pair = _measure(on, off, request.samples("performance"), on_first=True)
        for number in range(pairs):
            rate = pair.harness.samples / min(pair.harness.seconds, pair.reference.seconds)
            load = replace(on.plan.load, min_duration_s=seconds, target_qps=rate)
            pair = _measure(on, off, issued(load, "performance"), on_first=number % 2 == 0)
            done.append(pair)
            console.print(f"statistics, pair {len(done)} of {pairs}: ratio {pair.ratio:.3f}")
    return summary(done)


def _without_statistics(request: Request) -> Request:
    [plan] = request.scenarios
    llm_config = {**plan.config.llm_config, "disable_log_stats": True}
    plan = replace(plan, config=plan.config.model_copy(update={"llm_config": llm_config}))
    # The logs of each pool have their own folder, by time.
    return replace(request, scenarios=(plan,), started=request.started + dt.timedelta(seconds=1))


def _measure(on: ScenarioContext, off: ScenarioContext, samples: int, *, on_first: bool) -> Pair:
    [with_statistics], [without] = on.pool.replicas, off.pool.replicas
    if on_first:
        first = measure_harness(on, samples, without)
        return Pair(first, measure_harness(off, samples, with_statistics))
    first = measure_harness(off, samples, with_statistics)
    return Pair(measure_harness(on, samples, without), first)


def table(found: Mapping[str, Any]) -> Table:
    """The ratios over all pairs."""
    shown = Table("with / without statistics", "median", "95 % interval", box=None)
    for name, label in (("ratio", "tokens/s"), ("cpu_ratio", "tokens per CPU second of the engine")):
        own = found[name]
        shown.add_row(label, f"{own['median']:.3f}", f"{own['low']:.3f} to {own['high']:.3f}")
    return shown
