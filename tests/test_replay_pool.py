"""Replay replicas, several per process, behind the real LoadGen; their runs are not packaged."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from live_runs import OnFirstAnswer
from rich.console import Console

from benchmarks.replayed import AT_ONCE, measure, measure_null, replay_bench, with_load
from benchmarks.soak import Once
from harness_llm.cli import submit_command
from harness_llm.config.options import Options
from harness_llm.errors import ConfigError
from harness_llm.loadgen.logs import ACCURACY, DETAIL, parse_detail, read_accuracy_log
from harness_llm.pipeline.panel import Panel
from harness_llm.pipeline.run import ScenarioContext, execute_run
from harness_llm.runs.record import State, find_runs
from harness_llm.runs.selection import NOT_COUNTED, Wanted, select

pytestmark = [pytest.mark.engine(seconds=25), pytest.mark.processes]


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ScenarioContext]:
    folder = tmp_path_factory.mktemp("replay")
    with replay_bench(folder, "Server", 5, "replay_config.processes=2", *AT_ONCE) as bench:
        workspace = replace(bench.request.workspace, root=folder)
        yield replace(bench, request=replace(bench.request, workspace=workspace))


def test_one_process_may_contain_several_replicas(bench: ScenarioContext) -> None:
    assert len(bench.pool.replicas) == 2
    assert len({endpoint.address for endpoint in bench.pool.endpoints}) == 5
    assert len({endpoint.heartbeat for endpoint in bench.pool.endpoints}) == 5


def test_every_sample_is_answered_at_the_modelled_length(bench: ScenarioContext) -> None:
    own = replace(bench, scorer=Once(bench.scorer.benchmark, bench.scorer.variants, bench.scorer.assets))
    run = execute_run(with_load(own, 400), "accuracy", OnFirstAnswer())
    assert run.state is State.VALID
    answers = read_accuracy_log(run.path / ACCURACY)
    assert {len(answer.ids) for answer in answers} == {290}
    assert all(answer.first is not None and answer.first[0] == answer.ids[0] for answer in answers)


@pytest.mark.slow
def test_overhead_is_measured_against_loadgen_alone(bench: ScenarioContext, tmp_path: Path) -> None:
    figures = measure(bench, 200, seconds=1)
    null = measure_null(bench, 200, seconds=1, folder=tmp_path)
    assert figures.queries == null.queries == 1000
    assert figures.cpu_s > 0
    assert figures.ttft_ms[0] > 0
    assert null.ttft_ms[0] > 0


def test_runs_of_the_replay_engine_do_not_count(bench: ScenarioContext) -> None:
    loaded = with_load(bench, 200)
    run = execute_run(loaded, "performance", OnFirstAnswer())
    assert run.record
    runs = [found for found in find_runs(bench.request.workspace.logs, run.record.system) if found.path == run.path]
    wanted = Wanted(run.run_key.benchmark, run.record.profile, run.record.round, run.record.division, newest=True)
    [status] = select(runs, ["Server"], ["performance"], wanted).run_keys
    assert not status.done
    if run.state is State.VALID:  # where the machine is loaded, p99 TTFT may be above the limit
        assert status.state_text == NOT_COUNTED
        assert "replay engine, which computes nothing" in status.reason


def test_submit_refuses_the_replay_engine() -> None:
    options = Options(model="demo", engine="replay", system_name="pytest-box", company="Acme")
    with pytest.raises(ConfigError, match="the replay engine computes nothing"):
        submit_command.submit(options, Panel(Console(stderr=True)), dry_run=False)


@pytest.fixture(scope="module")
def paced(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ScenarioContext]:
    """Two replicas at a hundred times the speed of an MI300X."""
    folder = tmp_path_factory.mktemp("paced")
    sets = ("replay_config.speeds=[100]", "llm_config.max_num_seqs=128", "llm_config.max_num_batched_tokens=8192")
    with replay_bench(folder, "Offline", 2, *sets) as bench:
        workspace = replace(bench.request.workspace, root=folder)
        profile = bench.request.profile.model_copy(update={"probe_s": 45})
        yield replace(bench, request=replace(bench.request, workspace=workspace, profile=profile))


def test_prediction_is_recorded_and_probe_queries_are_not_counted(paced: ScenarioContext) -> None:
    run = execute_run(with_load(paced, 100), "performance", OnFirstAnswer())
    assert run.record
    found = run.record.prediction
    assert 0 < found["low"] < found["samples_per_second"] < found["high"]
    assert found["load_s"] + found["drain_s"] < 60
    assert parse_detail(run.path / DETAIL).number("generated_samples_per_query") == run.record.run_facts["samples"]
    assert run.record.metrics["tokens_per_second"] / run.record.metrics["samples_per_second"] == pytest.approx(294, 0.1)


def test_too_low_offline_target_is_refused_before_loadgen_starts(paced: ScenarioContext) -> None:
    run = execute_run(with_load(paced, 1, seconds=600), "performance", OnFirstAnswer())
    assert run.state is State.INVALID
    assert "shorter than min_duration" in run.reasons[0]
    assert not (run.path / DETAIL).exists()
