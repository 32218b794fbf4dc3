import pytest

from harness_llm.config.load import Load, issued, seconds
from harness_llm.errors import GateFailed
from harness_llm.loadgen.prediction import Prediction, judge_prediction

SAMPLES = 24576
KEY = "llama2-70b.Server.target_qps"


def load(scenario: str, qps: float = 100, latency_s: float = 0.02) -> Load:
    return Load(scenario, SAMPLES, SAMPLES, 600, qps, latency_s)


def prediction(rate: float, *, within: float = 0.1, tail_s: float = 0) -> Prediction:
    return Prediction(
        samples_per_second=rate,
        low=rate * (1 - within),
        high=rate * (1 + within),
        tokens_per_second=rate * 294,
        tail_s=tail_s,
        likely_tail_s=tail_s,
    )


@pytest.mark.parametrize(
    ("given", "found"),
    [
        (load("Server"), prediction(101)),
        (load("Server"), prediction(92)),  # within the bounds
        (load("Offline"), prediction(100)),
        (load("Offline"), prediction(130)),  # 73,728 samples in 567 s, and in 630 s at the lower bound
        (load("Offline"), prediction(1)),
        (load("SingleStream"), prediction(45)),
    ],
)
def test_a_target_that_may_become_valid_is_accepted(given: Load, found: Prediction) -> None:
    judge_prediction(given, found, KEY)


def test_a_server_target_above_the_bounds_is_refused() -> None:
    with pytest.raises(GateFailed, match="above the throughput") as caught:
        judge_prediction(load("Server", 100), prediction(50), KEY)
    assert caught.value.where == KEY
    assert caught.value.expected == "at most 55 queries/s"
    assert caught.value.found == "100 queries/s, predicted throughput 50 samples/s (45 to 55)"
    assert caught.value.hint == f"set {KEY} = 40"
    assert caught.value.exit_code == 1
    judge_prediction(load("Server", 40), prediction(50), KEY)


def test_an_offline_target_that_ends_the_run_too_early_is_refused() -> None:
    with pytest.raises(GateFailed, match="shorter than min_duration") as caught:
        judge_prediction(load("Offline", 100), prediction(500), "x.Offline.target_qps")
    assert caught.value.expected == "at least 600 s"
    assert caught.value.found == ("at most 164 s: 73728 samples, predicted throughput 500 samples/s (450 to 550)")
    assert caught.value.hint == "set x.Offline.target_qps = 550"


def test_a_long_last_answer_may_fill_the_duration() -> None:
    given, found = load("Offline", 100), prediction(140)
    with pytest.raises(GateFailed):
        judge_prediction(given, found, KEY)
    judge_prediction(given, prediction(140, tail_s=20), KEY)


@pytest.mark.parametrize(
    ("scenario", "rate"),
    [("Offline", 0.9), ("Offline", 500), ("Offline", 1e6), ("SingleStream", 130), ("SingleStream", 3000)],
)
def test_the_advised_target_runs_long_enough(scenario: str, rate: float) -> None:
    given = Load(scenario, 100, 100, 600, target_qps=0.01, target_latency_s=10)
    with pytest.raises(GateFailed) as caught:
        judge_prediction(given, prediction(rate), "key")
    value = float(caught.value.hint.rpartition("= ")[2])
    advised = Load(scenario, 100, 100, 600, value, value / 1000)
    assert seconds(advised, "performance", rate) >= 600
    assert issued(advised, "performance") < 3 * 600 * rate + 200
