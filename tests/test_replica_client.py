"""The replica client with real replicas over real sockets; tests control the engine."""

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from harness_llm.config.benchmark import Sampling
from harness_llm.errors import RunFailed
from harness_llm.loadgen.health import HealthMonitor
from harness_llm.loadgen.replica_client import IDLE_TIMEOUT_S, ReplicaClient, Replies
from harness_llm.protocol.kv_cache import KvCache
from harness_llm.protocol.mailbox import Mailbox
from harness_llm.protocol.messages import Endpoint
from harness_llm.protocol.token_store import open_store, write_store
from harness_llm.replicas.engines.engine import Step
from harness_llm.replicas.replica import Replica

pytestmark = pytest.mark.processes

SAMPLING = Sampling(temperature=0.0, min_tokens=1, max_tokens=8, stop_token_ids=(2,))
PROMPTS = [[10 + index, 5] for index in range(8)]
PATIENCE_S = 120


class Echo:
    """Tells a first token at once, and the answer once it is let."""

    arrivals = None

    def __init__(self, name: int) -> None:
        self.name = name
        self.lets = False
        self.asked: dict[int, tuple[list[int], int]] = {}
        self._told: set[int] = set()
        self.generated = 0

    def configure(self, sampling: Sampling, *, stream: bool) -> None:
        """Accept any sampling."""

    def add(self, query: int, prompt: list[int], kind: str = "", reported: int = 0) -> None:
        self.asked[query] = (prompt, reported)

    def step(self) -> Step:
        fresh = [query for query, (_, reported) in self.asked.items() if not reported and query not in self._told]
        self._told |= set(fresh)
        self.generated += len(fresh)
        step = Step(first=[(query, self.asked[query][0][0]) for query in fresh])
        if self.lets:
            step.finished = [(query, [prompt[0], self.name, 2]) for query, (prompt, _) in self.asked.items()]
            self.asked.clear()
        return step

    @property
    def busy(self) -> bool:
        return bool(self.asked)

    def abort(self) -> None:
        self.asked.clear()
        self._told.clear()

    def counters(self) -> dict[str, float]:
        return {}

    def kv_cache(self) -> KvCache:
        return KvCache(tokens=float(self.name), preemptions=3.0)


class Stage:
    """Replicas that a thread keeps going, but for those that are stopped."""

    def __init__(self, folder: Path) -> None:
        self.engines: list[Echo] = []
        self.endpoints: list[Endpoint] = []
        self.stopped: set[int] = set()
        self._replicas: list[Replica] = []
        self._folder = folder
        self._over = False
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def add(self) -> Endpoint:
        number = len(self.engines)
        engine = Echo(100 + number)
        replica = Replica(engine, f"ipc://{self._folder}/{number}")
        self.engines.append(engine)
        self.endpoints.append(Endpoint(replica.address, f"{replica.address}.heart"))
        self._replicas.append(replica)
        return self.endpoints[-1]

    def _run(self) -> None:
        while not self._over:
            for number, replica in enumerate(list(self._replicas)):
                if number not in self.stopped:
                    replica.receive()
                    if replica.busy:
                        replica.step()
            time.sleep(0.005)

    def close(self) -> None:
        self._over = True
        self._thread.join()
        for replica in self._replicas:
            replica.socket.close(linger=0)


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    stage = Stage(tmp_path)
    stage.add()
    stage.add()
    yield stage
    stage.close()


@pytest.fixture
def lost() -> list[tuple[str, str, int]]:
    return []


@pytest.fixture
def pool_events() -> Mailbox[dict[str, Any]]:
    return Mailbox()


@pytest.fixture
def idle_timeout_s() -> float:
    return IDLE_TIMEOUT_S


