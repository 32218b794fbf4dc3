"""Runs of the real LoadGen against HTTP servers that work: which answers and counters are recorded."""

from pathlib import Path
from typing import Any

import psutil
import pytest
from http_runs import BEFORE, SAMPLES, make_runs, own_server, pool_of, right
from live_runs import Runs
from real_loadgen import needs_loadgen
from token_server import TokenServer
from waiting import is_alive

from harness_llm.config.load import issued
from harness_llm.loadgen.logs import ACCURACY, DETAIL, parse_detail, read_accuracy_log
from harness_llm.runs.record import Run, RunRecord, State

pytestmark = [needs_loadgen, pytest.mark.processes(seconds=40)]

NO_COUNTS = {"cache_hits": 0, "speculated": 0, "drafts": 0}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    return make_runs(tmp_path_factory.mktemp("http"))


def record_of(done: Run) -> RunRecord:
    assert done.record
    return done.record


@pytest.mark.parametrize("scenario", ["Offline", "Server"])
def test_loadgen_logs_the_token_ids_of_both_servers(runs: Runs, scenario: str) -> None:
    with TokenServer() as one, TokenServer() as other:
        request = runs.request(scenario, f"server_config.url={one.url}/v1, {other.url}")
        with runs.pool(request) as pool:
            assert len(pool.replicas) == 2
            done = runs.run(request, pool, "accuracy")
        assert min(one.posts, other.posts) > BEFORE
    assert done.state is State.VALID
    answers = read_accuracy_log(done.path / ACCURACY)
    assert sorted(answer.qsl_idx for answer in answers) == list(range(SAMPLES))
    for answer in answers:
        assert answer.ids.tolist() == right(answer.qsl_idx)
        assert answer.token_count == len(answer.ids)
        if scenario == "Server":
            assert answer.first is not None
            assert answer.first.tolist() == right(answer.qsl_idx)[:1]
    assert record_of(done).run_facts["counters"] == NO_COUNTS
    assert record_of(done).run_facts["violations"] == request.scenarios[0].violations


@pytest.mark.parametrize(("scenario", "limits"), [("SingleStream", (2000, 200)), ("Interactive", (450, 40))])
def test_loadgen_measures_token_latencies_against_the_limits_of_the_scenario(
    runs: Runs, scenario: str, limits: tuple[float, float]
) -> None:
    with TokenServer() as server, pool_of(runs, scenario, server) as (request, pool):
        done = runs.run(request, pool)
    log = parse_detail(done.path / DETAIL)
    assert log.errors == []
    assert log.query_count == issued(request.scenarios[0].load, "performance")
    assert (log.requested_ttft_ms, log.requested_tpot_ms) == limits
    assert log.p99_ttft_ms is not None
    assert log.p99_ttft_ms > 0


class Caching(TokenServer):
    """Counts a cache hit for every completion."""

    async def _complete(self, writer: Any, request: dict[str, Any]) -> None:
        self.hits += 1
        await super()._complete(writer, request)


@pytest.mark.parametrize(
    ("server", "counters", "violation"),
    [
        (Caching(), NO_COUNTS | {"cache_hits": SAMPLES}, f"prompt tokens were taken from a cache: {SAMPLES}"),
        (TokenServer(metrics=False), None, "no cache hits in the server's metrics"),
    ],
    ids=["hits", "no counters"],
)
def test_cache_hits_and_missing_counters_are_violations(
    runs: Runs, server: TokenServer, counters: Any, violation: str
) -> None:
    with server, pool_of(runs, "Offline", server) as (request, pool):
        record = record_of(runs.run(request, pool, "accuracy"))
    assert record.state is State.VALID
    assert record.run_facts["counters"] == counters
    assert violation in record.run_facts["violations"][-1]
    assert violation in record.notes[-1]


def test_stopped_replica_exits_after_its_server_has_freed_memory(runs: Runs) -> None:
    """The next engine may need the accelerators' memory."""
    request = runs.request("Server", own_server("--hold", 1024))
    with runs.pool(request) as pool:
        family = psutil.Process(pool.replicas[0].process.pid).children(recursive=True)
    assert [process for process in family if is_alive(process)] == []


def test_killed_replica_ends_its_server(runs: Runs) -> None:
    request = runs.request("Server", own_server())
    with runs.pool(request) as pool:
        replica = psutil.Process(pool.replicas[0].process.pid)
        family = replica.children(recursive=True)
        assert len(family) == 2  # the server guard and the server
        replica.kill()
        _, alive = psutil.wait_procs(family, timeout=60)
        assert [process for process in alive if is_alive(process)] == []


def test_server_log_is_kept_with_the_run(runs: Runs, tmp_path: Path) -> None:
    request = runs.request("Offline", own_server())
    with runs.pool(request):
        pass
    assert "token_server.py --port" in (request.log_folder / "server-0.log").read_text()
