from dataclasses import replace
from pathlib import Path

import pytest
from real_loadgen import needs_loadgen, real_issued

from harness_llm.config.load import Load, issued, seconds

LLAMA2 = 24576
CNN = 13368


def offline(qps: float, samples: int = LLAMA2, min_duration_s: float = 600) -> Load:
    return Load("Offline", samples, samples, min_duration_s, qps)


def server(qps: float, samples: int = LLAMA2, min_duration_s: float = 600) -> Load:
    return Load("Server", samples, samples, min_duration_s, qps)


def single_stream(latency_s: float, samples: int = LLAMA2, min_duration_s: float = 600) -> Load:
    return Load("SingleStream", samples, samples, min_duration_s, 0, latency_s)


@pytest.mark.parametrize(
    ("load", "rate", "count", "minutes"),
    [
        (server(5), 999, LLAMA2, 81.92),  # a slow Server run is the whole data set; its rate is LoadGen's
        (server(40), 999, LLAMA2, 10.24),
        (server(40.64), 999, LLAMA2, 10.08),
        (server(41.5), 999, 2 * LLAMA2, 19.74),
        (server(22.07, CNN), 999, CNN, 10.09),
        (server(22.4, CNN), 999, 2 * CNN, 19.89),
        (server(5, min_duration_s=14400), 999, 3 * LLAMA2, 245.76),
        (offline(5), 5, LLAMA2, 81.92),
        (offline(100), 100, 3 * LLAMA2, 12.288),
        (offline(100), 200, 3 * LLAMA2, 6.144),  # faster than its target: ends before its 600 s
        (single_stream(0.05), 20, LLAMA2, 20.48),
        (single_stream(0.02), 50, 3 * LLAMA2, 24.576),
    ],
)
def test_performance_run_issues_complete_passes_of_the_data_set(
    load: Load, rate: float, count: int, minutes: float
) -> None:
    assert issued(load, "performance") == count
    assert seconds(load, "performance", rate) / 60 == pytest.approx(minutes, rel=1e-3)


def test_accuracy_run_is_one_pass_at_the_target_rate() -> None:
    assert {issued(load, "accuracy") for load in (offline(100), server(100), single_stream(0.001))} == {LLAMA2}
    assert seconds(server(22.2, CNN), "accuracy", rate=999) == pytest.approx(CNN / 22.2)
    assert seconds(offline(100), "accuracy", rate=50) == pytest.approx(LLAMA2 / 50)


def test_compliance_run_issues_the_queries_of_its_audit_config() -> None:
    assert issued(offline(100), "TEST06", audit_samples=100) == 100
    assert seconds(server(10), "TEST06", rate=999, audit_samples=100) == pytest.approx(10)


@needs_loadgen
@pytest.mark.parametrize(
    ("load", "passes"),
    [
        (offline(100, 10, 0.1), 2),
        (offline(100, 11, 0.1), 1),  # 1.1 * 0.1 * 100 is a little more than 11 and cut
        (replace(offline(10, 12, 0.1), min_query_count=24), 2),
        (server(1000, 100, 0.35), 4),
        (server(20000, CNN, 0.6), 1),  # a run of 600 s at 20/s, a thousand times as fast
        (replace(server(1000, 200, 0.1), min_query_count=1), 1),
        (replace(server(1000, 40, 0.01), min_query_count=41), 2),
        (single_stream(0.002, 30, 0.1), 4),
        (single_stream(0.002, 10, 0.1), 11),  # whole already: one more
        (replace(single_stream(0.002, 200, 0.1), min_query_count=1), 1),
        (replace(single_stream(0.002, 200, 0.1), min_query_count=200), 2),
    ],
    ids=lambda value: f"{value.scenario}-{value.samples}" if isinstance(value, Load) else "",
)
def test_loadgen_issues_the_planned_queries(tmp_path: Path, load: Load, passes: int) -> None:
    single = load.scenario == "SingleStream"
    target = f"target_latency = {load.target_latency_s * 1000:g}" if single else f"target_qps = {load.target_qps:g}"
    lines = (
        target,
        f"min_duration = {load.min_duration_s * 1000:g}",
        f"min_query_count = {load.min_query_count or 1}",
        f"performance_sample_count_override = {load.samples}",
    )
    text = "".join(f"*.{load.scenario}.{line}\n" for line in lines)
    found = real_issued(tmp_path, text, "llama2-70b", load.scenario, samples=load.samples, test="performance")
    assert found == issued(load, "performance") == passes * load.samples


@needs_loadgen
@pytest.mark.parametrize("scenario", ["Offline", "Server", "SingleStream"])
def test_loadgen_issues_each_sample_once_in_accuracy_mode(tmp_path: Path, scenario: str) -> None:
    text = f"*.Server.target_qps = 1000\n*.{scenario}.performance_sample_count_override = 40\n"
    assert real_issued(tmp_path, text, "llama2-70b", scenario, samples=40, test="accuracy") == 40
