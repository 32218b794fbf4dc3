"""LoadGen's process: how late its threads are, and whether that decides the latencies."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from harness_llm.analysis.diagnosis.causes import Cause
from harness_llm.analysis.diagnosis.finding import Finding, figure
from harness_llm.analysis.diagnosis.robust import percentile
from harness_llm.analysis.diagnosis.run_data import RunData
from harness_llm.analysis.diagnosis.thresholds import CLIENT_DELAY

_MS = 1000
_MEAN_TTFT = "result_first_token_mean_latency_ns"


@dataclass(frozen=True)
class Headroom:
    """Delays in LoadGen's process, in ms.

    LoadGen's TTFT begins when a query is due, the records' when LoadGen's thread issues it: the difference of the means
    is the mean lateness of that thread. The thread of the SUT then sends the query.

    Attributes:
        p99_late: p99 TTFT of LoadGen's log minus that of the records.
        p99_replica_ttft: from sending a query to its first token.
    """

    mean_late: float
    p99_late: float
    p99_send: float
    p99_replica_ttft: float
    p99_ttft: float

    @property
    def share(self) -> float:
        """The share of LoadGen's p99 TTFT that arises in LoadGen's process."""
        return max(self.p99_ttft - self.p99_replica_ttft, 0.0) / self.p99_ttft


def headroom(data: RunData) -> Headroom | None:
    """The delays of a run with first tokens; None for others."""
    log, queries = data.log, data.queries
    if log is None or queries is None or log.p99_ttft_ms is None or _MEAN_TTFT not in log.values:
        return None
    ttft = (queries["first_token_s"] - queries["issue_s"]) * _MS
    if np.isnan(ttft).all():
        return None
    return Headroom(
        mean_late=log.number(_MEAN_TTFT) / 1e6 - float(np.nanmean(ttft)),
        p99_late=log.p99_ttft_ms - percentile(ttft, 99),
        p99_send=percentile((queries["send_s"] - queries["issue_s"]) * _MS, 99),
        p99_replica_ttft=percentile((queries["first_token_s"] - queries["send_s"]) * _MS, 99),
        p99_ttft=log.p99_ttft_ms,
    )


def late_client(data: RunData) -> Iterator[Finding]:
    """LoadGen's threads delay queries by a part of the TTFT limit that matters."""
    found, log = headroom(data), data.log
    if found is None or log is None:
        return
    limit = log.requested_ttft_ms or found.p99_ttft
    delay = found.p99_ttft - found.p99_replica_ttft
    if delay < CLIENT_DELAY.value * limit:
        return
    cpus = int(data.settings["harness_config"]["loadgen_cpus"])
    yield Finding(
        Cause.CLIENT_LATE,
        f"p99 TTFT is {figure(found.p99_ttft, 4)} ms, that of the replicas {figure(found.p99_replica_ttft, 4)} ms",
        {
            "lateness of LoadGen's thread": f"mean {figure(found.mean_late)} ms, p99 TTFT +{figure(found.p99_late)} ms",
            "delay until sent": f"p99 {figure(found.p99_send)} ms",
            "p99 TTFT of the replicas": f"{figure(found.p99_replica_ttft, 4)} ms",
        },
        "keep other programs off the cores of LoadGen's process, or give it more",
        (data.option("harness_config", "loadgen_cpus", cpus + 1),),
        loss=found.share,
        effect=f"{found.share:.0%} of the p99 TTFT",
        look=(str(data.run.path / "loadgen.log"),),
    )
