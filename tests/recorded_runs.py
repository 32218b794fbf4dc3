"""Performance runs with generated records, in the files that a run writes."""

from pathlib import Path
from typing import Any

import numpy as np
from runs import write_run

from harness_llm.protocol.record_files import DEVICES, QUERIES, REPLICAS, labels, write
from harness_llm.runs.record import Run

NAN = float("nan")
CONFIG = """\
llm_config: {{max_num_seqs: 128, max_num_batched_tokens: 4096, tensor_parallel_size: 1}}
harness_config: {{replicas: {replicas}, backlog: 64}}
"""


def write_recorded_run(
    logs: Path,
    scenario: str = "Server",
    *,
    seconds: int = 60,
    queries: int = 600,
    replicas: int = 2,
    devices: int = 2,
    **changes: Any,
) -> Run:
    """A performance run of `seconds` with records; `changes` go into its run.json."""
    run = write_run(logs, scenario, "performance", **changes)
    (run.path / "config.yaml").write_text(CONFIG.format(replicas=replicas))
    rng = np.random.default_rng(0)
    _write_queries(run.path, rng, seconds, queries, replicas, streams=scenario != "Offline")
    _write_replicas(run.path, rng, seconds, replicas)
    _write_devices(run.path, rng, seconds, devices)
    return run


def _write_queries(
    path: Path, rng: np.random.Generator, seconds: int, count: int, replicas: int, *, streams: bool
) -> None:
    issue = np.sort(rng.uniform(0, seconds - 2, count)) if streams else np.zeros(count)
    prompts = rng.integers(10, 1000, count).astype(float)
    first = issue + 0.05 + prompts / 10_000 + rng.exponential(0.02, count)
    end = first + rng.uniform(0.5, 1.5, count) if streams else rng.uniform(1, seconds, count)
    columns = {
        "sample": np.arange(count),
        "replica": labels([f"replica-{number % replicas}" for number in range(count)]),
        "issue_s": issue,
        "send_s": issue,
        "first_token_s": first if streams else np.full(count, NAN),
        "completion_s": end,
        "prompt_tokens": prompts,
        "output_tokens": rng.integers(10, 300, count),
        "requeues": np.zeros(count),
    }
    write(path, QUERIES, columns, 0.0)


def _write_replicas(path: Path, rng: np.random.Generator, seconds: int, replicas: int) -> None:
    time, owner = _rows(seconds, replicas)
    count = len(time)
    tokens = rng.integers(400, 600, count).astype(float)
    columns = {
        "time_s": time,
        "replica": labels([f"replica-{number}" for number in owner]),
        "in_flight": rng.integers(10, 60, count),
        "running": rng.integers(10, 50, count),
        "waiting": rng.integers(0, 9, count),
        "kv_cache_use": rng.uniform(0.2, 0.6, count),
        "output_tokens": tokens,
        "tokens_per_s": tokens,
        "steps": np.full(count, 40),
        "preemptions": np.zeros(count),
    }
    write(path, REPLICAS, columns, 0.0)


def _write_devices(path: Path, rng: np.random.Generator, seconds: int, devices: int) -> None:
    time, owner = _rows(seconds, devices)
    count = len(time)
    columns = {
        "time_s": time,
        "device": labels([f"gpu-{number}" for number in owner]),
        "power_w": rng.uniform(500, 750, count),
        "clock_mhz": rng.uniform(1700, 2100, count),
        "memory_clock_mhz": np.full(count, 1300.0),
        "temperature_c": rng.uniform(50, 80, count),
        "memory_used_mib": np.full(count, 150_000.0),
        "utilisation": rng.uniform(0.8, 1, count),
        "throttle": labels(["power cap" if number % 100 == 0 else "" for number in range(count)]),
    }
    write(path, DEVICES, columns, 0.0)


def _rows(seconds: int, owners: int) -> tuple[np.ndarray, np.ndarray]:
    return np.repeat(np.arange(seconds) + 0.5, owners), np.tile(np.arange(owners), seconds)
