"""Status messages of a run, as LoadGen's process and the run monitor send them."""

import json
from collections.abc import Sequence
from typing import Any

from harness_llm.config.rules import LatencyLimit
from harness_llm.hardware.telemetry.reading import Reading
from harness_llm.pipeline.live.run_progress import RunView

VIEW = RunView(
    "Server performance", total=1000, predicted_s=100, limit=LatencyLimit(ttft=2000, tpot=200), min_duration_s=60
)
PROBED = {
    "event": "probed",
    "prediction": {
        "samples_per_second": 81.7,
        "low": 70,
        "high": 90,
        "tokens_per_second": 24_020,
        "run_s": 125,
        "load_s": 31,
        "drain_s": 0.3,
    },
}
GPUS = [
    Reading(device="gpu-0", power_w=612.4, clock_mhz=1980, temperature_c=61, utilisation=0.98, memory_used_mib=131072),
    Reading(
        device="gpu-1",
        power_w=640,
        clock_mhz=1755,
        temperature_c=70,
        utilisation=1.0,
        memory_used_mib=131072,
        throttle="power cap",
    ),
]


def latency(p50: float, p99: float, over: int = 0, count: int = 0) -> dict[str, Any]:
    return {"p50_ms": p50, "p99_ms": p99, "count": count, "over": over}


def replica(name: str, in_flight: int, at: float, generated: int, cache: float | None = 0.45) -> list[Any]:
    """A ReplicaStatus on the wire: tokens `generated` until the heartbeat `at`."""
    return [name, in_flight, at, [generated, in_flight, 0, cache, 0]]


def progress(done: int, tokens: int = 0, replicas: Sequence[list[Any]] = (), **figures: Any) -> dict[str, Any]:
    figures["replicas"] = json.dumps(replicas)
    return {"event": "progress", "issued": done + 7, "done": done, "tokens": tokens, "unanswered": 7, **figures}
