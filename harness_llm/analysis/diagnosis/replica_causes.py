"""Replicas: a slow one, failures, preemptions, and batches that are not full."""

import math
import re
from collections.abc import Iterator, Mapping

import numpy as np

from harness_llm.analysis.diagnosis.causes import Cause
from harness_llm.analysis.diagnosis.finding import Finding, figure
from harness_llm.analysis.diagnosis.robust import Floats, slowdowns
from harness_llm.analysis.diagnosis.run_data import RunData
from harness_llm.analysis.diagnosis.thresholds import PREEMPTIONS, SLOWDOWN, STARVED
from harness_llm.config.commands import command
from harness_llm.loadgen.prediction import MEAN_AGE
from harness_llm.runs.record import State

_BLOCKS = 8
_FEWEST_PER_BLOCK = 3  # queries of a replica, for a median
_FAILED = re.compile(r"(replica-\d+) failed \((.*)\); (\d+) queries were requeued")


def slow_replicas(data: RunData) -> Iterator[Finding]:
    """Replicas whose time per token is above the median of the others."""
    if data.queries is None:
        return
    found = slowdowns(_times_per_token(data))
    for name, factor in found.items():
        if factor.low < SLOWDOWN.value:
            continue
        loss = (1 - 1 / factor.value) / len(data.by_replica)
        interval = (
            f"{figure(factor.value)} times the others (99 % interval {figure(factor.low)} to {figure(factor.high)})"
        )
        yield Finding(
            Cause.SLOW_REPLICA,
            f"{name} takes {interval} per token",
            {"time per token": interval, "replicas": str(len(data.by_replica))},
            f"{command('doctor')}; compare clocks, power cap, PCI link and NUMA node of the devices of {name}",
            (data.target("target_qps", data.target_qps * (1 - loss)),) if _missed_limit(data) else (),
            loss=loss,
            effect=f"about {loss:.0%} of the throughput of all replicas",
            look=(data.replica_log(name),),
            replicas=(name,),
            affected=data.by_replica[name].own,
        )


def _missed_limit(data: RunData) -> bool:
    return data.scenario == "Server" and data.record.state is State.INVALID


def _times_per_token(data: RunData) -> list[Mapping[str, float]]:
    """The median time per token of each replica in blocks of the run, without the drain of Offline."""
    queries = data.require_queries
    start = queries["first_token_s"] if (~np.isnan(queries["first_token_s"])).any() else queries["send_s"]
    seconds = (queries["completion_s"] - start) / np.maximum(queries["output_tokens"] - 1, 1)
    usable = ~np.isnan(seconds) & (seconds > 0) & (queries["completion_s"] <= np.nanmax(queries["send_s"]))
    if usable.sum() < _BLOCKS:
        return []
    edges = np.quantile(queries["completion_s"][usable], np.linspace(0, 1, _BLOCKS + 1))
    blocks = np.digitize(queries["completion_s"], edges[1:-1])
    found: list[Mapping[str, float]] = []
    for block in range(_BLOCKS):
        own = {name: usable & (blocks == block) & replica.own for name, replica in data.by_replica.items()}
        medians = {n: float(np.median(seconds[rows])) for n, rows in own.items() if rows.sum() >= _FEWEST_PER_BLOCK}
        found.append(medians)
    return found


def failed_replicas(data: RunData) -> Iterator[Finding]:
    """Replicas that failed during the run."""
    failures = filter(None, map(_FAILED.search, (*data.run.reasons, *data.run.notes)))
    for name, cause, requeued in (found.groups() for found in failures):
        queries = data.queries
        yield Finding(
            Cause.REPLICA_FAILED,
            f"{name}: {cause}; {requeued} queries were requeued",
            {"replica": name, "reason": cause, "requeued queries": requeued},
            "remove the reason; the run is repeated automatically",
            loss=_absence(data, name),
            effect=f"{_absence(data, name):.0%} of the capacity of the run",
            look=(data.replica_log(name),),
            replicas=(name,),
            affected=None if queries is None else queries["requeues"] > 0,
        )