@pytest.fixture
def replica_client(
    stage: Stage,
    tmp_path: Path,
    lost: list[tuple[str, str, int]],
    pool_events: Mailbox[dict[str, Any]],
    idle_timeout_s: float,
) -> Iterator[ReplicaClient]:
    write_store(tmp_path / "store", PROMPTS)
    replica_client = ReplicaClient(
        stage.endpoints,
        generation=7,
        in_flight_limit=None,
        stream=True,
        health=HealthMonitor(100, 100),
        pool_events=pool_events,
        report_failed=lambda endpoint, cause, queries: lost.append((endpoint.address, cause, queries)),
        idle_timeout_s=idle_timeout_s,
    )
    replica_client.attach("run_key", SAMPLING, open_store(tmp_path / "store"))
    yield replica_client
    replica_client.close()


def collect(replica_client: ReplicaClient, enough: Callable[[Replies], bool]) -> Replies:
    """All that comes until there is enough."""
    found = Replies()
    deadline = time.monotonic() + PATIENCE_S
    while not enough(found):
        assert time.monotonic() < deadline, found
        more = replica_client.poll(20)
        found.first += more.first
        found.finished += more.finished
    return found


def test_new_generation_aborts_all_queries(stage: Stage, replica_client: ReplicaClient, tmp_path: Path) -> None:
    replica_client.issue(range(6), range(6))
    collect(replica_client, lambda found: len(found.first) == 6)
    replica_client.issue([7], [7])
    replica_client.attach("again", SAMPLING, open_store(tmp_path / "store"))
    assert replica_client.unanswered == 0
    assert [engine.asked for engine in stage.engines] == [{}, {}]

    stage.engines[0].lets = stage.engines[1].lets = True
    replica_client.issue([1, 2], [3, 4])
    found = collect(replica_client, lambda found: len(found.finished) == 2)
    assert {answer.query: int(answer.ids[0]) for answer in found.finished} == {1: 13, 2: 14}
    assert replica_client.detach().counters == [({}, {}), ({}, {})]


def test_generated_tokens_are_counted_by_replica(stage: Stage, replica_client: ReplicaClient) -> None:
    replica_client.issue(range(5), range(5))
    collect(replica_client, lambda found: len(found.first) == 5)
    counts = replica_client.count()
    assert {address: count.generated for address, count in counts.items()} == {
        endpoint.address: engine.generated for endpoint, engine in zip(stage.endpoints, stage.engines, strict=True)
    }
    assert sum(count.generated for count in counts.values()) == 5
    assert all(count.at > 0 for count in counts.values())


def join(pool_events: Mailbox[dict[str, Any]], endpoint: Endpoint) -> threading.Timer:
    """Let a replica join with the next messages; the timer removes it, if a call waits for it without end."""
    pool_events.put({"event": "replica_ready", "endpoints": [msgspec.to_builtins(endpoint)]})
    removal = {"event": "replica_failed", "addresses": [endpoint.address], "cause": "never asked"}
    timer = threading.Timer(PATIENCE_S / 4, lambda: pool_events.put(removal))
    timer.start()
    return timer


def test_count_does_not_wait_for_a_replica_that_joins(
    stage: Stage, replica_client: ReplicaClient, pool_events: Mailbox[dict[str, Any]], lost: list[tuple[str, str, int]]
) -> None:
    timer = join(pool_events, stage.add())
    stage.stopped.add(0)
    threading.Timer(1, stage.stopped.clear).start()  # the others reply after the replica has joined
    counts = replica_client.count()
    timer.cancel()
    assert list(counts) == [endpoint.address for endpoint in stage.endpoints[:2]]
    assert lost == []
    assert len(replica_client.count()) == 3


def test_detach_does_not_wait_for_a_replica_that_joins(
    stage: Stage, replica_client: ReplicaClient, pool_events: Mailbox[dict[str, Any]], lost: list[tuple[str, str, int]]
) -> None:
    timer = join(pool_events, stage.add())
    stage.stopped.add(0)
    threading.Timer(1, stage.stopped.clear).start()
    readings = replica_client.detach()
    timer.cancel()
    assert len(readings.idle) == 2
    assert lost == []


