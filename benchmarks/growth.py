"""CPU time and memory of LoadGen's process by number of replicas and queries; replay engine without delay."""

from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.table import Table

from benchmarks.replayed import AT_ONCE, measure, replay_bench

REPLICAS = (1, 8, 24, 72)
RATE = 1000.0
QUERIES = (1_000, 10_000, 100_000, 1_000_000)
MAX_MIB = 1024


def run(folder: Path, seconds: float, report: Callable[[str], None]) -> dict[str, Any]:
    """Measure Server at one rate by number of replicas, for `seconds` each; Offline by load on eight replicas."""
    by_replicas: dict[int, Any] = {}
    for replicas in REPLICAS:
        with replay_bench(folder, "Server", replicas, *AT_ONCE) as bench:
            by_replicas[replicas] = asdict(measure(bench, RATE, seconds=seconds))
        report(f"growth, {replicas} replicas: {by_replicas[replicas]['cpu_s']:.1f} CPU s")
    by_queries: dict[int, Any] = {}
    with replay_bench(folder, "Offline", 8, *AT_ONCE) as bench:
        for queries in QUERIES:
            by_queries[queries] = asdict(measure(bench, 1, queries=queries))
            report(f"growth, {queries:,} queries: {by_queries[queries]['grown_mib']:,.0f} MiB")
    return {"by_replicas": by_replicas, "by_queries": by_queries, "max_mib": MAX_MIB}


def table(found: Mapping[str, Any]) -> Table:
    """Show a row per measurement."""
    shown = Table("scenario", "replicas", "queries", "CPU s", "CPU µs per query", "memory growth, MiB", box=None)
    for scenario, runs in (("Server", found["by_replicas"]), ("Offline", found["by_queries"])):
        for key, own in runs.items():
            shown.add_row(
                scenario,
                str(key) if scenario == "Server" else "8",
                f"{own['queries']:,}",
                f"{own['cpu_s']:.1f}",
                f"{own['cpu_s'] / own['queries'] * 1e6:.0f}",
                f"{own['grown_mib']:,.0f}",
            )
    return shown


def misses(found: Mapping[str, Any]) -> list[str]:
    """Return the figures that miss their targets."""
    return [
        f"{queries:,} queries: {own['grown_mib']:,.0f} MiB, target at most {MAX_MIB}"
        for queries, own in found["by_queries"].items()
        if own["grown_mib"] > MAX_MIB
    ]