def _absence(data: RunData, replica: str) -> float:
    """The share of the capacity that the run lacks: the longest time between two heartbeats of `replica`."""
    if replica not in data.by_replica:
        return 0.0
    gaps = np.diff(np.append(data.by_replica[replica].beats["time_s"], data.end_s))
    return float(gaps.max()) / data.end_s / len(data.by_replica) if len(gaps) else 0.0


def preemptions(data: RunData) -> Iterator[Finding]:
    """Sequences that the engines preempted and computed again."""
    rows, queries = data.replicas, data.queries
    if rows is None or queries is None:
        return
    count = data.record.metrics.get("preemptions", float(np.nansum(rows["preemptions"])))
    share = count / len(queries["send_s"])
    if share < PREEMPTIONS.value:
        return
    prompt, output = float(queries["prompt_tokens"].mean()), float(np.nanmean(queries["output_tokens"]))
    loss = share * (prompt + output / 2) / (prompt + output)
    busy = rows["preemptions"] > 0
    evidence = {"preemptions": f"{count:,.0f}, {share:.2g} per query"}
    if (used := rows["kv_cache_use"][busy & ~np.isnan(rows["kv_cache_use"])]).size:
        evidence["KV cache use while preempting"] = f"{np.median(used):.0%}"
    tokens = data.record.metrics.get("kv_cache_tokens", math.nan)
    fits = tokens / (prompt + MEAN_AGE * output)
    if not math.isnan(fits):
        evidence["KV cache"] = f"{tokens:,.0f} tokens: {fits:.0f} queries of the mean context"
    running = rows["running"][busy & ~np.isnan(rows["running"])]
    following = np.nanmin([fits, np.median(running) if running.size else math.nan, data.batch - 1])
    yield Finding(
        Cause.PREEMPTION,
        f"{count:,.0f} preemptions, {share:.2g} per query: the KV cache is too small for the batch",
        evidence,
        "run fewer queries at once, or give the KV cache more memory",
        (
            data.option("llm_config", "max_num_seqs", max(int(following), 1)),
            data.option("llm_config", "gpu_memory_utilization"),
        ),
        loss=min(loss, 0.99),
        effect=f"about {loss:.0%} of the tokens are computed again",
    )


def empty_shares(data: RunData) -> Floats | None:
    """Offline: the empty share of the batch in each heartbeat while queries are left to send; 0 with a queue.

    It measures the headroom of LoadGen's process: above 0, the engines wait for it. None without such heartbeats.
    """
    rows = data.replicas
    if rows is None or data.queries is None or data.scenario != "Offline":
        return None
    start, last_send = np.nanmin(data.queries["completion_s"]), np.nanmax(data.queries["send_s"])
    left = (rows["time_s"] > start) & (rows["time_s"] < last_send)
    running = np.where(np.isnan(rows["running"]), rows["in_flight"], rows["running"])
    empty: Floats = np.where(rows["waiting"] > 0, 0.0, np.maximum(1 - running / data.batch, 0.0))[left]
    return empty if len(empty) else None


def starved_batches(data: RunData) -> Iterator[Finding]:
    """Offline: engines without a full batch and without a queue although queries are not sent yet."""
    empty = empty_shares(data)
    if empty is None or (loss := float(empty.mean())) < STARVED.value:
        return
    backlog = int(data.settings["harness_config"]["backlog"])
    yield Finding(
        Cause.STARVED_BATCH,
        f"{loss:.0%} of the batches are empty although queries are left to send",
        {
            "empty share of the batch": f"mean {loss:.0%}, 90th percentile {np.quantile(empty, 0.9):.0%}",
            "seconds without any query": f"{(empty >= 1).mean():.0%}",
        },
        "send more queries ahead; if LoadGen's process uses its whole core, give it more cores",
        (
            data.option("harness_config", "backlog", max(2 * backlog, data.batch)),
            data.option("harness_config", "loadgen_cpus", int(data.settings["harness_config"]["loadgen_cpus"]) + 1),
        ),
        loss=loss,
        effect=f"up to {loss:.0%} of the throughput",
    )
