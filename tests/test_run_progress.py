"""State of a run from status messages: times, throughput, predicted verdict; and its text in terminals of all sizes."""

from collections.abc import Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from live_messages import GPUS, PROBED, VIEW, latency, progress, replica

from harness_llm.pipeline.live import run_progress
from harness_llm.pipeline.live.history import ASCII_BLOCKS, History, sparkline
from harness_llm.pipeline.live.predicted_verdict import (
    DEGRADED,
    INVALID,
    OPEN,
    VALID,
    Slow,
    predict_verdict,
)
from harness_llm.pipeline.live.run_progress import RunProgress, RunView, clock
from harness_llm.pipeline.live.run_text import run_line, run_lines


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """The time, to be set."""
    time = SimpleNamespace(s=50.0)
    monkeypatch.setattr(run_progress, "time", SimpleNamespace(monotonic=lambda: time.s))
    return time


def started(now: SimpleNamespace, view: RunView = VIEW, elapsed: float = 20, **body: Any) -> RunProgress:
    run = RunProgress(view)
    run.take({"event": "started"})
    now.s += elapsed
    run.take(progress(**body))
    return run


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0:00"), (5.4, "0:05"), (59.6, "1:00"), (725, "12:05"), (3599.7, "1:00:00"), (3725, "1:02:05"), (-3, "0:00")],
)
def test_durations_are_rendered(seconds: float, text: str) -> None:
    assert clock(seconds) == text


def test_remaining_time_follows_the_prediction_then_the_samples(now: SimpleNamespace) -> None:
    run = RunProgress(VIEW, began=now.s)
    assert run.remaining == 100
    now.s += 10
    run.take({"event": "started"})
    now.s += 20
    run.take(progress(done=49))
    assert run.remaining == 80  # too few to tell
    run.take(progress(done=100))
    assert run.remaining == pytest.approx(180)
    run.take(progress(done=1000))
    assert run.remaining == 0


def test_prediction_of_the_probe_replaces_that_of_the_plan(now: SimpleNamespace) -> None:
    run = RunProgress(VIEW, began=now.s)
    run.take(PROBED)
    assert run.text == (
        "probe: 81.7 samples/s predicted (70 to 90), 24,020 tokens/s, run of 2:05; 31.0 s of load, 0.3 s of drain"
    )
    run.take({"event": "started"})
    assert run.remaining == 125


def test_probe_without_a_prediction_has_a_reason() -> None:
    run = RunProgress(VIEW)
    run.take({"event": "probed", "prediction": None, "reason": "a replica failed"})
    assert run.text == "probe: no prediction: a replica failed"
    assert run.predicted_s == VIEW.predicted_s


# Throughput


def test_rate_is_that_between_two_heartbeats_of_each_replica(now: SimpleNamespace) -> None:
    run = started(now, done=1, replicas=[replica("a", 3, 100.0, 500), replica("b", 4, 7.0, 0)])
    assert run.rates == {}
    now.s += 1
    run.take(progress(done=2, replicas=[replica("a", 3, 102.0, 900), replica("b", 4, 7.0, 0)]))
    assert run.rates == {"a": 200}  # b has sent no heartbeat since
    run.take(progress(done=2, replicas=[replica("a", 3, 103.0, 10), replica("b", 4, 8.0, 50)]))
    assert run.rates == {"a": 200, "b": 50}  # a was restarted
    run.take(progress(done=2, replicas=[replica("b", 4, 9.0, 100)]))
    assert (run.rates, run.rate, run.in_flight) == ({"b": 50}, 50, 4)


def test_history_keeps_the_whole_run_in_its_bins() -> None:
    history = History(bins=8)
    for second in range(1000):
        history.add(second, 10 if second < 500 else 30)
    means = history.means(8)
    assert means[:3] == [10, 10, 10]
    assert means[-3:] == [30, 30, 30]
    assert len(means) <= 8
    assert len(history.means(3)) <= 3
    assert History().means(5) == []


def test_sparkline_is_relative_to_the_highest_value() -> None:
    assert sparkline([0, 5, 10]) == "▁▅█"
    assert sparkline([0, 10], ascii_only=True) == ASCII_BLOCKS[0] + ASCII_BLOCKS[-1]
    assert sparkline([0, 0]) == "▁▁"
    assert sparkline([]) == ""


# Predicted verdict


