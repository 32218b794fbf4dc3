"""The simulated end of Offline, on a small node."""

import numpy as np
import pytest

from benchmarks.drain import Node, Scheduled, Simulation, Static, Work, draw
from harness_llm.replicas.engines.replay_timing import Pace

NODE = Node(Pace(0.0001, 0.02, 0.0001, 16, 1024), 1)
SPEEDS = [0.9, 0.95, 1.05, 1.1]


def work(queries: int = 1200) -> Work:
    rng = np.random.default_rng(3)
    lengths = rng.integers(2, 120, (2, queries))
    return Work(lengths[0], lengths[1], rng.permutation(queries))


def test_top_up_idles_less_than_equal_shares(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.drain.SPEEDS", SPEEDS)
    topped, static = (Simulation(NODE, work(), feeder, SPEEDS).run() for feeder in (Scheduled, Static))
    assert static.idle_share > 0.06  # (1 / 0.9 - mean of 1 / speed) * 0.9
    assert topped.idle_share < static.idle_share / 3
    assert topped.seconds < static.seconds
    assert 0 < topped.idle_slots < static.idle_slots < 1
    assert topped.tail_s < static.tail_s


def test_single_replica_is_never_idle(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.drain.SPEEDS", [1.0])
    drain = Simulation(NODE, work(100), Scheduled, [1.0]).run()
    assert drain.idle_share == 0
    assert drain.last == [drain.seconds]


def test_drawn_samples_have_the_lengths_of_openorca() -> None:
    drawn = draw(Node(NODE.pace, 93), seed=1)
    assert drawn.prompts.mean() == pytest.approx(294, rel=0.03)
    assert drawn.answers.mean() == pytest.approx(294.45, rel=0.03)
    assert drawn.answers.max() == drawn.prompts.max() == 1024
    assert len(drawn.samples) == 3 * 24_576  # 1.1 * 600 s * 93 samples/s, in whole passes
    assert sorted(drawn.samples[:24_576]) == list(range(24_576))
