"""Faults of servers, replicas and LoadGen's process in runs of the real LoadGen: which runs fail, and which survive.

The servers have no model. `make test` runs each fault in Server; `make test-all` in every scenario.
"""

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import pytest
from http_runs import (
    BEFORE,
    SAMPLES,
    BreaksWhenHeld,
    continued,
    end_server,
    exhaust_memory,
    kill,
    launch_hungry,
    make_runs,
    own_server,
    pool_of,
    right,
    suspend,
)
from live_runs import PATIENCE_S, OnFirstAnswer, Runs, kill_loadgen
from real_loadgen import needs_loadgen
from token_server import TokenServer
from waiting import wait_until

from harness_llm.errors import ConfigError, RunFailed
from harness_llm.loadgen.logs import ACCURACY, DETAIL, SUMMARY, Answer, read_accuracy_log
from harness_llm.loadgen.replica_client import ReplicaClient
from harness_llm.pipeline import run
from harness_llm.protocol.child_processes import Child, start
from harness_llm.replicas import pool as replica_pool
from harness_llm.replicas.pool import ReplicaPool
from harness_llm.runs.record import State

pytestmark = [needs_loadgen, pytest.mark.processes(seconds=90)]

SCENARIOS = ["Server", pytest.param("Offline", marks=pytest.mark.slow)]
SINGLE_STREAM = pytest.param("SingleStream", marks=pytest.mark.slow)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    return make_runs(tmp_path_factory.mktemp("faults"))


# A fault of the only replica's server fails the run


@dataclass(frozen=True)
class ServerFault:
    """What a server does after some answers, and what the run's record names as the cause.

    `streams` marks faults in the middle of a stream; Offline asks for whole answers.
    """

    behave: str
    cause: str
    streams: bool = False


SERVER_FAULTS = [
    ServerFault("status_500", "status 500 from the server"),
    ServerFault("status_400", "status 400 from the server"),
    ServerFault("closes_before", "Server disconnected"),
    ServerFault("closes_in_the_middle", "ClientPayloadError", streams=True),
    ServerFault("half_a_line", "no completion with token ids", streams=True),
    ServerFault("silent", "busy without a step for 2 s"),
]


@pytest.mark.parametrize("scenario", SCENARIOS)
@pytest.mark.parametrize("fault", SERVER_FAULTS, ids=lambda fault: fault.behave)
def test_server_fault_fails_the_run_with_its_cause(runs: Runs, fault: ServerFault, scenario: str) -> None:
    if scenario == "Offline" and fault.streams:
        pytest.skip("Offline asks for whole answers")
    timeout = ["harness_config.stall_timeout_s=2"] if fault.behave == "silent" else []
    with (
        TokenServer(fault.behave, after=BEFORE + 20) as server,
        pool_of(runs, scenario, server, *timeout) as (request, pool),
    ):
        error, failed = runs.fails(RunFailed, request, pool)
    assert failed.state is State.FAILED
    # The engine may report the silence before the stall timeout does.
    silent = fault.behave == "silent" and "timeout of the server" in failed.reasons[0]
    assert silent or fault.cause in failed.reasons[0]
    assert error.exit_code == 4


def test_killed_server_fails_the_run_with_its_exit_code(runs: Runs) -> None:
    request = runs.request("Server", own_server("--behave", "killed", "--after", BEFORE + 20))
    with runs.pool(request) as pool:
        error, _ = runs.fails(RunFailed, request, pool)
    assert "the server ended: exit by signal 9" in error.found


# Replica faults: another replica answers


CAUSES = {
    kill: "exit by signal 9",
    suspend: "no heartbeat for 10 s",
    exhaust_memory: "exception MemoryError",
    end_server: "the server ended: exit by signal 9",
}
TWO = (
    own_server("--behave", "pauses", "--after", BEFORE),
    "harness_config.replicas=2",
    "harness_config.heartbeat_timeout_s=10",
)
HELD = {"Offline": SAMPLES, "Server": SAMPLES, "SingleStream": 4}


