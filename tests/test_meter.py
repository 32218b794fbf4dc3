import numpy as np

from harness_llm.loadgen.meter import WINDOW, Meter
from harness_llm.protocol.messages import Answer

NOW = 100.0


def answer(query: int, length: int) -> Answer:
    return Answer(query, np.arange(length, dtype=np.int32))


def test_offline_totals_have_no_first_tokens() -> None:
    meter = Meter()
    meter.issue([1, 2, 3], now=0.0, stream=False)
    meter.finish([answer(1, 4), answer(3, 2)], now=1.0)
    assert meter.snapshot(NOW) == {"issued": 3, "done": 2, "tokens": 6}


def test_ttft_and_tpot_in_milliseconds() -> None:
    meter = Meter()
    meter.issue([1, 2, 3], now=10.0, stream=True)
    for query, begin in ((1, 10.1), (2, 10.2), (3, 10.3)):
        meter.first([answer(query, 1)], now=begin)
    meter.finish([answer(1, 11)], now=10.6)  # 0.5 s for ten tokens after the first
    meter.finish([answer(2, 6)], now=10.5)  # 0.3 s for five
    meter.finish([answer(3, 6)], now=10.8)  # 0.5 s for five
    snapshot = meter.snapshot(NOW)
    assert snapshot["ttft"] == {"p50_ms": 200, "p99_ms": 300, "count": 3, "over": 0}
    assert snapshot["tpot"] == {"p50_ms": 60, "p99_ms": 100, "count": 3, "over": 0}


def test_answer_of_one_token_has_no_tpot() -> None:
    meter = Meter()
    meter.issue([1], now=0.0, stream=True)
    meter.first([answer(1, 1)], now=1.0)
    meter.finish([answer(1, 1)], now=2.0)
    assert "tpot" not in meter.snapshot(NOW)


def test_meter_keeps_a_window_of_the_last_queries() -> None:
    meter = Meter()
    for query in range(2 * WINDOW):
        begin = float(query)
        meter.issue([query], begin, stream=True)
        meter.first([answer(query, 1)], begin + (9 if query < WINDOW else 1))
        meter.finish([answer(query, 2)], begin + 10)
    snapshot = meter.snapshot(NOW)["ttft"]
    assert (snapshot["p50_ms"], snapshot["p99_ms"], snapshot["count"]) == (1000, 1000, 2 * WINDOW)
    assert meter.done == 2 * WINDOW
    assert not meter._issued_at
    assert not meter._first_at


def test_latencies_above_the_limit_are_counted_over_all_snapshots() -> None:
    """LoadGen's percentile must be strictly below the limit."""
    meter = Meter({"ttft": 2000, "tpot": 200})
    for query, seconds in enumerate((1.0, 2.0, 3.0)):
        meter.issue([query], 0.0, stream=True)
        meter.first([answer(query, 1)], seconds)
        meter.finish([answer(query, 11)], seconds + 1.5)
        meter.snapshot(NOW)
    snapshot = meter.snapshot(NOW)
    assert (snapshot["ttft"]["count"], snapshot["ttft"]["over"]) == (3, 2)
    assert (snapshot["tpot"]["count"], snapshot["tpot"]["over"]) == (3, 0)


def test_queries_that_wait_for_longer_than_the_limit_count_as_slow() -> None:
    meter = Meter({"ttft": 2000, "tpot": 200})
    meter.issue([1, 2], 10.0, stream=True)
    meter.issue([3], 11.5, stream=True)
    meter.first([answer(1, 1)], 10.1)
    found = [meter.snapshot(now)["ttft"] for now in (11.9, 12.0, 13.5)]
    assert [(one["count"], one["over"]) for one in found] == [(1, 0), (2, 1), (3, 2)]
