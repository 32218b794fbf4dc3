"""The LoadGen process's end of the data plane: owns the sockets, feeds the replicas, collects their answers."""

import itertools
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import zmq

from harness_llm.config.benchmark import Sampling
from harness_llm.config.in_flight import InFlightLimit
from harness_llm.errors import RunFailed
from harness_llm.loadgen.health import HealthMonitor
from harness_llm.loadgen.query_table import Query, QueryTable
from harness_llm.protocol import messages as wire
from harness_llm.protocol.counters import Counters
from harness_llm.protocol.curve import Pair, unlock
from harness_llm.protocol.kv_cache import KvCache
from harness_llm.protocol.mailbox import Mailbox
from harness_llm.protocol.messages import Endpoint
from harness_llm.protocol.sockets import arrived
from harness_llm.protocol.token_store import Prompts

IDLE_TIMEOUT_S = 30.0
LOOK_EVERY_S = 1.0
_POLL_MS = 100

TellLost = Callable[[Endpoint, str, int], None]


@dataclass
class Replies:
    """What came back since the last look; `first` holds one token id per query."""

    first: list[wire.Answer] = field(default_factory=list)
    finished: list[wire.Answer] = field(default_factory=list)


@dataclass(eq=False)
class _Member:
    """A replica that takes part; `idle` are its Idle messages, after Attach and after Detach.

    `count` answers the last request to count tokens.
    """

    endpoint: Endpoint
    idle: list[wire.Idle] = field(default_factory=list)
    count: wire.Counted | None = None


@dataclass(frozen=True)
class Readings:
    """Idle messages of the replicas of a run, before and after it; None after it for a failed replica."""

    idle: list[tuple[wire.Idle, wire.Idle | None]]

    @property
    def counters(self) -> list[tuple[Counters | None, Counters | None]]:
        """Counters before and after; None where unknown, as those of a failed replica unless its engine has none."""
        failed: Counters | None
        pairs: list[tuple[Counters | None, Counters | None]] = []
        for before, after in self.idle:
            failed = {} if before.counters == {} else None
            pairs.append((before.counters, after.counters if after else failed))
        return pairs

    @property
    def kv_caches(self) -> list[tuple[KvCache | None, KvCache | None]]:
        """KV cache figures before and after."""
        return [(before.kv_cache, after.kv_cache if after else None) for before, after in self.idle]


