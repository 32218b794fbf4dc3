"""Who holds which query: state without sockets, so that the same decisions can be driven in simulated time."""

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from harness_llm.config.in_flight import InFlightLimit
from harness_llm.errors import RunFailed
from harness_llm.loadgen.scheduler import Load, deal, least_loaded, still_fed, top_up

# A query that was with so many replicas when they were lost is held to be the cause.
MOST_LOSSES = 3
# Batches of answers by which the pace of a replica is told.
_MEMORY = 2


@dataclass(slots=True, eq=False)
class Query:
    """One query of LoadGen.

    Attributes:
        id: LoadGen's.
        sample: its place in the data set.
        tokens: of its prompt.
        first: the first token, once that is reported.
        losses: replicas that were lost while they held it.
        sent: when it was assigned, in seconds of the caller's clock.
    """

    id: int
    sample: int
    tokens: int
    first: int | None = None
    losses: int = 0
    sent: float = 0.0


Share = tuple[str, list[Query]]
"""A replica, and what it is sent."""


class QueryTable:
    """All queries that were issued and are not answered; no replica is called as one before it.

    Attributes:
        loads: what each replica holds; those that are lost are not in it.
        in_flight: queries issued and not answered.
    """

    def __init__(self, in_flight_limit: InFlightLimit | None) -> None:
        """Hold nothing yet; `credit` is for Offline: without one, every query is sent at once."""
        self.loads: dict[str, Load] = {}
        self.in_flight = 0
        self._in_flight_limit = in_flight_limit
        self._held: dict[str, dict[int, Query]] = {}
        self._waiting: deque[Query] = deque()
        self._stock: deque[_Stock] = deque()
        self._tokens: list[int] = []

    def load(self, lengths: npt.NDArray[np.int64]) -> None:
        """Take another data set, of prompts of these `lengths`; all queries of the one before are answered."""
        self._tokens = lengths.tolist()

    def offer(self, queries: Sequence[int], samples: Sequence[int]) -> None:
        """LoadGen has issued `queries`, for `samples`."""
        self.in_flight += len(queries)
        if self._in_flight_limit is None:
            tokens = self._tokens
            self._waiting.extend(Query(q, s, tokens[s]) for q, s in zip(queries, samples, strict=True))
        else:
            self._stock.append(_Stock(queries, samples))

    @property
    def waiting(self) -> int:
        """Queries that no replica holds."""
        return len(self._waiting) + sum(len(stock) for stock in self._stock)

    def assign(self, now: float) -> list[Share]:
        """Hand out what may be handed out at the time `now`, in seconds; it is held from here on."""
        if not self.loads or not (self._waiting or self._stock):
            return []
        return self._spread() if self._in_flight_limit is None else self._fill(self._in_flight_limit, now)

    def _spread(self) -> list[Share]:
        loads = list(self.loads.values())
        shares: list[list[Query]] = [[] for _ in loads]
        while self._waiting:
            place = least_loaded(loads)
            query = self._waiting.popleft()
            _add(loads[place], query)
            shares[place].append(query)
        return self._hold(shares)

    def _fill(self, in_flight_limit: InFlightLimit, now: float) -> list[Share]:
        loads, waiting = list(self.loads.values()), self.waiting
        limit = in_flight_limit.limit(len(loads), waiting)
        fed = still_fed([load.pace for load in loads], limit, waiting)
        counts = top_up(loads, [limit if gets else 0 for gets in fed], waiting)
        shares = deal(self._take(sum(counts)), counts)
        for load, share in zip(loads, shares, strict=True):
            for query in share:
                _add(load, query)
                query.sent = now
        return self._hold(shares)

    def _take(self, count: int) -> list[Query]:
        """The next `count` queries, those that are issued again first."""
        taken = [self._waiting.popleft() for _ in range(min(count, len(self._waiting)))]
        while len(taken) < count:
            taken += self._stock[0].take(count - len(taken), self._tokens)
            if not len(self._stock[0]):
                self._stock.popleft()
        return taken

    def _hold(self, shares: list[list[Query]]) -> list[Share]:
        assigned = [(replica, share) for replica, share in zip(self.loads, shares, strict=True) if share]
        for replica, share in assigned:
            self._held[replica].update((query.id, query) for query in share)
        return assigned

    def prompt_tokens(self, replica: str) -> int:
        """Prompt tokens of all queries that `replica` holds."""
        return sum(query.tokens for query in self._held[replica].values())

    def clear(self) -> None:
        """Forget all queries: the replicas have aborted them."""
        self.in_flight = 0
        self._waiting.clear()
        self._stock.clear()
        for replica in self.loads:
            self.join(replica)

    def first(self, replica: str, query: int, token: int) -> None:
        """`replica` has sent the first token of `query`, and it is reported."""
        held = self._held[replica][query]
        self.loads[replica].unstarted_tokens -= held.tokens
        held.first = token

    def finish(self, replica: str, query: int, tokens: int, now: float) -> Query:
        """`replica` has answered `query`, with so many tokens."""
        held, load = self._held[replica].pop(query), self.loads[replica]
        _remove(load, held)
        if self._in_flight_limit:
            load.remember(now - held.sent, tokens, _MEMORY * self._in_flight_limit.batch)
        self.in_flight -= 1
        return held

    def join(self, replica: str) -> None:
        """`replica` may be sent queries."""
        self.loads[replica] = Load()
        self._held[replica] = {}

    def lose(self, replica: str) -> int:
        """`replica` is gone; how many queries it held, which are the next to be assigned.

        Raises:
            RunFailed: it is not the first that one of them was with.
        """
        del self.loads[replica]
        held = self._held.pop(replica)
        for query in held.values():
            query.losses += 1
            if query.losses == MOST_LOSSES:
                raise RunFailed(
                    "replicas end while they hold a certain query",
                    where=f"sample {query.sample}, of {query.tokens} prompt tokens",
                    expected="an answer",
                    found=f"{MOST_LOSSES} replicas lost",
                )
        self._waiting.extendleft(reversed(held.values()))
        return len(held)


class _Stock:
    """What one Offline query brought, in LoadGen's order; in arrays, for it may be millions.

    Longest prompts first, pass by pass, was tried: the pace of the last answers then tells less of the end to come
    (docs/benchmarks.md), and a cache that fits prompts of all lengths does not fit the longest alone.
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


def _add(load: Load, query: Query) -> None:
    load.running += 1
    if query.first is None:
        load.unstarted_tokens += query.tokens


def _remove(load: Load, query: Query) -> None:
    load.running -= 1
    if query.first is None:
        load.unstarted_tokens -= query.tokens
