"""The LoadGen process's end of the data plane: owns the sockets and all state of a query."""

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
import zmq

from harness_llm.benchmarks import Sampling
from harness_llm.datasets.store import TokenStore
from harness_llm.engines import Counters
from harness_llm.errors import RunFailed
from harness_llm.fleet import wire
from harness_llm.fleet.dispatch import Load, least_loaded, top_up

ATTACH_TIMEOUT_MS = 30_000


@dataclass
class Harvest:
    """What came back since the last look; `first` holds one token id per query."""

    first: list[wire.Answer] = field(default_factory=list)
    finished: list[wire.Answer] = field(default_factory=list)


@dataclass
class _InFlight:
    replica: int
    tokens: int
    started: bool = False


class Dispatcher:
    """Feeds the replicas and collects their answers; used by one thread alone."""

    def __init__(self, endpoints: Sequence[str], *, generation: int, credit: int | None, stream: bool) -> None:
        """Connect to the replicas at `endpoints`; `credit` is how many queries one holds, None sends each at once."""
        self.poller = zmq.Poller()
        self._sockets = [self._connect(endpoint) for endpoint in endpoints]
        self._loads = [Load() for _ in endpoints]
        self._generation = generation
        self._credit = credit
        self._stream = stream
        self._waiting: deque[tuple[int, int]] = deque()
        self._in_flight: dict[int, _InFlight] = {}
        self._kinds: list[str] | None = None
        self._tell_kinds = False

    def _connect(self, endpoint: str) -> "zmq.Socket[bytes]":
        socket: zmq.Socket[bytes] = zmq.Context.instance().socket(zmq.DEALER)
        socket.setsockopt(zmq.LINGER, 0)
        socket.set_hwm(0)
        socket.connect(endpoint)
        self.poller.register(socket, zmq.POLLIN)
        return socket

    @property
    def in_flight(self) -> int:
        """Queries taken in and not answered."""
        return len(self._in_flight) + len(self._waiting)

    def attach(self, cell: str, sampling: Sampling) -> list[Counters | None]:
        """Claim every replica for `cell`; returns once all are idle, with what their engines have counted."""
        request = wire.Attach(
            generation=self._generation,
            cell=cell,
            stream=self._stream,
            sampling=sampling.model_dump_json(),
        )
        self._tell_kinds = bool(sampling.stop_sequences)
        return self._await_idle(request)

    def detach(self) -> list[Counters | None]:
        """Let go of the replicas once every query is answered; returns what their engines have counted."""
        return self._await_idle(wire.Detach(self._generation))

    def _await_idle(self, request: wire.Request) -> list[Counters | None]:
        for socket in self._sockets:
            socket.send(wire.encode(request))
        return [self._idle(replica, socket).counters for replica, socket in enumerate(self._sockets)]

    def _idle(self, replica: int, socket: "zmq.Socket[bytes]") -> wire.Idle:
        while socket.poll(ATTACH_TIMEOUT_MS):
            reply = wire.decode_reply(socket.recv())
            if reply.generation != self._generation:
                continue
            if isinstance(reply, wire.Fault):
                raise RunFailed("a replica cannot serve", where=f"replica {replica}", found=reply.text)
            if isinstance(reply, wire.Idle):
                return reply
        raise RunFailed(
            "a replica does not answer",
            where=f"replica {replica}",
            expected=f"idle in {ATTACH_TIMEOUT_MS} ms",
        )

    def offer(self, queries: Iterable[tuple[int, int]]) -> None:
        """Take in (query id, sample index) pairs."""
        self._waiting.extend(queries)

    def feed(self, store: TokenStore) -> None:
        """Send waiting queries to the replicas that should have them."""
        if not self._waiting:
            return
        if self._credit is None:
            shares: list[list[tuple[int, int]]] = [[] for _ in self._loads]
            while self._waiting:
                query = self._waiting.popleft()
                replica = least_loaded(self._loads)
                self._hold(replica, query, store)
                shares[replica].append(query)
        else:
            counts = top_up(self._loads, self._credit, len(self._waiting))
            shares = [[self._waiting.popleft() for _ in range(count)] for count in counts]
            for replica, share in enumerate(shares):
                for query in share:
                    self._hold(replica, query, store)
        for replica, share in enumerate(shares):
            if share:
                self._send(replica, share, store)

    def _hold(self, replica: int, query: tuple[int, int], store: TokenStore) -> None:
        tokens = int(store.offsets[query[1] + 1] - store.offsets[query[1]])
        self._in_flight[query[0]] = _InFlight(replica, tokens)
        self._loads[replica].running += 1
        self._loads[replica].unstarted_tokens += tokens

    def _send(self, replica: int, share: list[tuple[int, int]], store: TokenStore) -> None:
        prompts = [store.prompt(index) for _, index in share]
        message = wire.Submit(
            generation=self._generation,
            queries=[query for query, _ in share],
            lengths=[len(prompt) for prompt in prompts],
            tokens=np.concatenate(prompts).astype("<i4", copy=False).tobytes(),
            kinds=self._kinds_of(share, store),
        )
        self._sockets[replica].send(wire.encode(message))

    def _kinds_of(self, share: list[tuple[int, int]], store: TokenStore) -> list[str]:
        if not self._tell_kinds:
            return []
        if self._kinds is None:
            self._kinds = store.kinds()
        return [self._kinds[index] for _, index in share]

    def harvest(self, timeout_ms: int) -> Harvest:
        """Collect what the replicas have sent; waits up to `timeout_ms` for the first message."""
        harvest = Harvest()
        ready = dict(self.poller.poll(timeout_ms))
        for replica, socket in enumerate(self._sockets):
            if socket in ready:
                self._drain(replica, socket, harvest)
        return harvest

    def _drain(self, replica: int, socket: "zmq.Socket[bytes]", harvest: Harvest) -> None:
        while True:
            try:
                reply = wire.decode_reply(socket.recv(zmq.NOBLOCK))
            except zmq.Again:
                return
            if reply.generation != self._generation:
                continue
            if isinstance(reply, wire.Fault):
                raise RunFailed("a replica refused a query", where=f"replica {replica}", found=reply.text)
            if isinstance(reply, wire.Answers):
                self._take(replica, reply, harvest)

    def _take(self, replica: int, answers: wire.Answers, harvest: Harvest) -> None:
        load = self._loads[replica]
        for query, token in zip(answers.first_queries, np.frombuffer(answers.first_tokens, dtype="<i4"), strict=True):
            state = self._in_flight[query]
            state.started = True
            load.unstarted_tokens -= state.tokens
            harvest.first.append(wire.Answer(query, token.reshape(1)))
        ids = np.frombuffer(answers.tokens, dtype="<i4")
        ends = np.cumsum(answers.lengths)
        for query, end, length in zip(answers.queries, ends, answers.lengths, strict=True):
            state = self._in_flight.pop(query)
            load.running -= 1
            if not state.started:
                load.unstarted_tokens -= state.tokens
            harvest.finished.append(wire.Answer(query, ids[end - length : end]))

    def close(self) -> None:
        """Let go of the replicas."""
        for socket in self._sockets:
            socket.close()
