"""Replica client: LoadGen's side of the connection to the replicas. Owns the sockets and the issue queue."""

import itertools
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

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
from harness_llm.protocol.curve import KeyPair, use_curve
from harness_llm.protocol.kv_cache import KvCache
from harness_llm.protocol.mailbox import Mailbox
from harness_llm.protocol.messages import Endpoint
from harness_llm.protocol.token_store import Prompts

IDLE_TIMEOUT_S = 30.0
HEALTH_INTERVAL_S = 1.0
_POLL_MS = 100

ReportFailed = Callable[[Endpoint, str, int], None]
FirstTokens = Callable[[list[wire.Answer]], None]


class Issued(NamedTuple):
    """Queries of one call of LoadGen, by id and sample, and its time."""

    queries: Sequence[int]
    samples: Sequence[int]
    at: float


class Sent(NamedTuple):
    """Queries of one message to a replica, given by name, and its time."""

    replica: str
    queries: Sequence[int]
    at: float


class Beat(NamedTuple):
    """A heartbeat of an attached replica, its queries in flight, and the time when it was read."""

    endpoint: Endpoint
    heartbeat: wire.Heartbeat
    in_flight: int
    at: float


@dataclass
class Replies:
    """Result of one poll: issued and sent queries, first tokens (one id per query), whole answers, heartbeats.

    `finished_queries` and `finished_lengths` are those of `finished`, for records of the whole batch.

    Times are of the clock of time.perf_counter.
    """

    issued: list[Issued] = field(default_factory=list)
    sent: list[Sent] = field(default_factory=list)
    first: list[wire.Answer] = field(default_factory=list)
    finished: list[wire.Answer] = field(default_factory=list)
    finished_queries: list[int] = field(default_factory=list)
    finished_lengths: list[int] = field(default_factory=list)
    heartbeats: list[Beat] = field(default_factory=list)


@dataclass(eq=False)
class _ReplicaState:
    """A connected replica.

    Attributes:
        idle: its Idle messages, after Attach and after Detach.
        count: the reply to the last request to count tokens.
        activity: of its last heartbeat, which was sent at the time `at` of the replica's clock.
    """

    endpoint: Endpoint
    activity: wire.Activity | None = None
    at: float = 0.0
    idle: list[wire.Idle] = field(default_factory=list)
    count: wire.Counted | None = None


