"""A replica of vLLM is lost in the middle, and another has to answer what it held."""

import re
import signal
import time
from collections.abc import Iterator

import pytest
from cells import LIKE, SAMPLES, RunKeys, Watcher, by_sample, likeness, started_cells

from harness_llm.config.load import issued
from harness_llm.loadgen.logs import ACCURACY, DETAIL, parse_detail, read_accuracy_log
from harness_llm.paths import Workspace
from harness_llm.prepare.demo.stages import Assets
from harness_llm.runs.record import Run, State

pytestmark = pytest.mark.engine


@pytest.fixture(scope="module")
def run_keys(workspace: Workspace, assets: Assets) -> Iterator[RunKeys]:
    with started_cells(workspace, assets, replicas=2) as run_keys:
        yield run_keys


def run_with_a_loss(run_keys: RunKeys, scenario: str, test: str, samples: int) -> Run:
    replica = run_keys.pool.replicas[0]
    watcher = Watcher(lambda: replica.process.send_signal(signal.SIGKILL))
    run = run_keys.run(run_keys.request(scenario, samples=samples), test, watcher)
    assert watcher.acted
    lost = rf"{replica.name} failed \(exit code -9\); [1-9]"
    assert any(re.match(lost, line) for line in run.reasons), run.reasons
    return run


def test_a_first_token_that_is_known_begins_the_answer(run_keys: RunKeys) -> None:
    """An engine goes on where another was lost: after its token, and within the limits of the whole answer."""
    server = run_keys.replica_client(run_keys.request("Server"), generation=2001, stream=True)
    try:
        server.offer(range(SAMPLES), range(SAMPLES))
        firsts: dict[int, int] = {}
        answers: dict[int, list[int]] = {}
        given_up = False
        deadline = time.monotonic() + 60
        while server.in_flight:
            server.feed()
            poll = server.poll(100)
            assert not firsts.keys() & {answer.query for answer in poll.first}, "a first token came twice"
            firsts |= {answer.query: int(answer.ids[0]) for answer in poll.first}
            answers |= {answer.query: answer.ids.tolist() for answer in poll.finished}
            if not given_up and len(firsts) >= SAMPLES // 2:
                given_up = True
                server.lose(run_keys.pool.endpoints[0].address, "given up")
            assert time.monotonic() < deadline
        assert likeness(answers, run_keys.assets) > LIKE
        assert firsts == {query: ids[0] for query, ids in answers.items()}
    finally:
        server.close()


def test_for_accuracy_the_other_answers_all_and_the_run_counts(run_keys: RunKeys) -> None:
    run = run_with_a_loss(run_keys, "Offline", "accuracy", samples=1024)
    assert run.state is State.VALID
    assert parse_detail(run.path / DETAIL).errors == []
    answers = read_accuracy_log(run.path / ACCURACY)
    assert sorted(answer.qsl_idx for answer in answers) == list(range(1024))
    assert likeness(by_sample(answers), run_keys.assets) > LIKE


def test_for_performance_the_other_answers_all_and_the_run_is_degraded(run_keys: RunKeys) -> None:
    run_keys.pool.mend(lambda _: None)
    run = run_with_a_loss(run_keys, "Server", "performance", samples=400)
    assert run.state is State.DEGRADED
    log = parse_detail(run.path / DETAIL)
    assert log.errors == []
    assert log.query_count == issued(run_keys.request("Server", samples=400).scenarios[0].load, "performance")