@pytest.fixture(scope="module")
def shared_pool(runs: Runs) -> Iterator[ReplicaPool]:
    """Two replicas whose servers hold back every fourth answer."""
    with pytest.MonkeyPatch.context() as patch, runs.pool(runs.request("Server", *TWO), launch_hungry) as pool:
        patch.setattr(replica_pool, "SHORT_S", 0.0)  # replicas that failed soon after their start are restarted too
        yield pool


@pytest.fixture
def pool(shared_pool: ReplicaPool) -> ReplicaPool:
    """The pool with both replicas, whatever earlier tests broke."""
    shared_pool.await_restarts(lambda _: None)
    return shared_pool


@pytest.mark.parametrize("scenario", [*SCENARIOS, SINGLE_STREAM])
@pytest.mark.parametrize("fault", CAUSES, ids=lambda fault: fault.__name__)
def test_queries_of_a_failed_replica_are_requeued(
    runs: Runs, pool: ReplicaPool, scenario: str, fault: Callable[[Child], object]
) -> None:
    request = runs.request(scenario, *TWO, samples=HELD[scenario])
    broken = pool.replicas[0]
    issued = 1 if scenario == "SingleStream" else SAMPLES
    done = runs.run(request, pool, "accuracy", BreaksWhenHeld(fault, broken, issued))
    assert broken.process.returncode is not None, "a suspended process may continue"
    assert done.state is State.VALID
    assert any(note.startswith("replica-0 failed") and CAUSES[fault] in note for note in done.notes)
    answers = read_accuracy_log(done.path / ACCURACY)
    assert sorted(answer.qsl_idx for answer in answers) == list(range(HELD[scenario]))
    if scenario == "Offline":
        assert all(answer.ids.tolist() == right(answer.qsl_idx) for answer in answers)
    else:
        assert_continued(answers)


def assert_continued(answers: list[Answer]) -> None:
    """Requeued queries continue after the first token that LoadGen already has."""
    for answer in answers:
        assert answer.ids.tolist() in (right(answer.qsl_idx), continued(answer.qsl_idx))
        assert answer.first is not None
        assert answer.first.tolist() == answer.ids[:1].tolist()
    assert [answer for answer in answers if answer.ids.tolist() != right(answer.qsl_idx)]


def test_on_replica_failure_fail_ends_the_run(runs: Runs, pool: ReplicaPool) -> None:
    request = runs.request("Server", *TWO, "harness_config.on_replica_failure=fail")
    error, failed = runs.fails(RunFailed, request, pool, watcher=BreaksWhenHeld(kill, pool.replicas[0]))
    assert error.what == "replica-0 failed"
    assert error.where.endswith("replica-0.log")
    assert failed.state is State.FAILED


@pytest.mark.parametrize("fault", [kill, pytest.param(suspend, marks=pytest.mark.slow)])
def test_run_without_any_replica_fails(runs: Runs, pool: ReplicaPool, fault: Callable[[Child], object]) -> None:
    request = runs.request("Server", *TWO)
    one, other = pool.replicas
    both = BreaksWhenHeld(lambda replica: [fault(replica), fault(other)], one)
    error, failed = runs.fails(RunFailed, request, pool, "accuracy", both)
    assert "failed" in error.what
    assert failed.state is State.FAILED


# Faults of LoadGen's process and of its answers


def test_killed_loadgen_fails_its_run_and_the_next_run_is_valid(runs: Runs) -> None:
    with TokenServer() as server, pool_of(runs, "Server", server) as (request, pool):
        watcher = OnFirstAnswer(kill_loadgen)
        error, failed = runs.fails(RunFailed, request, pool, "accuracy", watcher)
        assert watcher.acted
        assert error.exit_code == 4
        assert "exit by signal 9" in error.found
        assert failed.state is State.FAILED
        assert "exit by signal 9" in failed.reasons[0]
        after = runs.run(runs.request("Server", f"server_config.url={server.url}"), pool, "accuracy")
    assert after.state is State.VALID
    answers = read_accuracy_log(after.path / ACCURACY)
    assert {answer.qsl_idx: answer.ids.tolist() for answer in answers} == {i: right(i) for i in range(SAMPLES)}


