"""Measurements of a finished run, from times of queries."""

import numpy as np
import pytest

from harness_llm.config.load import Load
from harness_llm.pipeline.tuning.finished_run import FinishedRun, Queries
from harness_llm.pipeline.tuning.search_steps import Goal, Latency, Measurement

LIMITS_MS = {"ttft": 2000.0, "tpot": 200.0}
COUNT, SECONDS, TOKENS = 9000, 90.0, 101
GOAL = Goal(Load("Server", 9000, 9000, 600, 100), seats=2048)


def probe(ttft_s: np.ndarray | float, tpot_s: np.ndarray | float, p99_ttft_ms: float = 0.0) -> Measurement:
    """A probe of 90 s whose queries arrive evenly."""
    issued = np.linspace(0, SECONDS, COUNT)
    first = issued + ttft_s
    queries = Queries(issued, first, first + (TOKENS - 1) * np.asarray(tpot_s), np.full(COUNT, float(TOKENS)))
    made = FinishedRun(queries, {"ttft": p99_ttft_ms, "tpot": 0.0}, SECONDS, COUNT / SECONDS, full=False, valid=False)
    return made.measure_server(GOAL, LIMITS_MS)


def ttft(measured: Measurement) -> Latency:
    return measured.latencies[0]


def tpot(measured: Measurement) -> Latency:
    return measured.latencies[1]


def test_constant_latencies_are_shares_of_their_limits() -> None:
    measured = probe(0.5, 0.05)
    assert (ttft(measured).ratio, tpot(measured).ratio) == pytest.approx((0.25, 0.25))
    assert measured.valid
    assert not measured.throughput  # not saturated


def test_rising_ttft_is_extrapolated_to_the_full_length() -> None:
    measured = probe(0.1 + np.linspace(0, 0.9, COUNT), 0.05)  # 0.01 s per second, so 6 s after 600 s
    assert ttft(measured).at_least
    assert ttft(measured).ratio == pytest.approx((0.9 + 5.1) / 2, rel=0.1)
    assert not measured.valid
    assert measured.throughput == pytest.approx(100, rel=0.03)


def test_slowly_rising_ttft_that_stays_below_the_limit_is_valid() -> None:
    measured = probe(0.1 + np.linspace(0, 0.05, COUNT), 0.05)
    assert measured.valid
    assert not ttft(measured).at_least


@pytest.mark.parametrize(("tpot_s", "valid"), [(0.02, True), (0.12, False)])
def test_filling_batch_raises_tpot_until_the_full_length(tpot_s: float, valid: bool) -> None:
    """TPOT and the queries in flight rise by half during the probe; far below the limit the target is VALID."""
    measured = probe(0.1, tpot_s * (1 + np.linspace(0, 0.5, COUNT)))
    assert measured.valid is valid
    assert tpot(measured).ratio > 1.5 * tpot_s / 0.2
    assert tpot(measured).sd > 0.02


def test_queries_beyond_the_seats_wait_for_their_first_token() -> None:
    """An overloaded engine has seats for all queries of the probe; they are taken before the full length."""
    growing = 5 + np.linspace(0, 20, COUNT)  # seconds of an answer: 500 to 2,500 in flight
    assert not ttft(probe(0.1, growing / TOKENS / 20)).at_least
    assert ttft(probe(0.1, growing / TOKENS)).at_least


def test_lateness_of_loadgen_is_part_of_its_latencies() -> None:
    assert ttft(probe(0.5, 0.05, p99_ttft_ms=800)).ratio == pytest.approx(0.4)
