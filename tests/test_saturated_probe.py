"""A saturated probe ends when its last query was issued."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from live_runs import OnFirstAnswer
from real_loadgen import needs_loadgen

from benchmarks.replayed import replay_bench, with_load
from harness_llm.config.load import Load, issued
from harness_llm.errors import GateFailed
from harness_llm.loadgen.early_stopping import allowed_over
from harness_llm.pipeline.run import execute_run
from harness_llm.pipeline.tuning.finished_run import FinishedRun, Queries
from harness_llm.pipeline.tuning.saturated_probe import SaturatedProbe
from harness_llm.pipeline.tuning.search_steps import Goal, Measurement
from harness_llm.pipeline.tuning.trial_figures import measure
from harness_llm.runs.record import State

TOTAL = 10_000
ALLOWED = allowed_over(TOTAL)
LIMITS_MS = {"ttft": 2000.0, "tpot": 200.0}
SEATS = 256
GOAL = Goal(Load("Server", 9000, 9000, 600, 1000), seats=SEATS)
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
    with pytest.raises(GateFailed, match="ended before the last answer") as error:
        SaturatedProbe(screen, TOTAL, SEATS).progress(progress())
    assert f"{ALLOWED + 1} of {TOTAL} queries are above the TTFT limit" in error.value.found
    assert screen.shown == [progress()]


@pytest.mark.parametrize(
    "body",
    [
        {"event": "started"},
        progress(issued=TOTAL - 1),
        progress(over=ALLOWED),
        progress(unanswered=TOTAL // 20),
        progress(unanswered=TOTAL - 3 * SEATS + 1),
        {"event": "progress", "issued": TOTAL, "unanswered": TOTAL},
    ],
    ids=["not running", "queries left", "not INVALID", "almost answered", "batch not full", "no first token"],
)
def test_other_probes_continue(body: Mapping[str, Any]) -> None:
    screen = Screen()
    SaturatedProbe(screen, TOTAL, SEATS).progress(body)
    assert screen.shown == [body]


def measured(completed_until_s: float) -> Measurement:
    """A probe at ten times the throughput, of which the answers until a time are known."""
    issued = np.linspace(0, ARRIVALS_S, TARGET * ARRIVALS_S)
    first = np.maximum(np.arange(1, len(issued) + 1) / THROUGHPUT, issued + 0.01)
    completed = first + 0.3
    known = completed <= completed_until_s
    queries = Queries(issued[known], first[known], completed[known], np.full(sum(known), 10.0), issued[~known])
    duration_s = float(queries.completed.max())
    return FinishedRun(queries, {}, duration_s, TARGET, full=False, valid=False).measure_server(GOAL, LIMITS_MS)


def test_throughput_of_a_probe_that_ended_early_is_that_of_a_whole_one() -> None:
    early, whole = measured(ARRIVALS_S), measured(np.inf)
    assert early.throughput == pytest.approx(THROUGHPUT, rel=0.01)
    assert whole.throughput == pytest.approx(THROUGHPUT, rel=0.01)
    assert early.saturated
    assert early.completion_s == pytest.approx(whole.completion_s, rel=0.2)
    assert early.latencies[1].ratio == pytest.approx(whole.latencies[1].ratio, rel=0.2)


# 32 sequences at once, an answer of 20 tokens in 80 ms: 400 queries/s.
PACE = (
    *("replay_config.step_s=0.004", "replay_config.step_s_per_sequence=0", "replay_config.prefill_tokens_per_s=0"),
    *("replay_config.output_tokens=20", "replay_config.output_spread=0", "llm_config.max_num_seqs=32"),
)


@needs_loadgen
@pytest.mark.processes
def test_saturated_run_ends_and_the_replicas_take_the_next_one(tmp_path: Path) -> None:
    with replay_bench(tmp_path, "Server", 1, *PACE) as bench:
        loaded = with_load(bench, 2000, seconds=4)
        total = issued(loaded.plan.load, "performance")
        run = execute_run(loaded, "performance", SaturatedProbe(OnFirstAnswer(), total, 32))
        assert run.state is State.INVALID
        assert run.reasons[0].startswith("ended before the last answer")
        goal = Goal(loaded.plan.load, seats=32)
        found = measure(run, goal, loaded.request.rules, 2000, full=False, seconds=0)
        assert 200 < found.throughput < 440
        assert found.latencies[0].at_least
        following = execute_run(with_load(bench, 250, seconds=1), "performance", OnFirstAnswer())
    assert following.state is State.VALID