@pytest.mark.parametrize("idle_timeout_s", [1.0])
def test_replica_that_does_not_reply_in_time_fails(
    stage: Stage, replica_client: ReplicaClient, pool_events: Mailbox[dict[str, Any]], lost: list[tuple[str, str, int]]
) -> None:
    stage.stopped.add(0)
    silent, other = (endpoint.address for endpoint in stage.endpoints)
    removal = {"event": "replica_failed", "addresses": [silent], "cause": "no deadline"}
    timer = threading.Timer(PATIENCE_S / 4, lambda: pool_events.put(removal))
    timer.start()
    assert list(replica_client.count()) == [other]
    timer.cancel()
    assert lost == [(silent, "no token count within 1 s", 0)]


def test_messages_of_a_failed_replica_are_discarded(
    stage: Stage, replica_client: ReplicaClient, lost: list[tuple[str, str, int]]
) -> None:
    replica_client.issue(range(6), range(6))
    firsts = collect(replica_client, lambda found: len(found.first) == 6).first
    assert {answer.query: answer.ids.tolist() for answer in firsts} == {q: [10 + q] for q in range(6)}
    held = set(stage.engines[0].asked)
    assert len(held) == 3
    stage.stopped.add(0)
    replica_client.fail_replica(stage.endpoints[0].address, "not heard")
    assert lost == [(stage.endpoints[0].address, "not heard", 3)]

    stage.stopped.clear()
    stage.engines[0].lets = stage.engines[1].lets = True
    again = collect(replica_client, lambda found: len(found.finished) == 6)
    assert again.first == [], "a first token was told twice"
    assert {answer.query: answer.ids.tolist() for answer in again.finished} == {q: [10 + q, 101, 2] for q in range(6)}
    assert replica_client.unanswered == 0
    assert replica_client.poll(200) == Replies()
    readings = replica_client.detach()
    assert readings.counters == [({}, {}), ({}, {})]
    stayed, failed = readings.kv_caches
    assert stayed[0] is not None
    assert stayed[0] == stayed[1]
    assert failed[0] is not None
    assert failed[1] is None


def test_requeued_query_carries_its_reported_token(stage: Stage, replica_client: ReplicaClient) -> None:
    replica_client.issue([1, 2], [1, 2])
    collect(replica_client, lambda found: len(found.first) == 2)
    [query] = stage.engines[0].asked
    replica_client.fail_replica(stage.endpoints[0].address, "gone")
    replica_client.poll(0)
    deadline = time.monotonic() + PATIENCE_S
    while query not in stage.engines[1].asked:
        assert time.monotonic() < deadline
    assert stage.engines[1].asked[query] == ([10 + query, 5, 10 + query], 1)


def test_joined_replica_gets_queries(stage: Stage, replica_client: ReplicaClient) -> None:
    for endpoint in list(stage.endpoints):
        replica_client.fail_replica(endpoint.address, "gone")
    replica_client.issue([1], [1])
    replies = replica_client.poll(50)
    assert replies == Replies(issued=replies.issued)
    assert replies.issued[0][:2] == ([1], [1])
    assert replica_client.unanswered == 1
    replica_client.add_replica(stage.add())
    stage.engines[2].lets = True
    found = collect(replica_client, lambda found: bool(found.finished))
    assert found.finished[0].ids.tolist() == [11, 102, 2]


def test_requeued_answer_starts_with_the_reported_token(stage: Stage, replica_client: ReplicaClient) -> None:
    replica_client.issue([1], [1])
    collect(replica_client, lambda found: bool(found.first))
    engine = next(engine for engine in stage.engines if engine.asked)
    engine.asked[1] = ([99, 5], 0)
    engine.lets = True
    with pytest.raises(RunFailed, match="does not begin with its reported first token") as raised:
        collect(replica_client, lambda found: bool(found.finished))
    assert raised.value.expected == "11"
