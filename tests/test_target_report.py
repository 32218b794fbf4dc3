"""Lines of the search for a target."""

from harness_llm.pipeline.tuning.search_steps import Latency, Measurement
from harness_llm.pipeline.tuning.target_report import describe_trial
from harness_llm.runs.trial_store import Trial


def test_latencies_are_shares_or_multiples_of_their_limits() -> None:
    latencies = (Latency(1053.6, 0.5, True), Latency(0.87, 0.02))
    measured = Measurement(4000, False, False, 18, latencies=latencies, throughput=195.4, duration_s=18)
    trial = Trial(
        number=0, kind="probe", scenario="Server", state="INVALID", seconds=18, target_qps=4000, reason="ended early"
    )
    assert describe_trial(trial, measured) == (
        "probe 0: INVALID at 4000, p99 TTFT at least 1054 times its limit (queue grows), p99 TPOT 87% of its limit, "
        "18.0 s, throughput 195.4 samples/s, ended early"
    )