def fill(child: Child) -> None:
    """Fill the status pipe of `child` with messages."""
    pipe = os.open(f"/proc/self/fd/{child.status.fileno()}", os.O_WRONLY | os.O_NONBLOCK)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(pipe, b'{"event": "note"}\n')
    os.close(pipe)


def test_run_continues_while_its_status_messages_are_not_read(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[Child] = []

    def start_loadgen(*arguments: Any, **more: Any) -> Child:
        started.append(start(*arguments, **more))
        return started[-1]

    def stop_reading(_: Child) -> None:
        fill(started[0])
        summary = started[0].log.with_name(SUMMARY)
        wait_until(lambda: summary.exists() and summary.stat().st_size, PATIENCE_S / 5, "a result of LoadGen")

    monkeypatch.setattr(run, "start", start_loadgen)
    with TokenServer("pauses", after=BEFORE) as server, pool_of(runs, "Server", server) as (request, pool):
        watcher = BreaksWhenHeld(stop_reading, pool.replicas[0])
        done = runs.run(request, pool, "accuracy", watcher)
    assert watcher.acted
    assert done.state is State.VALID


def test_answers_of_an_earlier_generation_are_discarded(runs: Runs) -> None:
    """Two runs use the same query ids; LoadGen's process of the first may still be alive in the second."""
    with TokenServer() as server, pool_of(runs, "Offline", server) as (request, pool):
        old, new = (runs.replica_client(request, pool, generation, stream=False) for generation in (1001, 1002))
        try:
            old.issue(range(SAMPLES), range(SAMPLES))
            old.poll(0)
            new.issue(range(SAMPLES), [*reversed(range(SAMPLES))])
            assert all_answers(new) == {query: right(SAMPLES - 1 - query) for query in range(SAMPLES)}
            assert new.poll(1000).finished == []
            assert old.poll(0).finished == []
        finally:
            old.close()
            new.close()


def all_answers(replica_client: ReplicaClient) -> dict[int, list[int]]:
    answers: dict[int, list[int]] = {}
    deadline = time.monotonic() + PATIENCE_S
    replica_client.poll(0)
    while replica_client.unanswered:
        answers |= {answer.query: answer.ids.tolist() for answer in replica_client.poll(100).finished}
        assert time.monotonic() < deadline, "no answers"
    return answers


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_answers_of_one_token_fail_the_run(runs: Runs, scenario: str) -> None:
    """LoadGen leaves them out of its token latencies."""
    with TokenServer() as server, pool_of(runs, scenario, server, "sampling.max_tokens=1") as (request, pool):
        error, failed = runs.fails(RunFailed, request, pool)
    assert error.expected == "at least 2 token ids"
    assert failed.state is State.FAILED
    assert "fewer than two tokens" in failed.reasons[0]


def test_seeds_of_another_round_fail_before_loadgen_starts(runs: Runs) -> None:
    with TokenServer() as server, pool_of(runs, "Offline", server) as (request, pool):
        loadgen = request.round.loadgen
        seeds = loadgen.seeds | {"qsl_rng_seed": 2465351861681999779}
        other = request.round.model_copy(update={"loadgen": loadgen.model_copy(update={"seeds": seeds})})
        error, failed = runs.fails(ConfigError, replace(request, round=other), pool)
    assert error.exit_code == 2
    assert error.where == "qsl_rng_seed"
    assert "2465351861681999779" in error.expected
    assert failed.state is State.FAILED
    assert not (failed.path / DETAIL).exists()
