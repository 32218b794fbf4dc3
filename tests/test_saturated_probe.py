"""A saturated probe ends when its last query was issued."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from harness_llm.config.load import Load
from harness_llm.errors import GateFailed
from harness_llm.loadgen.early_stopping import allowed_over
from harness_llm.pipeline.tuning.finished_run import FinishedRun, Queries
from harness_llm.pipeline.tuning.saturated_probe import SaturatedProbe
from harness_llm.pipeline.tuning.search_steps import Goal, Measurement

TOTAL = 10_000
ALLOWED = allowed_over(TOTAL)
LIMITS_MS = {"ttft": 2000.0, "tpot": 200.0}
GOAL = Goal(Load("Server", 9000, 9000, 600, 1000), seats=256)
THROUGHPUT, TARGET, ARRIVALS_S = 500, 5000, 20


class Screen:
    """Keeps the messages that it is given."""

    def __init__(self) -> None:
        self.shown: list[Mapping[str, Any]] = []

    def progress(self, body: Mapping[str, Any]) -> None:
        self.shown.append(body)


def progress(*, issued: int = TOTAL, over: int = ALLOWED + 1, unanswered: int = TOTAL // 2) -> dict[str, Any]:
    return {"event": "progress", "issued": issued, "unanswered": unanswered, "ttft": {"over": over}}


def test_saturated_probe_ends_after_its_last_query() -> None:
    screen = Screen()
    with pytest.raises(GateFailed, match="ended with the last query") as error:
        SaturatedProbe(screen, TOTAL).progress(progress())
    assert f"{ALLOWED + 1} of {TOTAL} queries are above the TTFT limit" in error.value.found
    assert screen.shown == [progress()]


@pytest.mark.parametrize(
    "body",
    [
        {"event": "started"},
        progress(issued=TOTAL - 1),
        progress(over=ALLOWED),
        progress(unanswered=TOTAL // 20),
        {"event": "progress", "issued": TOTAL, "unanswered": TOTAL},
    ],
    ids=["not running", "queries left", "not INVALID", "almost answered", "no first token"],
)
def test_other_probes_continue(body: Mapping[str, Any]) -> None:
    screen = Screen()
    SaturatedProbe(screen, TOTAL).progress(body)
    assert screen.shown == [body]


def measured(completed_until_s: float) -> Measurement:
    """A probe at ten times the throughput, of which the answers until a time are known."""
    issued = np.linspace(0, ARRIVALS_S, TARGET * ARRIVALS_S)
    first = np.maximum(np.arange(1, len(issued) + 1) / THROUGHPUT, issued + 0.01)
    completed = first + 0.3
    known = completed <= completed_until_s
    queries = Queries(*(values[known] for values in (issued, first, completed, np.full(len(issued), 10.0))))
    duration_s = float(queries.completed.max())
    return FinishedRun(queries, {}, duration_s, TARGET, full=False, valid=False).measure_server(GOAL, LIMITS_MS)


def test_throughput_of_a_probe_that_ended_early_is_that_of_a_whole_one() -> None:
    early, whole = measured(ARRIVALS_S), measured(np.inf)
    assert early.throughput == pytest.approx(THROUGHPUT, rel=0.01)
    assert whole.throughput == pytest.approx(THROUGHPUT, rel=0.01)
    assert early.saturated
    assert early.completion_s == pytest.approx(whole.completion_s, rel=0.2)
