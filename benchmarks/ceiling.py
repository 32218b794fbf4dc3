"""Maximum rate of the harness, and its part of TTFT and TPOT, with a replay engine without delay.

Server at several rates on 8 and 72 replicas, alternating with LoadGen alone (a SUT in its process that answers
immediately) and with a bare socket to another process; Offline at the maximum rate.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.table import Table

from benchmarks.hop import measure_hop
from benchmarks.measurement import interval
from benchmarks.replayed import AT_ONCE, Figures, measure, measure_null, replay_bench
from harness_llm.replicas.placement import placement

REPLICAS = (8, 72)
RATES = (100.0, 1000.0, 5000.0)
TOKENS_PER_S = 1_000_000
# Of the target; at lower rates, the random number of arrivals deviates more.
RATE_WITHIN = 0.005
SLOWER_BY = 3.0  # p99 TTFT over that of the null SUT
JUDGED_RATE = 1000.0
OFFLINE_QUERIES = 100_000

Pair = tuple[float, float]
"""The median and the 99th percentile."""


def run(folder: Path, repeats: int, seconds: float, report: Callable[[str], None]) -> dict[str, Any]:
    """Measure all rates on all replica pools, `repeats` runs of `seconds` each."""
    found: dict[str, Any] = {"server": [], "offline": []}
    for replicas in REPLICAS:
        with replay_bench(folder, "Server", replicas, *AT_ONCE) as bench:
            for rate in RATES:
                harness, null, hops = [], [], []
                here, there = bench.pool.loadgen_cpus[0], placement([{}], 1).replicas[0].binding.cpus[0]
                for _ in range(repeats):
                    harness.append(measure(bench, rate, seconds=seconds))
                    null.append(measure_null(bench, rate, seconds=seconds, folder=folder))
                    hops.append(measure_hop(rate, seconds=seconds, here=here, there=there))
                found["server"].append(_row(replicas, rate, harness, null, hops))
                report(f"ceiling, Server, {replicas} replicas at {rate:g} queries/s: {_words(harness[-1])}")
        with replay_bench(folder, "Offline", replicas, *AT_ONCE) as bench:
            offline = [measure(bench, 1, queries=OFFLINE_QUERIES) for _ in range(repeats)]
            found["offline"].append({"replicas": replicas, **_summary(offline)})
            report(f"ceiling, Offline, {replicas} replicas: {_words(offline[-1])}")
    return found


def _words(figures: Figures) -> str:
    ttft = "" if figures.ttft_ms is None else f", p99 TTFT {figures.ttft_ms[1]:.2f} ms"
    return f"{figures.queries_per_s:,.0f} queries/s, {figures.tokens_per_s:,.0f} tokens/s{ttft}"


def _row(
    replicas: int, rate: float, harness: Sequence[Figures], null: Sequence[Figures], hops: Sequence[Pair]
) -> dict[str, Any]:
    arms = {"harness": _summary(harness), "null": _summary(null), "hop": {"ttft_ms": _intervals(hops)}}
    return {"replicas": replicas, "rate": rate, **arms}


def _summary(runs: Sequence[Figures]) -> dict[str, Any]:
    figures: dict[str, Any] = {
        "queries_per_s": interval([run.queries_per_s for run in runs]),
        "tokens_per_s": interval([run.tokens_per_s for run in runs]),
        "valid": all(run.valid for run in runs),
        "runs": [asdict(run) for run in runs],
    }
    for name in ("ttft_ms", "tpot_ms"):
        pairs = [pair for run in runs if (pair := getattr(run, name))]
        if pairs:
            figures[name] = _intervals(pairs)
    return figures


def _intervals(pairs: Sequence[Pair]) -> dict[str, Any]:
    p50s, p99s = zip(*pairs, strict=True)
    return {"p50": interval(p50s), "p99": interval(p99s)}


def table(found: Mapping[str, Any]) -> Table:
    """Show the medians."""
    shown = Table(
        "replicas",
        "target",
        "queries/s",
        "tokens/s",
        "TTFT ms p50, p99",
        "null SUT",
        "bare socket",
        "TPOT ms p50, p99",
        "null SUT",
        "valid",
        box=None,
    )
    for row in found["server"]:
        own, null, hop = row["harness"], row["null"], row["hop"]
        shown.add_row(
            str(row["replicas"]),
            f"{row['rate']:,.0f}",
            f"{own['queries_per_s']['median']:,.0f}",
            f"{own['tokens_per_s']['median']:,.0f}",
            *(_pair(arm["ttft_ms"]) for arm in (own, null, hop)),
            *(_pair(arm["tpot_ms"]) for arm in (own, null)),
            str(own["valid"]),
        )
    for row in found["offline"]:
        rates = (f"{row[name]['median']:,.0f}" for name in ("queries_per_s", "tokens_per_s"))
        shown.add_row(str(row["replicas"]), "Offline", *rates)
    return shown


def _pair(percentiles: Mapping[str, Any]) -> str:
    return ", ".join(f"{percentiles[name]['median']:.3f}" for name in ("p50", "p99"))


def misses(found: Mapping[str, Any]) -> list[str]:
    """Return the figures of the smaller replica pool that miss their targets."""
    return [line for row in found["server"] if row["replicas"] == REPLICAS[0] for line in _misses(row)]


def _misses(row: Mapping[str, Any]) -> list[str]:
    own, null, rate = row["harness"], row["null"], row["rate"]
    reached = own["queries_per_s"]["median"]
    lines = []
    if not own["valid"]:
        lines.append(f"{rate:g} queries/s: not VALID")
    if rate == max(RATES) and own["tokens_per_s"]["median"] < TOKENS_PER_S:
        lines.append(f"{own['tokens_per_s']['median']:,.0f} tokens/s, target {TOKENS_PER_S:,}")
    if rate == max(RATES) and abs(reached / rate - 1) > RATE_WITHIN:
        lines.append(f"{rate:g} queries/s: {reached:.1f} reached")
    slower = own["ttft_ms"]["p99"]["median"] / null["ttft_ms"]["p99"]["median"]
    if rate == JUDGED_RATE and slower > SLOWER_BY:
        lines.append(
            f"p99 TTFT at {rate:g} queries/s is {slower:.1f} times that of LoadGen alone, target at most {SLOWER_BY:g}"
        )
    return lines
