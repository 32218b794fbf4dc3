"""Query table: state of all unanswered queries. It uses no sockets and no clock; simulations use it too."""

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import takewhile

import numpy as np
import numpy.typing as npt

from harness_llm.config.in_flight import InFlightLimit
from harness_llm.errors import RunFailed
from harness_llm.loadgen.scheduler import Load, fill_to_limit, least_loaded, replicas_to_feed, round_robin

# A query in flight on this many failed replicas is regarded as the cause.
MAX_FAILURES = 3
_NAMED = 5  # such queries in the error
# Number of batches of answers that the pace of a replica averages.
_PACE_BATCHES = 2


@dataclass(slots=True, eq=False)
class Query:
    """One sample of a LoadGen query (`QuerySample`), which is answered separately.

    Attributes:
        id: `QuerySample.id`.
        sample: `QuerySample.index`, the index in the data set.
        tokens: number of prompt tokens.
        first: the first token, once it is reported to LoadGen.
        started: whether its replica has computed the prompt.
        failures: replicas that failed while the query was in flight on them.
        sent: time of assignment, in seconds of the caller's clock; Offline only.
    """

    id: int
    sample: int
    tokens: int
    first: int | None = None
    started: bool = False
    failures: int = 0
    sent: float = 0.0


Share = tuple[str, list[Query]]
"""A replica and the queries to send to it."""


class QueryTable:
    """All issued queries without an answer, by replica; the name of a failed replica is not used again.

    Attributes:
        loads: of each replica that has not failed.
        unanswered: queries issued and not answered, in flight or waiting.
    """

    def __init__(self, in_flight_limit: InFlightLimit | None) -> None:
        """Create an empty table. `in_flight_limit` is for Offline; without it, queries are assigned at once."""
        self.loads: dict[str, Load] = {}
        self.unanswered = 0
        self._in_flight_limit = in_flight_limit
        self._assigned: dict[str, dict[int, Query]] = {}
        self._waiting: deque[Query] = deque()
        self._unassigned: deque[_UnassignedBatch] = deque()
        self._prompt_tokens: list[int] = []

    def reset(self, prompt_tokens: npt.NDArray[np.int64]) -> None:
        """Discard all queries; `prompt_tokens` are the lengths of the prompts of the data set, by sample."""
        self._prompt_tokens = prompt_tokens.tolist()
        self.unanswered = 0
        self._waiting.clear()
        self._unassigned.clear()
        for replica in self.loads:
            self.add_replica(replica)

    def issue(self, queries: Sequence[int], samples: Sequence[int]) -> None:
        """Add queries that LoadGen has issued."""
        self.unanswered += len(queries)
        if self._in_flight_limit is None:
            tokens = self._prompt_tokens
            self._waiting.extend(Query(q, s, tokens[s]) for q, s in zip(queries, samples, strict=True))
        else:
            self._unassigned.append(_UnassignedBatch(queries, samples))

    @property
    def waiting(self) -> int:
        """Queries that are not assigned to a replica."""
        return len(self._waiting) + sum(len(batch) for batch in self._unassigned)

    def assign(self, now: float) -> list[Share]:
        """Assign waiting queries to replicas, as far as the in-flight limit allows; `now` in seconds."""
        if not self.loads or not (self._waiting or self._unassigned):
            return []
        return (
            self._assign_server() if self._in_flight_limit is None else self._assign_offline(self._in_flight_limit, now)
        )

    def _assign_server(self) -> list[Share]:
        loads = list(self.loads.values())
        shares: list[list[Query]] = [[] for _ in loads]
        while self._waiting:
            replica = least_loaded(loads)
            query = self._waiting.popleft()
            _add(loads[replica], query)
            shares[replica].append(query)
        return self._record(shares)

    def _assign_offline(self, in_flight_limit: InFlightLimit, now: float) -> list[Share]:
        loads, waiting = list(self.loads.values()), self.waiting
        limit = in_flight_limit.limit(len(loads), waiting)
        fed = replicas_to_feed([load.pace for load in loads], limit, waiting)
        counts = fill_to_limit(loads, [limit if gets else 0 for gets in fed], waiting)
        shares = round_robin(self._take(sum(counts)), counts)
        for load, share in zip(loads, shares, strict=True):
            for query in share:
                _add(load, query)
                query.sent = now
        return self._record(shares)

    def _take(self, count: int) -> list[Query]:
        """Remove the next `count` waiting queries, requeued ones first."""
        taken = [self._waiting.popleft() for _ in range(min(count, len(self._waiting)))]
        while len(taken) < count:
            taken += self._unassigned[0].take(count - len(taken), self._prompt_tokens)
            if not len(self._unassigned[0]):
                self._unassigned.popleft()
        return taken

    def _record(self, shares: list[list[Query]]) -> list[Share]:
        assigned = [(replica, share) for replica, share in zip(self.loads, shares, strict=True) if share]
        for replica, share in assigned:
            self._assigned[replica].update((query.id, query) for query in share)
        return assigned

    def prompt_tokens(self, replica: str) -> int:
        """Return the prompt tokens of all queries in flight on `replica`."""
        return sum(query.tokens for query in self._assigned[replica].values())

    def first_token(self, replica: str, query: int, token: int) -> None:
        """Record that the first token of `query` has arrived from `replica` and is reported.

        Prompts are computed in order of assignment, so requeued queries that were assigned before are started too:
        replicas do not send their first token again.
        """
        load, assigned = self.loads[replica], self._assigned[replica]
        reported = assigned[query]
        if load.unstarted_requeued:
            for earlier in takewhile(lambda other: other is not reported, assigned.values()):
                if earlier.first is not None:
                    _start(load, earlier)
        _start(load, reported)
        reported.first = token

    def finish(self, replica: str, query: int, tokens: int, now: float) -> Query:
        """Remove `query`, which `replica` has answered with `tokens` output tokens."""
        answered, load = self._assigned[replica].pop(query), self.loads[replica]
        _remove(load, answered)
        if self._in_flight_limit:
            load.record_answer(now - answered.sent, tokens, _PACE_BATCHES * self._in_flight_limit.batch)
        self.unanswered -= 1
        return answered

    def add_replica(self, replica: str) -> None:
        """Allow queries to be assigned to `replica`."""
        self.loads[replica] = Load()
        self._assigned[replica] = {}

    def fail_replica(self, replica: str) -> int:
        """Remove a failed replica and requeue its queries, before all waiting ones; return their number.

        Raises:
            RunFailed: some of them were in flight on MAX_FAILURES failed replicas.
        """
        del self.loads[replica]
        requeued = self._assigned.pop(replica)
        for query in requeued.values():
            query.failures += 1
        if suspects := [query for query in requeued.values() if query.failures == MAX_FAILURES]:
            raise _repeated_failure(suspects)
        self._waiting.extendleft(reversed(requeued.values()))
        return len(requeued)