class ReplicaClient:
    """Serves one run on replicas that may come and go; used by one thread alone.

    Attributes:
        query table: who holds what.
    """

    def __init__(
        self,
        endpoints: Iterable[Endpoint],
        *,
        generation: int,
        in_flight_limit: InFlightLimit | None,
        stream: bool,
        health: HealthMonitor,
        news: Mailbox[dict[str, Any]],
        report_failed: TellLost,
        keys: Pair | None = None,
    ) -> None:
        """Connect to the replicas at `endpoints`.

        Args:
            generation: of the first attachment; each further one adds 1. No other replica client may use them.
            credit: for Offline; without one, every query is sent at once.
            news: where others tell of replicas: `{"event": "lost", "addresses": […], "cause": …}`, or
                `{"event": "joined", "endpoints": […]}`.
            report_failed: called with each replica that is lost, why, and how many queries are issued again.
            keys: our own, for replicas behind a gate.
        """
        self.query_table = QueryTable(in_flight_limit)
        self._generations = itertools.count(generation)
        self._generation = generation
        self._stream = stream
        self._health = health
        self._news = news
        self._report_failed = report_failed
        self._keys = keys
        self._attach: wire.Attach | None = None
        self._members: dict[str, _Member] = {}
        self._gone: list[_Member] = []
        self._looked = 0.0
        self._tell_kinds = False
        self._kinds: list[str] = []
        self._heartbeat_publishers = self._open(zmq.SUB)
        self._heartbeat_publishers.subscribe(b"")
        # One socket for all: to poll one for each of 72 replicas takes 26 µs.
        self._socket = self._open(zmq.ROUTER)
        self._socket.router_mandatory = True
        self._poller = zmq.Poller()
        self._poller.register(self._socket, zmq.POLLIN)
        self._listeners: dict[int, Callable[[], None]] = {}
        self.listen(news.arrivals, self._hear)
        for endpoint in endpoints:
            self.join(endpoint)

    def _open(self, kind: int) -> "zmq.Socket[bytes]":
        socket: zmq.Socket[bytes] = zmq.Context.instance().socket(kind)
        socket.setsockopt(zmq.LINGER, 0)
        socket.set_hwm(0)
        return socket

    def listen(self, arrivals: int, act: Callable[[], None]) -> None:
        """Have `harvest` wait for the descriptor `arrivals` too, and call `act` whenever that is readable."""
        self._poller.register(arrivals, zmq.POLLIN)
        self._listeners[arrivals] = act

    def join(self, endpoint: Endpoint) -> None:
        """Let another replica take part."""
        if endpoint.key and self._keys:  # in force for what is connected from now on
            unlock(self._socket, self._keys, endpoint.key)
            unlock(self._heartbeat_publishers, self._keys, endpoint.key)
        self._socket.setsockopt_string(zmq.CONNECT_ROUTING_ID, endpoint.address)
        self._socket.connect(endpoint.address)
        self._heartbeat_publishers.connect(endpoint.beats)
        self._members[endpoint.address] = _Member(endpoint)
        self._health.join(endpoint.address, time.monotonic())
        self.query_table.join(endpoint.address)
        if self._attach:
            self._send(endpoint.address, self._attach)

    def _send(self, address: str, request: wire.Request) -> None:
        self._socket.send_multipart([address.encode(), wire.encode(request)])

    def lose(self, address: str, cause: str) -> None:
        """Give a replica up, if that has not been done: what it still sends reaches nobody."""
        member = self._members.pop(address, None)
        if member is None:
            return
        self._gone.append(member)
        self._health.leave(address)
        self._heartbeat_publishers.disconnect(member.endpoint.beats)
        self._socket.disconnect(address)
        self._report_failed(member.endpoint, cause, self.query_table.lose(address))

    @property
    def in_flight(self) -> int:
        """Queries taken in and not answered."""
        return self.query_table.in_flight

    def attach(self, run_key: str, sampling: Sampling, *, stream: bool | None = None) -> None:
        """Claim every replica for `run`; returns once all are idle. Queries in flight are aborted and forgotten.

        `stream` replaces the replica client's own for this attachment.
        """
        self.query_table.clear()
        self._gone.clear()
        for member in self._members.values():
            member.idle.clear()
        self._generation = next(self._generations)
        self._attach = wire.Attach(
            generation=self._generation,
            run_key=run_key,
            stream=self._stream if stream is None else stream,
            sampling=sampling.model_dump_json(),
        )
        self._tell_kinds = bool(sampling.stop_sequences)
        self._await_idle(self._attach, 1)

    def detach(self) -> Readings:
        """Release the replicas once every query is answered; return what each one counted before and after.

        Failed replicas are included if they had taken part: before a replica was idle, none of its answers was taken.
        """
        self._await_idle(wire.Detach(self._generation), 2)
        stayed = [(member.idle[0], member.idle[1]) for member in self._members.values()]
        return Readings([*stayed, *((member.idle[0], None) for member in self._gone if member.idle)])

    def _await_idle(self, request: wire.Request, times: int) -> None:
        for address in self._members:
            self._send(address, request)
        deadline = time.monotonic() + IDLE_TIMEOUT_S
        while late := [m for m in self._members.values() if len(m.idle) < times]:
            if time.monotonic() > deadline:
                for member in late:
                    self.lose(member.endpoint.address, f"not idle within {IDLE_TIMEOUT_S:g} s")
            self.poll(_POLL_MS)

    def count(self) -> dict[str, wire.Counted]:
        """Ask every replica for its progress; by address, without replicas that failed meanwhile."""
        for address, member in self._members.items():
            member.count = None
            self._send(address, wire.Count(self._generation))
        while any(member.count is None for member in self._members.values()):
            self.poll(_POLL_MS)
        return {address: member.count for address, member in self._members.items() if member.count}

    def load(self, store: Prompts) -> None:
        """Take samples from `store` from now on; all queries of the one before are answered."""
        self._store = store
        self._kinds = store.kinds() if self._tell_kinds else []
        self.query_table.load(store.lengths())

    def offer(self, queries: Sequence[int], samples: Sequence[int]) -> None:
        """Take in queries, by id and sample."""
        self.query_table.offer(queries, samples)

    def feed(self) -> None:
        """Send waiting queries to the replicas that should have them."""
        for address, share in self.query_table.assign(time.monotonic()):
            self._send(address, self._submit(share))

    def _submit(self, share: Sequence[Query]) -> wire.Submit:
        prompts = [self._prompt(query) for query in share]
        known = [int(query.first is not None) for query in share]
        return wire.Submit(
            generation=self._generation,
            queries=[query.id for query in share],
            lengths=[len(prompt) for prompt in prompts],
            tokens=wire.pack_tokens(prompts),
            kinds=[self._kinds[query.sample] for query in share] if self._kinds else [],
            reported=known if any(known) else [],
        )

    def _prompt(self, query: Query) -> npt.NDArray[np.int32]:
        prompt = self._store.prompt(query.sample)
        return prompt if query.first is None else np.append(prompt, np.int32(query.first))

    def poll(self, timeout_ms: int) -> Replies:
        """Collect what the replicas have sent, and what is told of them; waits up to `timeout_ms` for the first."""
        poll = Replies()
        for source, _ in self._poller.poll(timeout_ms):
            if source is self._socket:
                self._drain(poll)
            else:
                self._listeners[source]()
        now = time.monotonic()
        if now - self._looked > LOOK_EVERY_S:
            self._looked = now
            self._feel_pulses(now)
        return poll

    def _drain(self, poll: Replies) -> None:
        for sender, body in arrived(self._socket):
            member, reply = self._members.get(sender.decode()), wire.decode_reply(body)
            if member is None or reply.generation != self._generation:
                continue
            if isinstance(reply, wire.Answers):
                self._take(member.endpoint.address, reply, poll)
            elif isinstance(reply, wire.Idle):
                member.idle.append(reply)
            elif isinstance(reply, wire.Counted):
                member.count = reply
            else:
                what = "refused a query" if member.idle else "cannot serve"
                raise RunFailed(f"a replica {what}", where=member.endpoint.address, found=reply.text)

    def _take(self, address: str, answers: wire.Answers, poll: Replies) -> None:
        firsts = wire.unpack_tokens(answers.first_tokens, [1] * len(answers.first_queries))
        for query, ids in zip(answers.first_queries, firsts, strict=True):
            self.query_table.first(address, query, int(ids[0]))
            poll.first.append(wire.Answer(query, ids))
        now = time.monotonic()
        for query, ids in zip(answers.queries, wire.unpack_tokens(answers.tokens, answers.lengths), strict=True):
            first = self.query_table.finish(address, query, len(ids), now).first
            if first is not None and not (len(ids) and ids[0] == first):
                raise RunFailed(
                    "an answer does not begin with its first token as it was reported",
                    where=address,
                    expected=str(first),
                    found=str(ids[:4].tolist()),
                )
            poll.finished.append(wire.Answer(query, ids))

    def _feel_pulses(self, now: float) -> None:
        for (body,) in arrived(self._heartbeat_publishers):
            beat = wire.decode_beat(body)
            if beat.address in self._members:
                self._health.take(beat.address, beat, now)
        for address, cause in self._health.lost(now):
            self.lose(address, cause)

    def _hear(self) -> None:
        for message in self._news.take():
            if message["event"] == "lost":
                for address in message["addresses"]:
                    self.lose(address, message["cause"])
            else:
                for endpoint in msgspec.convert(message["endpoints"], list[Endpoint]):
                    self.join(endpoint)

    def close(self) -> None:
        """Let go of everything."""
        self._heartbeat_publishers.close()
        self._socket.close()
