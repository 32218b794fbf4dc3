"""A replica of vLLM is lost in the middle, and another has to answer what it held."""

import re
import signal
import time
from collections.abc import Iterator

import pytest
from cells import LIKE, SAMPLES, Cells, Watcher, by_sample, likeness, started_cells

from harness_llm.demo.assets import Assets
from harness_llm.loadgen.logs import ACCURACY, DETAIL, parse_detail, read_accuracy_log
from harness_llm.plan import issued
from harness_llm.runs import Run, State
from harness_llm.workspace import Workspace

pytestmark = pytest.mark.engine


@pytest.fixture(scope="module")
def cells(workspace: Workspace, assets: Assets) -> Iterator[Cells]:
    with started_cells(workspace, assets, replicas=2) as cells:
        yield cells


def run_with_a_loss(cells: Cells, scenario: str, test: str, samples: int) -> Run:
    replica = cells.fleet.replicas[0]
    watcher = Watcher(lambda: replica.process.send_signal(signal.SIGKILL))
    run = cells.run(cells.request(scenario, samples=samples), test, watcher)
    assert watcher.acted
    lost = rf"{replica.name} was lost \(exit code -9\); its queries, [1-9]"
    assert any(re.match(lost, line) for line in run.reasons), run.reasons
    return run


def test_a_first_token_that_is_known_begins_the_answer(cells: Cells) -> None:
    """An engine goes on where another was lost: after its token, and within the limits of the whole answer."""
    server = cells.dispatcher(cells.request("Server"), generation=2001, stream=True)
    try:
        server.offer(range(SAMPLES), range(SAMPLES))
        firsts: dict[int, int] = {}
        answers: dict[int, list[int]] = {}
        given_up = False
        deadline = time.monotonic() + 60
        while server.in_flight:
            server.feed()
            harvest = server.harvest(100)
            assert not firsts.keys() & {answer.query for answer in harvest.first}, "a first token came twice"
            firsts |= {answer.query: int(answer.ids[0]) for answer in harvest.first}
            answers |= {answer.query: answer.ids.tolist() for answer in harvest.finished}
            if not given_up and len(firsts) >= SAMPLES // 2:
                given_up = True
                server.lose(cells.fleet.endpoints[0].address, "given up")
            assert time.monotonic() < deadline
        assert likeness(answers, cells.assets) > LIKE
        assert firsts == {query: ids[0] for query, ids in answers.items()}
    finally:
        server.close()


def test_for_accuracy_the_other_answers_all_and_the_run_counts(cells: Cells) -> None:
    run = run_with_a_loss(cells, "Offline", "accuracy", samples=1024)
    assert run.state is State.VALID
    assert parse_detail(run.path / DETAIL).errors == []
    answers = read_accuracy_log(run.path / ACCURACY)
    assert sorted(answer.qsl_idx for answer in answers) == list(range(1024))
    assert likeness(by_sample(answers), cells.assets) > LIKE


def test_for_performance_the_other_answers_all_and_the_run_is_degraded(cells: Cells) -> None:
    cells.fleet.mend(lambda _: None)
    run = run_with_a_loss(cells, "Server", "performance", samples=400)
    assert run.state is State.DEGRADED
    log = parse_detail(run.path / DETAIL)
    assert log.errors == []
    assert log.query_count == issued(cells.request("Server", samples=400).scenarios[0].load, "performance")
