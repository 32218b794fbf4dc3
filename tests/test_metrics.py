"""Metrics for Prometheus: requested during the start of a pool, in a real replay run, and between runs."""

import io
import socket
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families
from real_loadgen import needs_loadgen
from rich.console import Console

from benchmarks.replayed import AT_ONCE, replay_bench, with_load
from harness_llm.errors import ConfigError
from harness_llm.pipeline.live.metrics import serve_metrics
from harness_llm.pipeline.live.run_progress import RunView
from harness_llm.pipeline.panel import Panel
from harness_llm.pipeline.run import ScenarioContext, execute_run
from harness_llm.replicas.engines.server_process import free_port
from harness_llm.replicas.start_phase import READY, Phase
from harness_llm.replicas.start_progress import StartStatus

pytestmark = [needs_loadgen, pytest.mark.engine(seconds=20), pytest.mark.processes]

Samples = dict[tuple[str, ...], float]
"""Values by name of the metric and sorted values of its labels."""


def scrape(port: int) -> Samples:
    response = httpx.get(f"http://127.0.0.1:{port}/metrics", trust_env=False)
    assert response.status_code == 200
    families = text_string_to_metric_families(response.text)
    return {
        (sample.name.removeprefix("harness_llm_"), *sorted(sample.labels.values())): sample.value
        for family in families
        for sample in family.samples
    }


@pytest.fixture
def shown() -> Panel:
    return Panel(Console(file=io.StringIO()))


@pytest.fixture
def port(shown: Panel) -> Iterator[int]:
    port = free_port()
    with serve_metrics(shown.state, port):
        yield port
    with pytest.raises(httpx.ConnectError):
        scrape(port)


def test_start_of_a_pool(shown: Panel, port: int) -> None:
    assert scrape(port) == {("run_in_progress",): 0}
    shown.starting(StartStatus({"replica-0": Phase("capturing graphs", 0.45), "replica-1": Phase(READY)}, 65))
    found = scrape(port)
    assert found["process_phase", "capturing graphs", "replica-0"] == 1
    assert found["process_phase_done_ratio", "replica-0"] == 0.45
    assert found["process_phase", "ready", "replica-1"] == 1
    assert found["start_seconds",] == 65


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ScenarioContext]:
    folder = tmp_path_factory.mktemp("metrics")
    with replay_bench(folder, "Server", 3, *AT_ONCE, "replay_config.step_s=0.02") as bench:
        workspace = replace(bench.request.workspace, root=folder)
        yield replace(bench, request=replace(bench.request, workspace=workspace))


class Scraper:
    """Shows a run, and requests the metrics with each status message of it."""

    def __init__(self, shown: Panel, port: int) -> None:
        self._shown, self._port = shown, port
        self.found: list[Samples] = []

    def progress(self, body: Mapping[str, Any]) -> None:
        self._shown.progress(body)
        self.found.append(scrape(self._port))


def test_run_and_between_runs(shown: Panel, port: int, bench: ScenarioContext) -> None:
    scraper = Scraper(shown, port)
    shown.begin(RunView("Server performance", 400, 4, bench.request.rules.latency_ms["Server"], 0))
    run = execute_run(with_load(bench, 100, seconds=4), "performance", scraper)
    shown.end()
    shown.state.count(run.state)
    between = scrape(port)
    assert between == {("run_in_progress",): 0, ("runs_total", run.state): 1}
    final = scraper.found[-1]
    assert run.record
    assert final["queries_answered_total",] == final["queries_issued_total",] == run.record.run_facts["samples"]
    assert final["queries_unanswered",] == 0
    assert final["latency_limit_seconds", "ttft"] == 2.0
    assert final["latency_seconds", "0.99", "tpot"] > 0
    assert any(found.get(("replica_in_flight_queries", "replica-2"), 0) > 0 for found in scraper.found)
    assert any(found.get(("output_tokens_per_second",), 0) > 0 for found in scraper.found)
    assert any(("device_utilisation_ratio", "cpu") in found for found in scraper.found)
    assert any(name == "predicted_verdict" for found in scraper.found for name, *_ in found)


def test_port_in_use_is_refused(shown: Panel) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        with (
            pytest.raises(ConfigError, match="port for the metrics"),
            serve_metrics(shown.state, other.getsockname()[1]),
        ):
            pass
