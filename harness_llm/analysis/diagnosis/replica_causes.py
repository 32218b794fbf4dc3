"""Replicas: a slow one, failures, stalls, a missing warm-up, preemptions, and batches that are not full."""

import itertools
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from harness_llm.analysis.diagnosis.causes import Cause
from harness_llm.analysis.diagnosis.finding import Finding, figure
from harness_llm.analysis.diagnosis.robust import Floats, slowdowns
from harness_llm.analysis.diagnosis.run_data import RunData
from harness_llm.analysis.diagnosis.thresholds import (
    FIRST_STEPS_S,
    PREEMPTIONS,
    SLOWDOWN,
    STALL_FACTOR,
    STALL_S,
    STARVED,
)
from harness_llm.loadgen.prediction import MEAN_AGE
from harness_llm.protocol.messages import HEARTBEAT_INTERVAL_S
from harness_llm.runs.record import State

_BLOCKS = 8
_FEWEST_PER_BLOCK = 5  # queries of a replica, for a median
_FAILED = re.compile(r"(replica-\d+) failed \((.*)\); (\d+) queries were requeued")
_POINTS_PER_S = 20
_SLOW_STEP = 2  # medians; a larger 90th percentile is that of pauses
_WARM_UP = (
    "let the warm-up compute what the run computes: raise harness_config.warm_up_tokens; compilation is in the log"
)
_LOOK = (
    "look at that time in the replica's log and in the kernel log: suspended process, swapping, GPU errors, compilation"
)


