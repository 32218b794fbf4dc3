"""Causes that a diagnosis can name, and which other causes can explain each."""

from dataclasses import dataclass
from enum import StrEnum


class Cause(StrEnum):
    """A cause; the value is its name in --json."""

    RUN_FAILED = "run_failed"
    NOT_JUDGED = "not_judged"
    REPLICA_FAILED = "replica_failed"
    GATE_MISSED = "gate_missed"
    LOADGEN_ERROR = "loadgen_error"
    TARGET_TOO_HIGH = "target_too_high"
    TOO_SHORT = "too_short"
    TOO_FEW_QUERIES = "too_few_queries"
    TTFT_LIMIT = "ttft_limit"
    TPOT_LIMIT = "tpot_limit"
    LATENCY_LIMIT = "latency_limit"
    QUEUE_GROWTH = "queue_growth"
    THROTTLING = "throttling"
    SLOW_REPLICA = "slow_replica"
    STALL = "stall"
    WARM_UP_MISSING = "warm_up_missing"
    PREEMPTION = "preemption"
    CLIENT_LATE = "client_late"
    STARVED_BATCH = "starved_batch"
    DRAIN_TAIL = "drain_tail"


@dataclass(frozen=True)
class CauseInfo:
    """Facts about a cause.

    Attributes:
        title: its name in the report.
        decides: whether the run is not VALID because of it; others cost speed.
        explained_by: causes of which it can be a consequence.
    """

    title: str
    decides: bool = False
    explained_by: tuple[Cause, ...] = ()


# Each takes a part of the capacity, or delays the queries of a part of the run.
_CAPACITY = (
    Cause.REPLICA_FAILED,
    Cause.THROTTLING,
    Cause.SLOW_REPLICA,
    Cause.STALL,
    Cause.WARM_UP_MISSING,
    Cause.PREEMPTION,
)
_LATENCY = (*_CAPACITY, Cause.CLIENT_LATE, Cause.QUEUE_GROWTH)

CAUSES: dict[Cause, CauseInfo] = {
    Cause.RUN_FAILED: CauseInfo("run failed", decides=True),
    Cause.NOT_JUDGED: CauseInfo("not judged", decides=True),
    Cause.REPLICA_FAILED: CauseInfo("replica failed", decides=True),
    Cause.GATE_MISSED: CauseInfo("accuracy gate or compliance test missed", decides=True),
    Cause.LOADGEN_ERROR: CauseInfo("LoadGen reports an error", decides=True),
    Cause.TARGET_TOO_HIGH: CauseInfo("target above the throughput", decides=True),
    Cause.TOO_SHORT: CauseInfo("run too short", decides=True),
    Cause.TOO_FEW_QUERIES: CauseInfo("too few queries", decides=True, explained_by=_LATENCY),
    Cause.TTFT_LIMIT: CauseInfo("TTFT above its limit", decides=True, explained_by=_LATENCY),
    Cause.TPOT_LIMIT: CauseInfo("TPOT above its limit", decides=True, explained_by=_LATENCY),
    Cause.LATENCY_LIMIT: CauseInfo("latency above its limit", decides=True, explained_by=_LATENCY),
    Cause.QUEUE_GROWTH: CauseInfo("queue growth", explained_by=(*_CAPACITY, Cause.CLIENT_LATE)),
    Cause.THROTTLING: CauseInfo("clock or power throttling"),
    Cause.SLOW_REPLICA: CauseInfo("slow replica", explained_by=(Cause.THROTTLING, Cause.STALL)),
    Cause.STALL: CauseInfo("stall", explained_by=(Cause.REPLICA_FAILED,)),
    Cause.WARM_UP_MISSING: CauseInfo("warm-up missing"),
    Cause.PREEMPTION: CauseInfo("preemption"),
    Cause.CLIENT_LATE: CauseInfo("LoadGen's process too slow"),
    Cause.STARVED_BATCH: CauseInfo("engines wait for queries", explained_by=(Cause.CLIENT_LATE,)),
    Cause.DRAIN_TAIL: CauseInfo("Offline drain tail", explained_by=(Cause.SLOW_REPLICA, Cause.STALL)),
}
