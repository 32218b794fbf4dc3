"""Faults in a run, with the real vLLM and the real LoadGen: one replica pool, and a small run for each fault."""

import signal
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from cells import LIKE, SAMPLES, RunKeys, Watcher, by_sample, kill_loadgen, likeness, started_cells

from harness_llm.config.load import issued
from harness_llm.errors import ConfigError, RunFailed
from harness_llm.loadgen.logs import ACCURACY, DETAIL, parse_detail, read_accuracy_log
from harness_llm.paths import Workspace
from harness_llm.prepare.demo.stages import Assets
from harness_llm.protocol.token_store import write_store
from harness_llm.runs.record import State

pytestmark = pytest.mark.engine


@pytest.fixture(scope="module")
def run_keys(workspace: Workspace, assets: Assets) -> Iterator[RunKeys]:
    with started_cells(workspace, assets, replicas=1) as run_keys:
        yield run_keys


@pytest.mark.parametrize("scenario", ["Server", "SingleStream"])
def test_every_first_token_begins_its_answer(run_keys: RunKeys, scenario: str) -> None:
    run = run_keys.run(run_keys.request(scenario), "accuracy")
    assert run.state is State.VALID
    answers = read_accuracy_log(run.path / ACCURACY)
    assert sorted(a.qsl_idx for a in answers) == list(range(SAMPLES))
    for answer in answers:
        assert answer.first is not None
        assert answer.first.tolist() == answer.ids[:1].tolist()
        assert answer.token_count == len(answer.ids)
    assert likeness(by_sample(answers), run_keys.assets) > LIKE


@pytest.mark.parametrize(("scenario", "limits"), [("SingleStream", (2000, 200)), ("Interactive", (450, 40))])
def test_scenarios_beside_offline_and_server(run_keys: RunKeys, scenario: str, limits: tuple[float, float]) -> None:
    request = run_keys.request(scenario)
    run = run_keys.run(request, "performance")
    assert run.record
    log = parse_detail(run.path / DETAIL)
    assert log.errors == []
    assert log.query_count == issued(request.scenarios[0].load, "performance")
    assert (log.requested_ttft_ms, log.requested_tpot_ms) == limits
    assert log.p99_ttft_ms
    assert log.p99_ttft_ms > 0
    # Fewer than 460 queries prove no 99th percentile, and a busy machine may miss a limit: both are LoadGen's to say.
    assert all(reason.startswith("LoadGen says INVALID") for reason in run.reasons)
    assert run.record.metrics["samples_per_second"] == log.samples_per_second > 0


def test_a_killed_loadgen_fails_its_cell_alone(run_keys: RunKeys) -> None:
    watcher = Watcher(kill_loadgen)
    error, run = run_keys.fails(RunFailed, run_keys.request("Offline", samples=2048), "performance", watcher)
    assert watcher.acted
    assert error.exit_code == 4
    assert "exit code -9" in error.found
    assert run.state is State.FAILED
    assert "exit code -9" in run.reasons[0]

    after = run_keys.run(run_keys.request("Offline"), "accuracy")
    assert after.state is State.VALID
    assert likeness(by_sample(read_accuracy_log(after.path / ACCURACY)), run_keys.assets) > LIKE


def test_late_answers_reach_nobody(run_keys: RunKeys) -> None:
    """A run that is over, but whose LoadGen process still lives, and the next one use the same query ids."""
    request = run_keys.request("Offline")
    old = run_keys.replica_client(request, generation=1001)
    old.issue(range(SAMPLES), range(SAMPLES))
    old.poll(0)
    new = run_keys.replica_client(request, generation=1002)
    old.poll(0)
    old.issue(range(SAMPLES, SAMPLES + 20), range(SAMPLES, SAMPLES + 20))
    old.poll(0)
    new.issue(range(SAMPLES), range(1000, 1000 + SAMPLES))
    new.poll(0)
    try:
        answers: dict[int, list[int]] = {}
        deadline = time.monotonic() + 60
        while new.in_flight:
            answers |= {answer.query + 1000: answer.ids.tolist() for answer in new.poll(100).finished}
            assert time.monotonic() < deadline
        assert len(answers) == SAMPLES
        assert likeness(answers, run_keys.assets) > LIKE
        assert new.poll(1000).finished == []
        assert old.poll(0).finished == []
    finally:
        old.close()
        new.close()


def test_a_prompt_that_the_engine_refuses(run_keys: RunKeys, tmp_path: Path) -> None:
    write_store(tmp_path / "long", [[5] * 300] * SAMPLES, ["text"] * SAMPLES)
    assets = replace(run_keys.assets, stores={"evaluation": tmp_path / "long"})
    error, run = run_keys.fails(RunFailed, run_keys.request("Offline"), "performance", assets=assets)
    assert error.exit_code == 4
    assert error.what == "a replica refused a query"
    assert "256" in error.found  # max_model_len
    assert run.state is State.FAILED
    assert "256" in run.reasons[0]


@pytest.mark.parametrize("scenario", ["Offline", "Server"])
def test_answers_that_loadgen_would_not_count(run_keys: RunKeys, scenario: str) -> None:
    request = run_keys.request(scenario, sets=("sampling.max_tokens=1",))
    error, run = run_keys.fails(RunFailed, request, "performance")
    assert error.expected == "at least 2 token ids"
    assert run.state is State.FAILED
    assert "fewer than two tokens" in run.reasons[0]


def test_seeds_of_another_round(run_keys: RunKeys) -> None:
    request = run_keys.request("Offline")
    loadgen = request.round.loadgen
    seeds = loadgen.seeds | {"qsl_rng_seed": 2465351861681999779}
    other = request.round.model_copy(update={"loadgen": loadgen.model_copy(update={"seeds": seeds})})
    error, run = run_keys.fails(ConfigError, replace(request, round=other), "performance")
    assert error.exit_code == 2
    assert error.where == "qsl_rng_seed"
    assert "2465351861681999779" in error.expected
    assert run.state is State.FAILED
    assert not (run.path / DETAIL).exists(), "LoadGen was started"


def test_a_probe_of_vllm_leaves_nothing_for_the_run(run_keys: RunKeys) -> None:
    """What it predicts of an engine on shared cores depends on what else runs there: test_replay_fleet judges it."""
    request = run_keys.request("Offline", probe_s=20)
    [plan] = request.scenarios
    accepted = replace(plan, load=replace(plan.load, min_duration_s=0))  # no prediction refuses the run
    run = run_keys.run(replace(request, scenarios=(accepted,)), "performance")
    assert run.state is State.VALID, run.reasons
    assert parse_detail(run.path / DETAIL).number("generated_samples_per_query") == issued(plan.load, "performance")


def test_a_killed_replica_ends_the_cell(run_keys: RunKeys) -> None:
    """The last test of this replica pool."""
    replica = run_keys.pool.replicas[0]
    killed: list[float] = []

    def kill() -> None:
        replica.process.send_signal(signal.SIGKILL)
        killed.append(time.monotonic())

    error, run = run_keys.fails(RunFailed, run_keys.request("Offline", samples=2048), "performance", Watcher(kill))
    assert time.monotonic() - killed[0] < 10
    assert error.exit_code == 4
    assert error.where == str(replica.log)
    assert "exit code -9" in error.found
    assert replica.last_lines() in error.found
    assert run.state is State.FAILED
    run_keys.pool.stop()
    assert not run_keys.pool.folder.exists()
