"""The HTTP engine against correct and faulty servers over real sockets."""

import json
import select
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from token_server import HITS, TokenServer, answer_to

pytest.importorskip("aiohttp")

from harness_llm.config.benchmark import Sampling
from harness_llm.errors import EnvironmentMissing, HarnessError
from harness_llm.replicas.engines.engine import Engine, ServerSpec, build_engine

pytestmark = pytest.mark.processes

SAMPLING = Sampling(temperature=0.0, min_tokens=1, max_tokens=48, stop_token_ids=(2,))
PROMPTS = {10: [7, 8, 9], 11: [30, 1], 12: [5] * 60}
PROBES = 2  # completions that the engine asks for as it starts
PATIENCE_S = 120


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("checkpoint")
    (folder / "config.json").write_text(json.dumps({"vocab_size": 512}))
    return folder


def spec(**changes: Any) -> ServerSpec:
    facts = {"kind": "vllm", "command": "", "connections": 64, "attempts": 3, "timeout_s": 20.0, "log": "", "url": ""}
    return ServerSpec(**facts | changes)


@contextmanager
def an_engine(checkpoint: Path, *, stream: bool = True, **changes: Any) -> Iterator[Any]:
    engine: Any = build_engine("openai", str(checkpoint), {}, spec(**changes))
    engine.configure(SAMPLING, stream=stream)
    with closing(engine):
        yield engine


def serve(engine: Engine, prompts: dict[int, list[int]]) -> tuple[dict[int, int], dict[int, list[int]]]:
    """First tokens and answers of `prompts`, by query."""
    first: dict[int, int] = {}
    finished: dict[int, list[int]] = {}
    for query, prompt in prompts.items():
        engine.add(query, prompt)
    while engine.busy:
        assert select.select([engine.arrivals], [], [], PATIENCE_S)[0], "nothing arrives any more"
        step = engine.step()
        first |= dict(step.first)
        finished |= dict(step.finished)
    return first, finished


def right(prompts: dict[int, list[int]]) -> dict[int, list[int]]:
    request = {"stop_token_ids": [2], "max_tokens": 48}
    return {query: answer_to(prompt, request)[0] for query, prompt in prompts.items()}


@pytest.mark.parametrize("stream", [True, False])
def test_answers_are_the_token_ids_of_the_server(checkpoint: Path, *, stream: bool) -> None:
    with TokenServer() as server, an_engine(checkpoint, url=server.url, stream=stream) as engine:
        first, finished = serve(engine, PROMPTS)
        assert finished == right(PROMPTS)
        assert all(ids[-1] == 2 for ids in finished.values())
        assert first == ({query: ids[0] for query, ids in right(PROMPTS).items()} if stream else {})
        assert server.prompts[PROBES:] == list(PROMPTS.values())
        assert engine.generated == sum(map(len, finished.values()))


def test_connections_are_reused_up_to_the_limit(checkpoint: Path) -> None:
    many = {query: [query, 9] for query in range(40)}
    with (
        TokenServer("slow", after=PROBES, times=4) as server,
        an_engine(checkpoint, url=server.url, connections=4) as engine,
    ):
        assert serve(engine, many)[1] == right(many)
        assert server.most == 4
        assert server.connections <= 6  # health, models and the probe were asked over one of them


def test_first_token_is_reported_before_the_answer_ends(checkpoint: Path) -> None:
    with (
        TokenServer("silent_in_the_middle", after=PROBES) as server,
        an_engine(checkpoint, url=server.url) as engine,
    ):
        engine.add(1, [7, 8])
        first: list[tuple[int, int]] = []
        while not first:
            assert select.select([engine.arrivals], [], [], PATIENCE_S)[0]
            first = engine.step().first
        assert first == [(1, answer_to([7, 8], {"stop_token_ids": [2], "max_tokens": 48})[0][0])]
        assert engine.busy
        engine.abort()
        assert not engine.busy
        assert not select.select([engine.arrivals], [], [], 0.1)[0]


FAULTS = [
    ("status_500", "status 500 from the server: 'out of memory'", 1),
    ("closes_before", "Server disconnected", 3),
    ("closes_in_the_head", "ServerDisconnectedError", 1),
    ("closes_in_the_middle", "ClientPayloadError", 1),
    ("half_a_line", "no completion with token ids", 1),
    ("malformed", "no completion with token ids", 1),
    ("no_event", "no server-sent event in a line from the server: 'Internal Server Error", 1),
    ("error_event", "EngineCore died", 1),
    ("no_ids", "without token ids", 1),
    ("empty_ids", "0 tokens", 1),
    ("words_for_ids", "Expected `int`, got `str`", 1),
    ("ids_below_0", "Expected `int` >= 0", 1),
    ("ids_beyond_the_vocabulary", "token id 100000 from the server; the vocabulary has 512", 1),
    ("too_many_ids", "more than max_tokens, 48", 1),
    ("no_stop_token", "finish_reason stop", 1),
    ("cut", "finish_reason length", 1),
    ("aborted", "finish_reason abort", 1),
    ("no_end", "finish_reason None", 1),
    ("more_after_the_end", "data after the end of an answer", 1),
    ("miscounted", "counted", 1),
    ("silent", "timeout of the server", 1),
    ("silent_in_the_middle", "timeout of the server", 1),
]


