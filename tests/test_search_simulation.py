"""The search on a small node in simulated time, with the pace of the replay engine."""

import numpy as np
import pytest

from benchmarks import drain
from benchmarks.node import Tokens
from benchmarks.search import Case, Fault, System
from benchmarks.server_node import ServerNode
from harness_llm.replicas.engines.replay_timing import Pace

PACE = Pace(prefill_s=0.0001, step_s=0.01, sequence_s=0.0005, seats=16, budget=512)
# A full batch of 16 takes 18 ms per step: 44 answers of 20 tokens per second and replica, less the time of the prompts.
SYSTEM = System(ServerNode(PACE, Tokens(30, 60, 0.9, 20, 60, 0.9), 500), 2, {"ttft": 300, "tpot": 40}, 70)


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drain, "MIN_DURATION_S", 60)


def test_single_query_takes_a_step_per_token() -> None:
    node = ServerNode(PACE, Tokens(30, 60, 0, 20, 60, 0), 1)
    served = node.run([1.0], np.array([1.0]), np.random.default_rng(0))
    first = 0.01 + 30 * 0.0001
    assert served.first[0] == pytest.approx(1.0 + first)
    assert served.completed[0] == pytest.approx(1.0 + first + 19 * 0.0105)


def test_all_queries_are_answered_and_a_slow_replica_delays_them() -> None:
    arrivals = np.cumsum(np.random.default_rng(0).exponential(1 / 50, 2000))
    equal, slow = (SYSTEM.node.run([1.0, speed], arrivals, np.random.default_rng(0)) for speed in (1.0, 0.5))
    assert not np.isnan(equal.completed).any()
    assert (equal.first > equal.issued).all()
    assert slow.latencies_ms("answer").mean() > 1.2 * equal.latencies_ms("answer").mean()


FAULTS = [Fault(), pytest.param(Fault(slowest=0.8), marks=pytest.mark.slow), Fault(failing=frozenset({1}))]


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("start", [pytest.param(0.1, marks=pytest.mark.slow), 10])
def test_capacity_is_found(fault: Fault, start: float) -> None:
    case = Case(SYSTEM, fault, seed=2)
    done, trials = case.search(start)
    assert done.target == pytest.approx(case.capacity, rel=0.08)  # runs of 60 s vary; benchmarks has full ones
    assert sum(trial.failed for trial in trials) == len(fault.failing)


@pytest.mark.slow
def test_noise_changes_the_trials_and_a_seed_repeats_them() -> None:
    quiet, noisy, again = (Case(SYSTEM, Fault(noise=noise), seed=2) for noise in (0.0, 0.02, 0.02))
    assert noisy.search(10)[1] == again.search(10)[1]
    assert noisy.search(10)[1] != quiet.search(10)[1]