class _UnassignedBatch:
    """The unassigned samples of one call of `issue`, as arrays because there may be millions.

    Sorting by prompt length was tried: the pace of the last answers then predicts the end less well
    (docs/benchmarks.md), and a KV cache that fits prompts of mixed lengths does not fit the longest prompts alone.
    """

    def __init__(self, queries: Sequence[int], samples: Sequence[int]) -> None:
        self._queries = np.asarray(queries, dtype=np.uint64)
        self._samples = np.asarray(samples, dtype=np.int64)
        self._next = 0

    def __len__(self) -> int:
        return len(self._queries) - self._next

    def take(self, count: int, tokens: list[int]) -> Iterable[Query]:
        part = slice(self._next, self._next + count)
        self._next = min(part.stop, len(self._queries))
        pairs = zip(self._queries[part].tolist(), self._samples[part].tolist(), strict=True)
        return [Query(query, sample, tokens[sample]) for query, sample in pairs]


def _repeated_failure(suspects: Sequence[Query]) -> RunFailed:
    named = [f"sample {query.sample}, of {query.tokens} prompt tokens" for query in suspects[:_NAMED]]
    more = [f"{len(suspects) - _NAMED} more"] if len(suspects) > _NAMED else []
    return RunFailed(
        "replicas fail while the same queries are in flight",
        where="; ".join(named + more),
        expected="an answer",
        found=f"{MAX_FAILURES} failed replicas",
    )


def _add(load: Load, query: Query) -> None:
    load.running += 1
    load.unstarted_tokens += query.tokens
    load.unstarted_requeued += query.first is not None
    query.started = False


def _start(load: Load, query: Query) -> None:
    if not query.started:
        load.unstarted_tokens -= query.tokens
        load.unstarted_requeued -= query.first is not None
        query.started = True


def _remove(load: Load, query: Query) -> None:
    load.running -= 1
    _start(load, query)
