"""Two replicas of the demo on separate cores against one: Offline tokens/s of the harness, alternating."""

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.measurement import interval
from benchmarks.replayed import measure
from benchmarks.session import COMMAND, demo_bench, demo_request
from harness_llm.config.load import OFFLINE_SLACK
from harness_llm.hardware.device_lock import hold
from harness_llm.pipeline.panel import Panel

REPLICAS = (1, 2)


def run(repeats: int, seconds: float, console: Console) -> dict[str, Any]:
    """Make `repeats` runs of about `seconds` on each replica pool; both stay warm."""
    rates: dict[int, list[float]] = {replicas: [] for replicas in REPLICAS}
    requests = [demo_request(replicas=replicas) for replicas in REPLICAS]
    panel = Panel(console)
    with hold("cpu", COMMAND), demo_bench(requests[0], panel) as one, demo_bench(requests[1], panel) as two:
        benches = dict(zip(REPLICAS, (one, two), strict=True))
        speeds = {replicas: measure(bench, 1).queries_per_s for replicas, bench in benches.items()}
        for number in range(repeats):
            for replicas in REPLICAS[:: 1 if number % 2 else -1]:
                load = speeds[replicas] / OFFLINE_SLACK
                rates[replicas].append(measure(benches[replicas], load, seconds=seconds).tokens_per_s)
            console.print(f"pinned, {number + 1} of {repeats}: {rates[2][-1]:,.0f} and {rates[1][-1]:,.0f} tokens/s")
    ratios = [both / alone for alone, both in zip(rates[1], rates[2], strict=True)]
    return {"ratio": interval(ratios), "tokens_per_s": rates}


def table(found: Mapping[str, Any]) -> Table:
    """Show the medians."""
    ratio, rates = found["ratio"], found["tokens_per_s"]
    shown = Table("replicas", "tokens/s", "ratio", "95 % interval", box=None)
    shown.add_row("1", f"{interval(rates[1])['median']:,.0f}")
    interval_text = f"{ratio['low']:.2f} to {ratio['high']:.2f}"
    shown.add_row("2", f"{interval(rates[2])['median']:,.0f}", f"{ratio['median']:.2f}", interval_text)
    return shown
