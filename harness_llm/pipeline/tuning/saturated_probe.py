"""End of a saturated probe: the answers to queries in the queue change neither its verdict nor the throughput."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from harness_llm.errors import GateFailed
from harness_llm.loadgen.early_stopping import allowed_over
from harness_llm.pipeline.run_monitor import Watcher
from harness_llm.pipeline.tuning.search_steps import COMPLETIONS

# Share of the queries that are still unanswered; fewer are answered soon.
_UNANSWERED = 0.1


def is_saturated(total: int, over: int, unanswered: int, seats: int) -> bool:
    """Return whether a run whose last query was issued is INVALID, with many queries in its queue.

    Args:
        total: queries of the run.
        over: queries above the TTFT limit so far.
        unanswered: queries without an answer so far.
        seats: queries that the replicas run at once; the throughput needs several full batches.
    """
    answered = total - unanswered
    return over > allowed_over(total) and unanswered > _UNANSWERED * total and answered >= COMPLETIONS * seats


@dataclass(frozen=True)
class SaturatedProbe:
    """Passes status messages to `watcher`; ends a saturated run of `total` queries after the last one was issued."""

    watcher: Watcher
    total: int
    seats: int

    def progress(self, body: Mapping[str, Any]) -> None:
        """Take a status message of LoadGen's process.

        Raises:
            GateFailed: the run is saturated.
        """
        self.watcher.progress(body)
        if body["event"] != "progress" or body["issued"] < self.total:
            return
        over, unanswered = body.get("ttft", {}).get("over", 0), body["unanswered"]
        if is_saturated(self.total, over, unanswered, self.seats):
            raise GateFailed(
                "ended before the last answer",
                expected=f"at most {allowed_over(self.total)} above it",
                found=f"{over} of {self.total} queries are above the TTFT limit, {unanswered} unanswered",
            )