@pytest.mark.parametrize(
    ("over", "count", "total", "state"),
    [
        (0, 50, 100_000, OPEN),  # too few
        (0, 20_000, 100_000, VALID),
        (180, 20_000, 100_000, OPEN),  # 0.9 % and its uncertainty include the limit
        (400, 20_000, 100_000, INVALID),
        (1001, 20_000, 100_000, INVALID),  # more than 1 % of all queries
        (0, 599, 600, OPEN),  # if the last query is slow, it is one too many
        (0, 600, 600, VALID),
        (5, 500, 600, INVALID),  # below 1 %, but early stopping needs more queries
    ],
)
def test_share_of_slow_queries_predicts_the_verdict(over: int, count: int, total: int, state: str) -> None:
    verdict = predict_verdict({"TTFT": Slow(over, count)}, total, 700, 600)
    assert verdict.state == state, verdict


def test_run_with_too_few_queries_for_early_stopping_is_predicted_invalid() -> None:
    verdict = predict_verdict({"TTFT": Slow(0, 300)}, 458, 700, 600)
    assert str(verdict) == "INVALID: 458 queries are too few for LoadGen's early stopping"
    assert predict_verdict({"TTFT": Slow(0, 459)}, 459, 700, 600).state == VALID
    assert predict_verdict({}, 458, 700, 600).state == VALID  # no limits, as in Offline


def test_run_that_will_be_too_short_is_predicted_invalid(now: SimpleNamespace) -> None:
    run = started(now, elapsed=10, done=500)
    assert str(run.verdict) == "INVALID: duration of 20 s predicted, min_duration is 60 s"


def test_failed_replica_degrades_the_run(now: SimpleNamespace) -> None:
    run = started(now, elapsed=50, done=500)
    run.take({"event": "replica", "text": "replica-1 failed: exit by signal 9"})
    assert run.verdict
    assert (run.verdict.state, run.verdict.reason) == (DEGRADED, "replica-1 failed: exit by signal 9")


def test_verdict_of_an_accuracy_run_is_not_predicted(now: SimpleNamespace) -> None:
    assert started(now, replace(VIEW, min_duration_s=None), done=500).verdict is None


# Text

FIGURES: Mapping[str, Any] = {
    "done": 250,
    "tokens": 50_000,
    "ttft": latency(12.34, 2099.99, over=9, count=250),
    "tpot": latency(1, 2, count=250),
    "devices": GPUS,
}


def test_line_has_the_figures_of_the_run(now: SimpleNamespace) -> None:
    run = started(now, **FIGURES, replicas=[replica("a", 3, 1.0, 0, 0.4), replica("b", 9, 1.0, 0, 0.6)])
    assert run_line(run) == (
        "Server performance: running, 0:20 elapsed, 1:00 left, 250/1000 samples, 2,500 tokens/s, 7 unanswered, "
        "TTFT p50 12.3 p99 2,100.0 ms (limit 2,000 ms, 3.60% above), "
        "TPOT p50 1.0 p99 2.0 ms (limit 200 ms, 0.00% above), "
        "2 replicas: 3 to 9 in flight, KV cache 40% to 60%, "
        "2 gpus: 612 to 640 W, 1,755 to 1,980 MHz, 61 to 70 °C, 98% to 100% busy, 128 GiB, "
        "gpu-1 throttled (power cap), "
        "predicted INVALID: 3.60% of the queries are above the TTFT limit, 0.20% are allowed"
    )


def test_figures_without_limits_are_shown_alone(now: SimpleNamespace) -> None:
    run = started(now, RunView("SingleStream performance", 10, 5), done=1, ttft=latency(1, 2))
    assert "TTFT p50 1.0 p99 2.0 ms" in run_line(run)
    assert "limit" not in run_line(run)
    assert "predicted" not in run_line(run)


@pytest.mark.parametrize("ascii_only", [False, True])
@pytest.mark.parametrize(("width", "height"), [(200, 100), (80, 24), (40, 8), (10, 2), (1, 1)])
def test_view_fits_terminals_of_all_sizes(now: SimpleNamespace, width: int, height: int, ascii_only: bool) -> None:
    replicas = [replica(f"replica-{i}", i, 1.0, 0) for i in range(72)]
    run = started(now, **FIGURES, replicas=replicas)
    now.s += 1
    run.take(progress(**FIGURES, replicas=[replica(f"replica-{i}", i, 2.0, 50 * i) for i in range(72)]))
    lines = run_lines(run, width, height, ascii_only=ascii_only)
    assert len(lines) == min(height, 9 + 72)
    assert all(line.cell_len <= width for line in lines)
    text = "\n".join(line.plain for line in lines)
    assert "Server performance"[: width - 1] in text
    if width == 200:
        assert "predicted  INVALID" in text
        assert "72 replicas: 0 to 71 in flight, KV cache 45%, 0 to 3,550 tokens/s" in text
        assert "replica-71" in text
    if ascii_only:
        assert text.replace("°", "").replace("…", "").isascii()


def test_view_before_the_first_message() -> None:
    assert run_lines(RunProgress(VIEW), 80, 24)[0].plain.partition("  ")[0] == "Server performance"