@pytest.mark.parametrize(("behave", "cause", "posts"), FAULTS, ids=[fault[0] for fault in FAULTS])
def test_server_fault_raises_with_its_cause(checkpoint: Path, behave: str, cause: str, posts: int) -> None:
    with (
        TokenServer(behave, after=PROBES) as server,
        an_engine(checkpoint, url=server.url, timeout_s=1.0) as engine,
    ):
        with pytest.raises(ValueError, match=r"http://127\.0\.0\.1") as raised:
            serve(engine, {1: [7, 8, 9]})
        assert cause in str(raised.value)
        assert server.posts == PROBES + posts
        engine.abort()
        server.behave = "well"
        assert serve(engine, PROMPTS)[1] == right(PROMPTS)


def test_connection_lost_before_the_answer_is_retried(checkpoint: Path) -> None:
    with (
        TokenServer("closes_before", after=PROBES, times=2) as server,
        an_engine(checkpoint, url=server.url) as engine,
    ):
        assert serve(engine, {1: [7, 8]})[1] == right({1: [7, 8]})
        assert server.posts == PROBES + 3


def test_slow_answer_is_no_fault(checkpoint: Path) -> None:
    with TokenServer("slow", after=PROBES) as server, an_engine(checkpoint, url=server.url) as engine:
        assert serve(engine, PROMPTS)[1] == right(PROMPTS)


@pytest.mark.parametrize("behave", ["no_ids", "status_500", "closes_before", "empty_ids"])
def test_server_without_token_ids_is_refused_at_start(checkpoint: Path, behave: str) -> None:
    with TokenServer(behave) as server, pytest.raises(EnvironmentMissing, match="no token ids") as raised:
        build_engine("openai", str(checkpoint), {}, spec(url=server.url))
    assert raised.value.where == server.url


def test_unreachable_server_is_refused(checkpoint: Path) -> None:
    with pytest.raises(EnvironmentMissing, match="the server is not ready") as raised:
        build_engine("openai", str(checkpoint), {}, spec(url="http://127.0.0.1:9"))
    assert "http://127.0.0.1:9/health" in raised.value.where


def test_counters_are_read_from_the_server(checkpoint: Path) -> None:
    with TokenServer() as server, an_engine(checkpoint, url=server.url) as engine:
        assert engine.counters() == {"cache_hits": HITS, "speculated": 0, "drafts": 0}
        server.metrics = False
        assert engine.counters() is None


def test_counters_of_an_ended_server_are_none(checkpoint: Path) -> None:
    with ExitStack() as stack:
        server = stack.enter_context(TokenServer())
        with an_engine(checkpoint, url=server.url) as engine:
            stack.close()
            with pytest.raises(ValueError, match=server.url):
                engine.counters()


COMMAND = "{python} " + str(Path(__file__).with_name("token_server.py")) + " --port {port}"


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Path]:
    log = tmp_path / "server.log"
    yield log
    assert not served_by(log)


def served_by(log: Path) -> list[str]:
    """Processes that were started with the port that the log's first line names."""
    command = log.read_text().splitlines()[0] if log.exists() else ""
    port = command.partition("--port ")[2].partition(" ")[0] or "none"
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_text().split("\0")
        except OSError:
            continue
        if "token_server" in " ".join(words) and port in words:
            found.append(process.name)
    return found


def test_own_server_is_started_and_ended(checkpoint: Path, log: Path) -> None:
    with an_engine(checkpoint, command=COMMAND, log=str(log)) as engine:
        assert serve(engine, PROMPTS)[1] == right(PROMPTS)
        assert len(served_by(log)) == 2  # the server guard and the server


@pytest.mark.parametrize("behave", ["killed", "killed_later"])
def test_killed_own_server_raises_with_its_signal_and_log(checkpoint: Path, log: Path, behave: str) -> None:
    command = f"{COMMAND} --behave {behave} --after {PROBES}"
    with (
        an_engine(checkpoint, command=command, log=str(log)) as engine,
        pytest.raises(RuntimeError, match="the server ended: exit by signal 9") as raised,
    ):
        serve(engine, {1: [7, 8]})
    assert f"its log: {log}" in str(raised.value)


@pytest.mark.parametrize(
    ("command", "what", "found"),
    [
        ("{python} -c 'raise SystemExit(\"no such model\")'", "the server did not start", "no such model"),
        ("no-such-program --port {port}", "missing program no-such-program", "no-such-program --port"),
        ("{python} {max_model_length}", "unknown placeholder", "{max_model_length}"),
    ],
)
def test_own_server_that_does_not_start_is_reported(
    checkpoint: Path, log: Path, command: str, what: str, found: str
) -> None:
    with pytest.raises(HarnessError, match=what) as raised:
        build_engine("openai", str(checkpoint), {}, spec(command=command, log=str(log)))
    assert found in raised.value.found