@dataclass(frozen=True)
class Readings:
    """Idle messages of the replicas before and after a run; None after it for a failed replica."""

    idle: list[tuple[wire.Idle, wire.Idle | None]]

    @property
    def counters(self) -> list[tuple[Counters | None, Counters | None]]:
        """Counters before and after; None where unknown. A failed replica's are known if its engine has none."""
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
    """Serves one run; replicas may fail and be added meanwhile. One thread uses it; any thread may call `issue`.

    Attributes:
        query_table: state of the unanswered queries.
    """

    def __init__(
        self,
        endpoints: Iterable[Endpoint],
        *,
        generation: int,
        in_flight_limit: InFlightLimit | None,
        stream: bool,
        health: HealthMonitor,
        pool_events: Mailbox[dict[str, Any]],
        report_failed: ReportFailed,
        keys: KeyPair | None = None,
        idle_timeout_s: float = IDLE_TIMEOUT_S,
    ) -> None:
        """Connect to the replicas at `endpoints`.

        Args:
            generation: of the first attachment; each further one adds 1. No other replica client may use them.
            in_flight_limit: for Offline; without it, every query is sent at once.
            pool_events: events of the replica pool: `{"event": "replica_failed", "addresses": […], "cause": …}` or
                `{"event": "replica_ready", "endpoints": […]}`.
            report_failed: called with each failed replica, the cause, and the number of requeued queries.
            keys: CURVE keys of this process, for replicas that require them.
            idle_timeout_s: for replicas to become idle after Attach and Detach, and to report their progress.
        """
        self._idle_timeout_s = idle_timeout_s
        self.query_table = QueryTable(in_flight_limit)
        self._generations = itertools.count(generation)
        self._generation = generation
        self._stream = stream
        self._health = health
        self._pool_events = pool_events
        self._report_failed = report_failed
        self._keys = keys
        self._attach: wire.Attach | None = None
        self._replicas: dict[str, _ReplicaState] = {}
        self._failed: list[_ReplicaState] = []
        self._checked_health = 0.0
        self._prompts: Prompts
        self._kinds: list[str] = []
        self._issued: Mailbox[Issued] = Mailbox()
        self._heartbeats = self._open(zmq.SUB)
        self._heartbeats.subscribe(b"")
        # One socket for all replicas: polling 72 sockets takes 26 µs.
        self._socket = self._open(zmq.ROUTER)
        self._socket.router_mandatory = True
        self._poller = zmq.Poller()
        for source in (self._socket, self._issued.arrivals, pool_events.arrivals):
            self._poller.register(source, zmq.POLLIN)
        for endpoint in endpoints:
            self.add_replica(endpoint)

    def _open(self, kind: int) -> "zmq.Socket[bytes]":
        socket: zmq.Socket[bytes] = zmq.Context.instance().socket(kind)
        socket.setsockopt(zmq.LINGER, 0)
        socket.set_hwm(0)
        return socket

    def add_replica(self, endpoint: Endpoint) -> None:
        """Connect to a replica and let it take part in the run."""
        if endpoint.key and self._keys:
            use_curve(self._socket, self._keys, endpoint.key)
            use_curve(self._heartbeats, self._keys, endpoint.key)
        self._socket.setsockopt_string(zmq.CONNECT_ROUTING_ID, endpoint.address)
        self._socket.connect(endpoint.address)
        self._heartbeats.connect(endpoint.heartbeat)
        self._replicas[endpoint.address] = _ReplicaState(endpoint)
        self._health.add(endpoint.address, time.monotonic())
        self.query_table.add_replica(endpoint.address)
        if self._attach:
            self._send(endpoint.address, self._attach)

    def _send(self, address: str, request: wire.Request) -> None:
        self._socket.send_multipart([address.encode(), wire.encode(request)])

    def fail_replica(self, address: str, cause: str) -> None:
        """Mark a replica as failed, requeue its queries and discard its late messages; no effect if it has failed."""
        replica = self._replicas.pop(address, None)
        if replica is None:
            return
        self._failed.append(replica)
        self._health.remove(address)
        self._heartbeats.disconnect(replica.endpoint.heartbeat)
        self._socket.disconnect(address)
        self._report_failed(replica.endpoint, cause, self.query_table.fail_replica(address))

    @property
    def unanswered(self) -> int:
        """Queries taken from the issue queue and not answered."""
        return self.query_table.unanswered

    def statuses(self) -> list[wire.ReplicaStatus]:
        """Return the queries in flight and the last heartbeat's activity of each replica."""
        loads = self.query_table.loads
        return [
            wire.ReplicaStatus(replica.endpoint.name, loads[address].running, replica.at, replica.activity)
            for address, replica in self._replicas.items()
        ]

    def attach(self, run_key: str, sampling: Sampling, prompts: Prompts, *, stream: bool | None = None) -> None:
        """Attach every replica to a run over samples of `prompts`; return once all are idle.

        A replica that joins meanwhile is attached too, and may become idle later.
        Queries issued before are aborted and discarded. `stream` replaces the replica client's own for this attachment.
        """
        self._issued.take()
        self.query_table.reset(prompts.lengths())
        self._prompts = prompts
        self._kinds = prompts.kinds() if sampling.stop_sequences else []
        self._failed.clear()
        for replica in self._replicas.values():
            replica.idle.clear()
            replica.activity = None
        self._generation = next(self._generations)
        self._attach = wire.Attach(
            generation=self._generation,
            run_key=run_key,
            stream=self._stream if stream is None else stream,
            sampling=sampling.model_dump_json(),
        )
        self._request(self._attach, lambda replica: bool(replica.idle), "not idle")

    def detach(self) -> Readings:
        """Detach the replicas once every query is answered; return their readings before and after the run.

        Failed replicas are included if they were idle after Attach: before, no answer of theirs was accepted. A replica
        that joins meanwhile is not included: it has answered no query.
        """
        self._request(wire.Detach(self._generation), lambda replica: len(replica.idle) > 1, "not idle")
        healthy = [(replica.idle[0], replica.idle[1]) for replica in self._replicas.values() if len(replica.idle) > 1]
        return Readings([*healthy, *((replica.idle[0], None) for replica in self._failed if replica.idle)])

    def _request(self, request: wire.Request, replied: Callable[[_ReplicaState], bool], cause: str) -> None:
        """Send `request` to every replica, and wait until each has replied or failed.

        A replica fails for `cause` if it does not reply in time. One that joins meanwhile gets no request.
        """
        requested = dict(self._replicas)
        for address in requested:
            self._send(address, request)
        deadline = time.monotonic() + self._idle_timeout_s
        while late := [address for address in requested.keys() & self._replicas if not replied(requested[address])]:
            if time.monotonic() > deadline:
                for address in late:
                    self.fail_replica(address, f"{cause} within {self._idle_timeout_s:g} s")
            self._receive(_POLL_MS)

    def count(self) -> dict[str, wire.Counted]:
        """Request the progress of every replica; return it by address, without replicas that failed meanwhile."""
        for replica in self._replicas.values():
            replica.count = None
        self._request(wire.Count(self._generation), lambda replica: replica.count is not None, "no token count")
        return {address: replica.count for address, replica in self._replicas.items() if replica.count}

    def issue(self, queries: Sequence[int], samples: Sequence[int]) -> None:
        """Queue queries, by id and sample, for the next poll; from any thread. LoadGen's issue callback."""
        self._issued.put(Issued(queries, samples, time.perf_counter()))

    def poll(self, timeout_ms: int, first_tokens: FirstTokens | None = None) -> Replies:
        """Receive messages, report `first_tokens`, then send waiting queries; wait up to `timeout_ms` for the first.

        First tokens come before sending, because LoadGen takes their time when they are reported.
        """
        replies = self._receive(timeout_ms)
        if first_tokens and replies.first:
            first_tokens(replies.first)
        for address, share in self.query_table.assign(time.monotonic()):
            submit = self._submit(share)
            self._send(address, submit)
            replies.sent.append(Sent(self._replicas[address].endpoint.name, submit.queries, time.perf_counter()))
        return replies

    def _submit(self, share: Sequence[Query]) -> wire.Submit:
        prompts = [self._prompt(query) for query in share]
        reported = [int(query.first is not None) for query in share]
        return wire.Submit(
            generation=self._generation,
            queries=[query.id for query in share],
            lengths=[len(prompt) for prompt in prompts],
            tokens=wire.pack_tokens(prompts),
            kinds=[self._kinds[query.sample] for query in share] if self._kinds else [],
            reported=reported if any(reported) else [],
        )

    def _prompt(self, query: Query) -> npt.NDArray[np.int32]:
        prompt = self._prompts.prompt(query.sample)
        return prompt if query.first is None else np.append(prompt, np.int32(query.first))

    def _receive(self, timeout_ms: int) -> Replies:
        """Receive replies, issued queries and events of the replica pool; check the health of the replicas."""
        replies = Replies()
        for source, _ in self._poller.poll(timeout_ms):
            if source is self._socket:
                self._read_replies(replies)
            elif source == self._issued.arrivals:
                self._read_issued(replies)
            else:
                self._read_pool_events()
        now = time.monotonic()
        if now - self._checked_health > HEALTH_INTERVAL_S:
            self._checked_health = now
            self._check_health(now, replies)
        return replies

    def _read_issued(self, replies: Replies) -> None:
        for issued in self._issued.take():
            self.query_table.issue(issued.queries, issued.samples)
            replies.issued.append(issued)

    def _read_replies(self, replies: Replies) -> None:
        for sender, body in wire.received(self._socket):
            replica, reply = self._replicas.get(sender.decode()), wire.decode_reply(body)
            if replica is None or reply.generation != self._generation:
                continue
            if isinstance(reply, wire.Answers):
                self._read_answers(replica.endpoint.address, reply, replies)
            elif isinstance(reply, wire.Idle):
                replica.idle.append(reply)
            elif isinstance(reply, wire.Counted):
                replica.count = reply
            else:
                what = "refused a query" if replica.idle else "cannot serve"
                raise RunFailed(f"a replica {what}", where=replica.endpoint.address, found=reply.text)

    def _read_answers(self, address: str, answers: wire.Answers, replies: Replies) -> None:
        firsts = wire.unpack_tokens(answers.first_tokens, [1] * len(answers.first_queries))
        for query, ids in zip(answers.first_queries, firsts, strict=True):
            self.query_table.first_token(address, query, int(ids[0]))
            replies.first.append(wire.Answer(query, ids))
        now = time.monotonic()
        for query, ids in zip(answers.queries, wire.unpack_tokens(answers.tokens, answers.lengths), strict=True):
            first = self.query_table.finish(address, query, len(ids), now).first
            if first is not None and not (len(ids) and ids[0] == first):
                raise RunFailed(
                    "an answer does not begin with its reported first token",
                    where=address,
                    expected=str(first),
                    found=str(ids[:4].tolist()),
                )
            replies.finished.append(wire.Answer(query, ids))
        replies.finished_queries += answers.queries
        replies.finished_lengths += answers.lengths

    def _check_health(self, now: float, replies: Replies) -> None:
        at = time.perf_counter()
        for (body,) in wire.received(self._heartbeats):
            heartbeat = wire.decode_heartbeat(body)
            address = heartbeat.address
            if address not in self._replicas:
                continue
            self._health.record(address, heartbeat, now)
            if heartbeat.generation == self._generation:
                replica = self._replicas[address]
                replica.activity, replica.at = heartbeat.activity, heartbeat.at
                in_flight = self.query_table.loads[address].running
                replies.heartbeats.append(Beat(replica.endpoint, heartbeat, in_flight, at))
        for address, cause in self._health.failed(now):
            self.fail_replica(address, cause)

    def _read_pool_events(self) -> None:
        for event in self._pool_events.take():
            if event["event"] == "replica_failed":
                for address in event["addresses"]:
                    self.fail_replica(address, event["cause"])
            else:
                for endpoint in msgspec.convert(event["endpoints"], list[Endpoint]):
                    self.add_replica(endpoint)

    def close(self) -> None:
        """Close the sockets and the issue queue."""
        self._heartbeats.close()
        self._socket.close()
        self._issued.close()
