import pytest

from harness_llm.errors import GateFailed
from harness_llm.loadgen.probe import judge_probe
from harness_llm.plan import Load, issued, seconds

SAMPLES = 24576
KEY = "llama2-70b.Server.target_qps"


def load(scenario: str, qps: float = 100, latency_s: float = 0.02) -> Load:
    return Load(scenario, SAMPLES, SAMPLES, 600, qps, latency_s)


@pytest.mark.parametrize(
    ("given", "rate"),
    [
        (load("Server"), 101),
        (load("Server"), 90),  # too close to call from a probe
        (load("Offline"), 100),
        (load("Offline"), 1),
        (load("SingleStream"), 45),
    ],
)
def test_what_may_be_valid_goes_on(given: Load, rate: float) -> None:
    judge_probe(given, rate, KEY)


def test_a_server_that_cannot_keep_up_is_stopped_with_a_rate_that_it_can() -> None:
    with pytest.raises(GateFailed, match="cannot keep up") as caught:
        judge_probe(load("Server", 100), 50, KEY)
    assert caught.value.where == KEY
    assert caught.value.expected == "100 queries/s"
    assert caught.value.found == "50.0 queries/s in the probe"
    assert caught.value.hint == f"set {KEY} = 40.0"
    assert caught.value.exit_code == 1
    judge_probe(load("Server", 40), 50, KEY)


def test_an_offline_run_that_would_end_early_is_stopped() -> None:
    given = load("Offline", 100)
    with pytest.raises(GateFailed, match="too early to be VALID") as caught:
        judge_probe(given, 500, "x.Offline.target_qps")
    assert caught.value.expected == "at least 600 s"
    assert caught.value.found == "73728 samples at 500.0 samples/s last 147 s"
    assert caught.value.hint == "set x.Offline.target_qps = 550"


@pytest.mark.parametrize(
    ("scenario", "rate"),
    [("Offline", 130), ("Offline", 500), ("Offline", 1e6), ("SingleStream", 130), ("SingleStream", 3000)],
)
def test_who_follows_the_advice_runs_long_enough(scenario: str, rate: float) -> None:
    given = load(scenario, qps=1, latency_s=1)
    with pytest.raises(GateFailed) as caught:
        judge_probe(given, rate, "key")
    value = float(caught.value.hint.rpartition("= ")[2])
    advised = load(scenario, qps=value, latency_s=value / 1000)
    assert seconds(advised, "performance", rate) >= 600
    assert issued(advised, "performance") < issued(given, "performance") + 3 * 600 * rate
