"""Scheduler: which replica gets which query, by the load of each replica. Pure."""

import heapq
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

Item = TypeVar("Item")

# Time in which a replica without new queries finishes those in flight, as a share of the usual time of a query: they
# are partly done, and no prompts are computed in between. Measured: the smallest idle share in benchmarks/drain.py.
DRAIN = 0.62


@dataclass(slots=True)
class Load:
    """Load of one replica.

    Attributes:
        running: queries in flight.
        unstarted_tokens: prompt tokens of queries whose prompt is not computed yet.
        unstarted_requeued: number of those queries whose first token a failed replica sent.
        seconds: from sending to answer, exponentially weighted sum over the latest answers; `tokens` likewise.
    """

    running: int = 0
    unstarted_tokens: int = 0
    unstarted_requeued: int = 0
    seconds: float = 0.0
    tokens: float = 0.0

    def record_answer(self, seconds: float, tokens: int, answers: int) -> None:
        """Add an answer to the pace, which covers about the last `answers`."""
        keep = 1 - 1 / answers
        self.seconds = self.seconds * keep + seconds
        self.tokens = self.tokens * keep + tokens

    @property
    def pace(self) -> float:
        """Seconds per output token; 0 before the first answer."""
        return self.seconds / self.tokens if self.tokens else 0.0


def replicas_to_feed(paces: Sequence[float], limit: int, waiting: int) -> list[bool]:
    """Offline: whether each replica gets more of the `waiting` queries, so that all replicas finish together.

    Without new queries, a replica finishes in the DRAIN part of the time of a query. That time is longer for a slow
    replica, so its last query must be sent earlier. While fed, a replica answers `limit` queries in the time of one
    query, from which the time until the end, `horizon`, follows.

    Args:
        paces: time per query, in any unit; 0 where unknown.
        limit: queries in flight on each replica that is fed.
    """
    if not all(paces):
        return [True] * len(paces)
    for slowest in sorted(set(paces), reverse=True):
        fed = [pace for pace in paces if pace <= slowest]
        horizon = (waiting / limit + DRAIN * len(fed)) / sum(1 / pace for pace in fed)
        if horizon > DRAIN * slowest:
            break
    return [pace <= slowest for pace in paces]


def fill_to_limit(loads: Sequence[Load], limits: Sequence[int], waiting: int) -> list[int]:
    """Offline: number of the `waiting` queries that each replica gets now.

    Each replica is filled to its limit as it finishes queries, so that unequal accelerators finish together. If there
    are not enough queries for all, the replica with the fewest queries in flight gets the next one.
    """
    room = [max(limit - load.running, 0) for load, limit in zip(loads, limits, strict=True)]
    if sum(room) <= waiting:
        return room
    shares = [0] * len(loads)
    emptiest = [(load.running, replica) for replica, load in enumerate(loads) if room[replica]]
    heapq.heapify(emptiest)
    for _ in range(waiting):
        running, replica = emptiest[0]
        shares[replica] += 1
        if shares[replica] < room[replica]:
            heapq.heapreplace(emptiest, (running + 1, replica))
        else:
            heapq.heappop(emptiest)
    return shares


def round_robin(items: Iterable[Item], counts: Sequence[int]) -> list[list[Item]]:
    """Distribute `items` round-robin, `counts` to each replica, so that each gets long and short prompts alike."""
    shares: list[list[Item]] = [[] for _ in counts]
    rest, replicas = iter(items), list(range(len(counts)))
    while replicas := [replica for replica in replicas if len(shares[replica]) < counts[replica]]:
        for replica in replicas:
            shares[replica].append(next(rest))
    return shares


def least_loaded(loads: Sequence[Load]) -> int:
    """Server: the replica with the fewest prompt tokens without a first token, then the fewest queries in flight."""
    return min(range(len(loads)), key=lambda i: (loads[i].unstarted_tokens, loads[i].running))
