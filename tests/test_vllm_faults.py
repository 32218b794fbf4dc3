"""Two faults with the real vLLM behind the real LoadGen; test_faults.py has all faults, without a model."""

import re
import signal
from collections.abc import Iterator

import pytest
from live_runs import ALIKE, OnFirstAnswer, Runs, by_sample, kill_loadgen, likeness

from harness_llm.config.assets import Assets
from harness_llm.errors import RunFailed
from harness_llm.loadgen.logs import ACCURACY, DETAIL, parse_detail, read_accuracy_log
from harness_llm.paths import Workspace
from harness_llm.replicas.pool import ReplicaPool
from harness_llm.runs.record import State

pytestmark = [pytest.mark.engine(seconds=60), pytest.mark.processes, pytest.mark.slow]

SAMPLES = 200


@pytest.fixture(scope="module")
def runs(workspace: Workspace, assets: Assets) -> Runs:
    sets = ("harness_config.warm_up_tokens=4", "harness_config.replicas=2")
    return Runs(workspace, assets, "vllm", *sets, samples=SAMPLES)


@pytest.fixture(scope="module")
def shared_pool(runs: Runs) -> Iterator[ReplicaPool]:
    with runs.pool(runs.request("Server")) as pool:
        yield pool


@pytest.fixture
def pool(shared_pool: ReplicaPool) -> ReplicaPool:
    """The pool with both replicas, whatever earlier tests broke."""
    shared_pool.await_restarts(lambda _: None)
    return shared_pool


def test_phases_of_the_start_are_read_from_the_log_of_vllm(runs: Runs, shared_pool: ReplicaPool) -> None:
    first, *_, last = runs.starts
    assert first.text == "0 of 2 ready; 2 initializing"
    assert last.text == "2 of 2 ready"
    assert list(last.seconds) == ["initializing", "loading weights", "allocating KV cache", "warm-up"]


def test_queries_of_a_killed_vllm_are_requeued_and_answered_alike(runs: Runs, pool: ReplicaPool) -> None:
    replica = pool.replicas[0]
    watcher = OnFirstAnswer(lambda: replica.process.send_signal(signal.SIGKILL))
    run = runs.run(runs.request("Server"), pool, "accuracy", watcher)
    lost = rf"{replica.name} failed \(exit by signal 9 .*\); [1-9]\d* queries were requeued"
    assert any(re.match(lost, note) for note in run.notes), run.notes
    assert run.state is State.VALID
    assert parse_detail(run.path / DETAIL).errors == []
    answers = read_accuracy_log(run.path / ACCURACY)
    assert sorted(answer.qsl_idx for answer in answers) == list(range(SAMPLES))
    for answer in answers:
        assert answer.first is not None
        assert answer.first.tolist() == answer.ids[:1].tolist()
        assert answer.token_count == len(answer.ids)
    assert likeness(by_sample(answers), runs.assets) > ALIKE


def test_vllm_answers_the_next_run_after_loadgen_was_killed(runs: Runs, pool: ReplicaPool) -> None:
    watcher = OnFirstAnswer(kill_loadgen)
    error, failed = runs.fails(RunFailed, runs.request("Offline"), pool, "accuracy", watcher)
    assert watcher.acted
    assert "exit by signal 9" in error.found
    assert failed.state is State.FAILED
    after = runs.run(runs.request("Offline"), pool, "accuracy")
    assert after.state is State.VALID
    answers = read_accuracy_log(after.path / ACCURACY)
    assert sorted(answer.qsl_idx for answer in answers) == list(range(SAMPLES))
    assert likeness(by_sample(answers), runs.assets) > ALIKE