def slow_replicas(data: RunData) -> Iterator[Finding]:
    """Replicas whose time per token is above the median of the others."""
    if data.queries is None:
        return
    found = slowdowns(_times_per_token(data))
    for name, factor in found.items():
        if factor.low < SLOWDOWN.value:
            continue
        loss = (1 - 1 / factor.value) / len(found)
        interval = (
            f"{figure(factor.value)} times the others (99 % interval {figure(factor.low)} to {figure(factor.high)})"
        )
        yield Finding(
            Cause.SLOW_REPLICA,
            f"{name} takes {interval} per token",
            {"time per token": interval, "replicas": str(len(found))},
            f"harness-llm doctor; compare clocks, power cap, PCI link and NUMA node of the devices of {name}",
            (data.target("target_qps", data.target_qps * (1 - loss)),) if _missed_limit(data) else (),
            loss=loss,
            effect=f"about {loss:.0%} of the throughput of all replicas",
            look=(data.replica_log(name),),
            affected=data.queries["replica"] == name,
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
        own = {name: usable & (blocks == block) & (queries["replica"] == name) for name in data.replica_names}
        medians = {n: float(np.median(seconds[rows])) for n, rows in own.items() if rows.sum() >= _FEWEST_PER_BLOCK}
        found.append(medians)
    return found


def failed_replicas(data: RunData) -> Iterator[Finding]:
    """Replicas that failed during the run."""
    for name, cause, requeued in (found.groups() for found in map(_FAILED.search, data.run.reasons) if found):
        queries = data.queries
        yield Finding(
            Cause.REPLICA_FAILED,
            f"{name}: {cause}; {requeued} queries were requeued",
            {"replica": name, "reason": cause, "requeued queries": requeued},
            "remove the reason; the run is repeated automatically",
            loss=_absence(data, name),
            effect=f"{_absence(data, name):.0%} of the capacity of the run",
            look=(data.replica_log(name),),
            affected=None if queries is None else queries["requeues"] > 0,
        )


def _absence(data: RunData, replica: str) -> float:
    """The share of the capacity that the run lacks: the longest time between two heartbeats of `replica`."""
    if data.queries is None or data.replicas is None:
        return 0.0
    times = data.replicas["time_s"][data.replicas["replica"] == replica]
    gaps = np.diff(np.append(times, data.end_s))
    return float(gaps.max()) / data.end_s / len(data.replica_names) if len(gaps) else 0.0


@dataclass(frozen=True)
class Pause:
    """Seconds in which a replica had queries and made no steps, or few."""

    replica: str
    start: float
    end: float
    lost_s: float


def pauses(data: RunData) -> list[Pause]:
    """Pauses of at least `STALL_S`. In Offline those before the first answers are prompts, and not counted."""
    if data.queries is None or data.replicas is None:
        return []
    found: list[Pause] = []
    for name in data.replica_names:
        slow = [pause for pause in _slow_times(data, name) if pause.lost_s >= STALL_S.value]
        silent = [one for one in _silences(data, name) if not any(_overlap(one, other) for other in slow)]
        found += slow + silent
    return found


def _overlap(one: Pause, other: Pause) -> bool:
    return one.start < other.end and other.start < one.end


def _silences(data: RunData, replica: str) -> Iterator[Pause]:
    """Times without heartbeats and without tokens: the process was suspended. Steps may be made up for afterwards."""
    rows, queries = data.replicas, data.require_queries
    if rows is None:
        return
    own = queries["replica"] == replica
    tokens = np.sort(np.concatenate([queries["first_token_s"][own], queries["completion_s"][own]]))
    times = rows["time_s"][rows["replica"] == replica]
    for before, after in itertools.pairwise(times):
        if after - before < HEARTBEAT_INTERVAL_S + STALL_S.value:
            continue
        inside = tokens[(tokens > before) & (tokens < after)]
        edges = np.concatenate([[before], inside, [after]])
        longest = int(np.argmax(np.diff(edges)))
        start, end = float(edges[longest]), float(edges[longest + 1])
        if (lost := _busy_s(data, replica, start, end)) >= STALL_S.value:
            yield Pause(replica, start, end, lost)


def _slow_times(data: RunData, replica: str) -> Iterator[Pause]:
    """Times in which the steps take a multiple of the others."""
    rows, queries = data.replicas, data.require_queries
    if rows is None:
        return
    begin = data.window[0]
    if data.scenario == "Offline":
        begin = float(np.nanmin(queries["completion_s"][queries["replica"] == replica]))
    own = rows["replica"] == replica
    times, steps = rows["time_s"][own], rows["steps"][own]
    ends, starts, steps = times[1:], np.maximum(times[:-1], begin), np.nan_to_num(steps[1:])
    inside = ends > starts
    starts, ends, steps = starts[inside], ends[inside], steps[inside]
    busy = np.array([_busy_s(data, replica, a, b) for a, b in zip(starts, ends, strict=True)])
    working = (steps > 0) & (busy > 0)
    if not working.any():
        return
    step_s = busy[working] / steps[working]
    slow_step = min(float(np.quantile(step_s, 0.9)), _SLOW_STEP * float(np.median(step_s)))
    paused = busy > STALL_FACTOR.value * slow_step * np.maximum(steps, 1)
    lost = busy - steps * slow_step
    edges = np.flatnonzero(np.diff(np.concatenate([[False], paused, [False]]).astype(int)))
    for first, after in zip(edges[::2], edges[1::2], strict=True):
        yield Pause(replica, float(starts[first]), float(ends[after - 1]), float(lost[first:after].sum()))


def _busy_s(data: RunData, replica: str, start: float, end: float) -> float:
    """Seconds between `start` and `end` in which the replica had a query."""
    times = np.linspace(start, end, max(int((end - start) * _POINTS_PER_S), 2))
    return float((data.in_flight(times, replica) > 0).mean()) * (end - start)


def stalls(data: RunData) -> Iterator[Finding]:
    """Pauses: a missing warm-up at the first queries of a replica, otherwise a stall."""
    found = pauses(data)
    for cause, own in (
        (Cause.WARM_UP_MISSING, [pause for pause in found if _is_cold(data, pause)]),
        (Cause.STALL, [pause for pause in found if not _is_cold(data, pause)]),
    ):
        if own:
            yield _paused(data, cause, own)


def _is_cold(data: RunData, pause: Pause) -> bool:
    queries = data.require_queries
    sent = float(np.nanmin(queries["send_s"][queries["replica"] == pause.replica]))
    return data.scenario != "Offline" and pause.start - sent < FIRST_STEPS_S.value


def _paused(data: RunData, cause: Cause, found: list[Pause]) -> Finding:
    worst = max(found, key=lambda pause: pause.lost_s)
    names = sorted({pause.replica for pause in found})
    loss = sum(pause.lost_s for pause in found) / data.end_s / len(data.replica_names)
    cold = cause is Cause.WARM_UP_MISSING
    what = "its first steps are slow" if cold else f"it makes no steps from {worst.start:.1f} to {worst.end:.1f} s"
    now = int(data.settings["harness_config"]["warm_up_tokens"])
    return Finding(
        cause,
        f"{worst.replica}: {what}, {worst.lost_s:.1f} s without tokens",
        {
            "pauses": "; ".join(f"{p.replica} {p.start:.1f} to {p.end:.1f} s" for p in found[:8]),
            "replicas": f"{len(names)} of {len(data.replica_names)}",
        },
        _WARM_UP if cold else _LOOK,
        (data.option("harness_config", "warm_up_tokens", 2 * now),) if cold else (),
        loss=loss,
        effect=f"{sum(pause.lost_s for pause in found):.1f} s of replicas, {loss:.1%} of the capacity of the run",
        look=tuple(data.replica_log(name) for name in names[:3]),
        affected=_in_pauses(data, found),
    )


def _in_pauses(data: RunData, found: list[Pause]) -> NDArray[np.bool_]:
    """Queries of the paused replicas that overlap a pause, or the same time after it, in which they catch up."""
    queries = data.require_queries
    inside = np.zeros(len(queries["send_s"]), dtype=bool)
    for pause in found:
        later = pause.end + (pause.end - pause.start)
        own = queries["replica"] == pause.replica
        inside |= own & (queries["issue_s"] < later) & ~(queries["completion_s"] < pause.start)
    return inside


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
    running = float(np.nanmedian(rows["running"][busy])) if busy.any() else math.nan
    following = np.nanmin([fits, running, data.batch - 1])
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


def starved_batches(data: RunData) -> Iterator[Finding]:
    """Offline: engines without a full batch and without a queue although queries are not sent yet."""
    rows = data.replicas
    if rows is None or data.queries is None or data.scenario != "Offline":
        return
    start = float(np.nanmin(data.queries["completion_s"]))
    left = (rows["time_s"] > start) & (rows["time_s"] < np.nanmax(data.queries["send_s"]))
    running = np.where(np.isnan(rows["running"]), rows["in_flight"], rows["running"])
    waiting = np.nan_to_num(rows["waiting"])
    if not left.any():
        return
    empty: Floats = np.where(waiting > 0, 0.0, np.maximum(1 - running / data.batch, 0.0))[left]
    loss = float(empty.mean())
    if loss < STARVED.value:
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
