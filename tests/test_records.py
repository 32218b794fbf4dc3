"""Records of runs of the real LoadGen with replay replicas."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from live_runs import OnFirstAnswer
from numpy.typing import NDArray

from benchmarks.replayed import AT_ONCE, replay_bench, with_load
from harness_llm.errors import ConfigError, RunFailed
from harness_llm.loadgen.logs import DETAIL, parse_detail
from harness_llm.pipeline.run import ScenarioContext, execute_run
from harness_llm.protocol.token_store import open_store
from harness_llm.runs.records import Records, read_records

pytestmark = [pytest.mark.engine(seconds=40), pytest.mark.processes]

# Latencies far above the delays of a loaded machine.
SLOW = ("replay_config.step_s=0.2", "replay_config.output_tokens=6", "replay_config.output_spread=0.3")
LOADED_MS = 100


@contextmanager
def replayed(
    tmp_path_factory: pytest.TempPathFactory, scenario: str, replicas: int, *sets: str
) -> Iterator[ScenarioContext]:
    folder = tmp_path_factory.mktemp("records")
    with replay_bench(folder, scenario, replicas, "replay_config.processes=2", *AT_ONCE, *sets) as bench:
        workspace = replace(bench.request.workspace, root=folder)
        yield replace(bench, request=replace(bench.request, workspace=workspace))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ScenarioContext]:
    with replayed(tmp_path_factory, "Server", 3, *SLOW) as bench:
        yield bench


def column(records: Records, name: str) -> NDArray[Any]:
    values: NDArray[Any] = records.queries[name].to_numpy()
    return values


def times(records: Records) -> tuple[NDArray[Any], ...]:
    return tuple(column(records, f"{name}_s") for name in ("issue", "send", "first_token", "completion"))


def test_server_records_agree_with_loadgen(server: ScenarioContext) -> None:
    run = execute_run(with_load(server, 400, seconds=2), "performance", OnFirstAnswer())
    records, log = read_records(run.path), parse_detail(run.path / DETAIL)
    assert len(records.queries) == log.number("generated_query_count")
    issue, send, first, done = times(records)
    assert (issue >= 0).all()
    assert (issue <= send).all()
    assert (send < first).all()
    assert (first < done).all()
    assert set(records.queries["replica"].to_pylist()) == {"replica-0", "replica-1", "replica-2"}
    prompts = open_store(server.assets.store("performance")).lengths()
    assert (column(records, "prompt_tokens") == prompts[column(records, "sample")]).all()
    assert not column(records, "requeues").any()
    tokens = column(records, "output_tokens")
    ttft, tpot = np.sort(first - issue) * 1000, np.sort((done - first) / (tokens - 1)) * 1000
    for percent in (50, 99):
        rank = len(ttft) * percent // 100
        # LoadGen's times begin when a query is due, and end when LoadGen has taken the token.
        assert 0 <= log.ttft_ms(percent) - ttft[rank] < LOADED_MS
        assert log.tpot_ms(percent) == pytest.approx(tpot[rank], abs=LOADED_MS)


def test_replica_records_have_a_row_per_second(server: ScenarioContext) -> None:
    run = execute_run(with_load(server, 200, seconds=5), "performance", OnFirstAnswer())
    records = read_records(run.path)
    seconds, rows = column(records, "completion_s").max(), records.replicas.to_pandas()
    assert rows["time_s"].is_monotonic_increasing
    assert rows["time_s"].min() > -5, "before LoadGen starts, the replica may publish a heartbeat"
    assert rows["time_s"].max() <= seconds + 1
    assert (rows.groupby("replica")["time_s"].diff().dropna() > 0).all()
    assert rows.groupby("replica").size().between(seconds / 2, seconds + 2).all()
    assert rows["in_flight"].max() > 0
    assert rows["running"].max() > 0
    assert rows["kv_cache_use"].isna().all(), "the replay engine has no KV cache"
    devices = records.devices.to_pandas()
    assert "cpu" in set(devices["device"])
    span = devices["time_s"].max() - devices["time_s"].min()  # from the start to the exit of LoadGen's process
    assert devices.groupby("device").size().between(span / 2, span + 2).all()
    assert devices["utilisation"].dropna().between(0, 1).all()
    total = column(records, "output_tokens").sum()
    assert total / 2 < rows["output_tokens"].sum() <= total
    first = rows["replica"].map(rows.groupby("replica")["time_s"].min()) == rows["time_s"]
    assert (rows["tokens_per_s"].isna() == first).all()


def test_requeued_queries_are_counted(server: ScenarioContext) -> None:
    broken = OnFirstAnswer(server.pool.replicas[0].process.kill)
    run = execute_run(with_load(server, 400, seconds=2), "performance", broken)
    server.pool.await_restarts(lambda _: None)
    [requeued] = [
        int(found[1]) for reason in run.reasons if (found := re.search(r"(\d+) queries were requeued", reason))
    ]
    records = read_records(run.path)
    requeues = column(records, "requeues")
    assert requeues.sum() == requeued > 0
    issue, send, first, done = times(records)
    assert (issue <= send).all()
    assert (send < first).all()
    assert (first < done).all()
    replicas = records.queries["replica"].to_numpy(zero_copy_only=False)
    assert set(replicas[requeues > 0]) == {"replica-1"}


def test_failed_run_has_the_records_until_the_failure(server: ScenarioContext) -> None:
    def kill_all() -> None:
        for child in server.pool.replicas:
            child.process.kill()

    load = with_load(server, 400, seconds=2)
    with pytest.raises(RunFailed):
        execute_run(load, "performance", OnFirstAnswer(kill_all))
    server.pool.await_restarts(lambda _: None)
    records = read_records(load.request.log_folder / "Server" / "performance")
    answered = len(records.queries) - records.queries["completion_s"].null_count
    assert 0 < answered < len(records.queries)
    assert answered == len(records.queries) - records.queries["output_tokens"].null_count


def test_runs_without_records_write_no_file(server: ScenarioContext) -> None:
    run = execute_run(replace(with_load(server, 400), records=False), "performance", OnFirstAnswer())
    assert not list(run.path.glob("*.parquet"))
    with pytest.raises(ConfigError, match="unreadable record of a run"):
        read_records(run.path)


def test_offline_records_agree_with_loadgen(tmp_path_factory: pytest.TempPathFactory) -> None:
    with replayed(tmp_path_factory, "Offline", 2, "replay_config.output_spread=0.5") as bench:
        run = execute_run(with_load(bench, 400), "performance", OnFirstAnswer())
    records, log = read_records(run.path), parse_detail(run.path / DETAIL)
    assert len(records.queries) == log.number("generated_samples_per_query")
    assert records.queries["first_token_s"].null_count == len(records.queries)
    issue, send, _, done = times(records)
    assert (issue <= send).all()
    assert (send < done).all()
    assert column(records, "output_tokens").sum() / log.duration_s == pytest.approx(log.tokens_per_second, rel=0.05)
