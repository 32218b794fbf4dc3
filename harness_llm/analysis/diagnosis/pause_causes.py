"""Pauses of replicas: a missing warm-up at their first queries, otherwise stalls."""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from harness_llm.analysis.diagnosis.causes import Cause
from harness_llm.analysis.diagnosis.finding import Finding
from harness_llm.analysis.diagnosis.robust import Floats
from harness_llm.analysis.diagnosis.run_data import ReplicaData, RunData
from harness_llm.analysis.diagnosis.thresholds import FIRST_STEPS_S, STALL_FACTOR, STALL_S
from harness_llm.protocol.messages import HEARTBEAT_INTERVAL_S

_SLOW_STEP = 2  # medians; a larger 90th percentile is that of pauses
_SHOWN = 8
_WARM_UP = (
    "let the warm-up compute what the run computes: raise harness_config.warm_up_tokens; compilation is in the log"
)
_LOOK = (
    "look at that time in the replica's log and in the kernel log: suspended process, swapping, GPU errors, compilation"
)


@dataclass(frozen=True)
class Pause:
    """Seconds in which a replica had queries and made no steps, or few; `cold`: they are its first steps."""

    replica: str
    start: float
    end: float
    lost_s: float
    cold: bool

    def __str__(self) -> str:
        return f"{self.replica} {self.start:.1f} to {self.end:.1f} s"


def pauses(data: RunData) -> Iterator[Finding]:
    """A finding for the missing warm-up, and one for all stalls."""
    found = [pause for replica in data.by_replica.values() for pause in _pauses(replica, data.scenario == "Offline")]
    for cause, cold in ((Cause.WARM_UP_MISSING, True), (Cause.STALL, False)):
        if own := [pause for pause in found if pause.cold is cold]:
            yield _finding(data, cause, own)


def _pauses(replica: ReplicaData, offline: bool) -> list[Pause]:
    """Pauses of at least `STALL_S`. In Offline, the steps before the first answers are long, because of the prompts."""
    if np.isnan(replica.done).all():
        return []
    begin = float(np.nanmin(replica.done if offline else replica.sent))
    slow = list(_slow_steps(replica, begin))
    silent = [one for one in _silences(replica, begin) if not any(_overlap(one, other) for other in slow)]
    return [
        Pause(replica.name, start, end, lost, cold=not offline and start - begin < FIRST_STEPS_S.value)
        for start, end, lost in (*slow, *silent)
        if lost >= STALL_S.value
    ]


_Times = tuple[float, float, float]
"""Start, end and lost seconds."""


def _overlap(one: _Times, other: _Times) -> bool:
    return one[0] < other[1] and other[0] < one[1]


def _silences(replica: ReplicaData, begin: float) -> Iterator[_Times]:
    """Times without heartbeats and without tokens: the process was suspended. Steps may be made up for afterwards."""
    tokens = np.sort(np.concatenate([replica.first, replica.done]))
    for before, after in itertools.pairwise(replica.beats["time_s"]):
        if after - before < HEARTBEAT_INTERVAL_S + STALL_S.value or after < begin:
            continue
        inside = tokens[(tokens > before) & (tokens < after)]
        edges = np.concatenate([[max(before, begin)], inside[inside > begin], [after]])
        longest = int(np.argmax(np.diff(edges)))
        start, end = float(edges[longest]), float(edges[longest + 1])
        yield start, end, float(np.diff(replica.busy_s(np.array([start, end])))[0])


def _slow_steps(replica: ReplicaData, begin: float) -> Iterator[_Times]:
    """Times in which the steps take a multiple of the others; none for an engine that does not report its steps."""
    if np.isnan(replica.beats["steps"]).all():
        return
    times, steps = replica.beats["time_s"], np.nan_to_num(replica.beats["steps"])[1:]
    starts, ends = np.maximum(times[:-1], begin), times[1:]
    inside = ends > starts
    starts, ends, steps = starts[inside], ends[inside], steps[inside]
    busy = replica.busy_s(ends) - replica.busy_s(starts)
    working = (steps > 0) & (busy > 0)
    if not working.any():
        return
    step_s = busy[working] / steps[working]
    slow_step = min(float(np.quantile(step_s, 0.9)), _SLOW_STEP * float(np.median(step_s)))
    paused = _without_steps(busy, steps) > STALL_FACTOR.value * slow_step * np.maximum(steps, 1)
    lost = busy - steps * slow_step
    edges = np.flatnonzero(np.diff(np.concatenate([[False], paused, [False]]).astype(int)))
    for first, after in zip(edges[::2], edges[1::2], strict=True):
        yield float(starts[first]), float(ends[after - 1]), float(lost[first:after].sum())


def _without_steps(busy: Floats, steps: Floats) -> Floats:
    """The busy seconds of each heartbeat; of consecutive ones without a step, those of all together."""
    groups = np.cumsum((steps > 0) | (np.roll(steps, 1) > 0))
    return np.asarray(np.bincount(groups, weights=busy)[groups], dtype=np.float64)


def _finding(data: RunData, cause: Cause, found: list[Pause]) -> Finding:
    worst = max(found, key=lambda pause: pause.lost_s)
    names = sorted({pause.replica for pause in found})
    lost = sum(pause.lost_s for pause in found)
    loss = lost / data.end_s / len(data.by_replica)
    cold = cause is Cause.WARM_UP_MISSING
    what = "its first steps are slow" if cold else f"it makes no steps from {worst.start:.1f} to {worst.end:.1f} s"
    now = int(data.settings["harness_config"]["warm_up_tokens"])
    return Finding(
        cause,
        f"{worst.replica}: {what}, {worst.lost_s:.1f} s without tokens",
        {"pauses": "; ".join(map(str, found[:_SHOWN])), "replicas": f"{len(names)} of {len(data.by_replica)}"},
        _WARM_UP if cold else _LOOK,
        (data.option("harness_config", "warm_up_tokens", 2 * now),) if cold else (),
        loss=loss,
        effect=f"{lost:.1f} s of replicas, {loss:.1%} of the capacity of the run",
        look=tuple(data.replica_log(name) for name in names[:3]),
        replicas=tuple(names),
        affected=_in_pauses(data, found),
    )


def _in_pauses(data: RunData, found: list[Pause]) -> NDArray[np.bool_]:
    """Queries of the paused replicas that overlap a pause, or the same time after it, in which they catch up."""
    queries = data.require_queries
    inside = np.zeros(len(queries["send_s"]), dtype=bool)
    for pause in found:
        later = pause.end + (pause.end - pause.start)
        own = data.by_replica[pause.replica].own
        inside |= own & (queries["issue_s"] < later) & ~(queries["completion_s"] < pause.start)
    return inside
