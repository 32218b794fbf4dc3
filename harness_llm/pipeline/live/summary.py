"""Figures of replicas and devices as text: ranges over all, and rows of each. Pure."""

from collections.abc import Callable, Iterable, Sequence

from harness_llm.hardware.telemetry.reading import Reading
from harness_llm.pipeline.live.run_progress import Latency, RunProgress
from harness_llm.protocol.messages import ReplicaStatus

UNKNOWN = "-"
percent = "{:.0%}".format


def span(values: Iterable[float | None], show: Callable[[float], str] = "{:,.0f}".format) -> str:
    """Return `minimum to maximum` of the known values, or the only value; empty if none is known."""
    shown = list(dict.fromkeys(show(value) for value in sorted(value for value in values if value is not None)))
    return f"{shown[0]} to {shown[-1]}" if len(shown) > 1 else "".join(shown)


def latency_text(latency: Latency) -> str:
    """Return p50 and p99, and the share of slow queries if there is a limit."""
    text = f"{latency.name} p50 {latency.p50_ms:,.1f} p99 {latency.p99_ms:,.1f} ms"
    if latency.limit_ms is None:
        return text
    return f"{text} (limit {latency.limit_ms:,g} ms, {latency.slow.share:.2%} above)"


def replicas_text(progress: RunProgress) -> str:
    """Return the ranges of queries in flight, KV cache and tokens/s of the replicas; empty before the first message."""
    replicas = progress.replicas
    if not replicas:
        return ""
    activities = [status.activity for status in replicas if status.activity]
    parts = [f"{span(status.in_flight for status in replicas)} in flight"]
    if cache := span((activity.kv_cache_use for activity in activities), percent):
        parts.append(f"KV cache {cache}")
    if preemptions := sum(activity.preemptions or 0 for activity in activities):
        parts.append(f"{preemptions:,} preemptions")
    if progress.rates:
        parts.append(f"{span(progress.rates.values())} tokens/s")
    return f"{len(replicas)} replica{'s' * (len(replicas) > 1)}: {', '.join(parts)}"


REPLICA_COLUMNS = ("replica", "in flight", "batch", "queue", "KV cache", "tokens/s")


def replica_row(status: ReplicaStatus, rate: float | None) -> tuple[str, ...]:
    """Return the figures of one replica, by REPLICA_COLUMNS."""
    activity = status.activity
    batch, queue = (activity.running, activity.waiting) if activity else (None, None)
    cache = activity.kv_cache_use if activity else None
    counts = (UNKNOWN if value is None else f"{value:,}" for value in (status.in_flight, batch, queue))
    return (
        status.name,
        *counts,
        UNKNOWN if cache is None else percent(cache),
        UNKNOWN if rate is None else f"{rate:,.0f}",
    )


def devices_text(devices: Sequence[Reading]) -> list[str]:
    """Return a line per kind of device: ranges of power, clock, temperature, utilisation and memory; throttling."""
    kinds: dict[str, list[Reading]] = {}
    for reading in devices:
        kinds.setdefault(reading.device.partition("-")[0], []).append(reading)
    return [text for kind, readings in kinds.items() if (text := _kind_text(kind, readings))]


def _kind_text(kind: str, readings: Sequence[Reading]) -> str:
    figures = (
        (span(reading.power_w for reading in readings), " W"),
        (span(reading.clock_mhz for reading in readings), " MHz"),
        (span(reading.temperature_c for reading in readings), " °C"),
        (span((reading.utilisation for reading in readings), percent), " busy"),
        (span(reading.memory_used_mib / 1024 for reading in readings if reading.memory_used_mib is not None), " GiB"),
    )
    parts = [f"{text}{unit}" for text, unit in figures if text]
    throttled = [f"{reading.device} throttled ({reading.throttle})" for reading in readings if reading.throttle]
    name = kind if len(readings) == 1 else f"{len(readings)} {kind}s"
    return f"{name}: {', '.join([*parts, *throttled])}" if parts else ""
