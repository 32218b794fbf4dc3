"""The replica's loop around engines that tests control: polling, counters, warm-up."""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zmq

from harness_llm.config.benchmark import Sampling
from harness_llm.protocol import messages as wire
from harness_llm.protocol.kv_cache import KvCache
from harness_llm.protocol.mailbox import Mailbox
from harness_llm.protocol.token_store import open_store, write_store
from harness_llm.replicas.engines.engine import Step
from harness_llm.replicas.engines.replay import ReplayEngine, ReplaySpec
from harness_llm.replicas.replica import Replica, warm_up

pytestmark = pytest.mark.processes

SAMPLING = Sampling(temperature=0.0, min_tokens=1, max_tokens=8, stop_token_ids=(2,))
PATIENCE_S = 120


class Apart:
    """An engine that computes elsewhere: its outputs are what a test puts into `outputs`."""

    def __init__(self) -> None:
        self.outputs: Mailbox[Step | Exception] = Mailbox()
        self.arrivals = self.outputs.arrivals
        self.added: list[int] = []
        self.received = threading.Event()
        self.generated = 0
        self.busy = False

    def configure(self, sampling: Sampling, *, stream: bool) -> None:
        """Nothing is sampled."""

    def add(self, query: int, prompt: list[int], kind: str = "", reported: int = 0) -> None:
        self.busy = True
        self.added.append(query)
        self.received.set()

    def step(self) -> Step:
        whole = Step()
        for output in self.outputs.take():
            if isinstance(output, Exception):
                raise output
            whole.first += output.first
            whole.finished += output.finished
        return whole

    def counters(self) -> dict[str, float]:
        return {}

    def kv_cache(self) -> KvCache:
        return KvCache(preemptions=5.0)

    def activity(self) -> wire.Activity:
        return wire.Activity(self.generated)

    def abort(self) -> None:
        self.busy = False


class Served:
    """A replica in a thread, and a client of it."""

    def __init__(self, address: str) -> None:
        self.engine = Apart()
        self.replica = Replica(self.engine, address)
        self.socket: zmq.Socket[bytes] = zmq.Context.instance().socket(zmq.DEALER)
        self.socket.connect(address)
        self.raised: list[Exception] = []
        self._over = False
        self.thread = threading.Thread(target=self._serve)
        self.thread.start()

    def _serve(self) -> None:
        try:
            while not self._over:
                self.replica.serve_once()
        except RuntimeError as error:
            self.raised.append(error)

    def send(self, request: wire.Request) -> None:
        self.socket.send(wire.encode(request))

    def submit(self, *queries: int) -> None:
        tokens = wire.pack_tokens([[5]] * len(queries))
        self.send(wire.Submit(1, list(queries), [1] * len(queries), tokens, [], []))

    def reply(self) -> Any:
        assert self.socket.poll(PATIENCE_S * 1000), "the replica does not reply"
        return wire.decode_reply(self.socket.recv())

    def close(self) -> None:
        self._over = True
        self.send(wire.Detach(0))
        self.thread.join(PATIENCE_S)
        self.socket.close(linger=0)
        self.replica.socket.close(linger=0)


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    served = Served(f"ipc://{tmp_path}/replica")
    served.send(wire.Attach(1, "run_key", stream=True, sampling=SAMPLING.model_dump_json()))
    assert served.reply() == wire.Idle(1, {}, KvCache(preemptions=5.0))
    yield served
    served.close()


def test_query_enters_the_engine_while_an_answer_is_pending(served: Served) -> None:
    for query in (1, 2):
        served.engine.received.clear()
        served.submit(query)
        assert served.engine.received.wait(PATIENCE_S)
    assert served.engine.added == [1, 2]


def test_outputs_are_sent_without_a_new_query(served: Served) -> None:
    served.submit(1)
    assert served.engine.received.wait(PATIENCE_S)
    served.engine.outputs.put(Step(first=[(1, 7)], finished=[(1, np.array([7, 2], dtype=np.int32))]))
    answers = served.reply()
    assert answers.first_queries == answers.queries == [1]
    assert [ids.tolist() for ids in wire.unpack_tokens(answers.tokens, answers.lengths)] == [[7, 2]]


def test_queries_without_output_are_no_steps(served: Served) -> None:
    """An engine that makes no steps is found by its heartbeats, however many queries arrive meanwhile."""
    for query in range(3):
        served.engine.received.clear()
        served.submit(query)
        assert served.engine.received.wait(PATIENCE_S)
    served.send(wire.Detach(1))
    served.reply()
    assert served.replica.heartbeat().steps == 0
    served.engine.outputs.put(Step(first=[(1, 7)]))
    served.reply()
    assert served.replica.heartbeat().steps == 1


@pytest.mark.parametrize("busy", [True, False])
def test_exit_of_the_engine_ends_the_replica(served: Served, *, busy: bool) -> None:
    served.engine.busy = busy
    served.engine.outputs.put(RuntimeError("the engine core ended"))
    served.thread.join(PATIENCE_S)
    assert [str(error) for error in served.raised] == ["the engine core ended"]


def test_warm_up_fills_a_batch_with_short_answers(tmp_path: Path) -> None:
    write_store(tmp_path / "store", [[3, 4], [5]])
    spec = ReplaySpec(
        prefill_tokens_per_s=0,
        step_s=0,
        step_s_per_sequence=0,
        output_tokens=1000,
        output_spread=0.0,
        recorded="",
        speed=1.0,
    )
    engine = ReplayEngine({"max_num_seqs": 64}, spec)
    assert warm_up(engine, open_store(tmp_path / "store"), batch=64, tokens=16) == 64 * 16
