"""Who gets the next query: pure decisions over what each replica holds."""

import heapq
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

Item = TypeVar("Item")

# Without new queries a replica ends what it holds in less time than a query takes otherwise: what it holds is partly
# done, and no more prompts come between. The part is that of the smallest idle share in benchmarks/drain.py.
DRAIN = 0.62


@dataclass(slots=True)
class Load:
    """What one replica holds.

    Attributes:
        running: queries sent and not answered.
        unstarted_tokens: prompt tokens of queries without a first token.
        seconds: from sending to answer, of its latest answers together, the older the less; `tokens` of the same.
    """

    running: int = 0
    unstarted_tokens: int = 0
    seconds: float = 0.0
    tokens: float = 0.0

    def remember(self, seconds: float, tokens: int, answers: int) -> None:
        """An answer has come; of about the last `answers` the pace is made."""
        keep = 1 - 1 / answers
        self.seconds = self.seconds * keep + seconds
        self.tokens = self.tokens * keep + tokens

    @property
    def pace(self) -> float:
        """Seconds that a token of its answers takes; 0 while nothing is known."""
        return self.seconds / self.tokens if self.tokens else 0.0


def still_fed(paces: Sequence[float], limit: int, waiting: int) -> list[bool]:
    """Offline: which replicas get any more of the `waiting` queries, so that all have their last answers together.

    Once it gets nothing more, a replica ends what it holds in the DRAIN part of the time that it takes for a query:
    longer if it is slow, so that it must be left alone earlier. It takes `limit` queries in the time of one, from
    which follows the time until the end, `horizon`.

    Args:
        paces: the time that a query takes, in any unit; 0 where it is not known yet.
        limit: queries that each holds while it is fed.
    """
    if not all(paces):
        return [True] * len(paces)
    for slowest in sorted(set(paces), reverse=True):
        fed = [pace for pace in paces if pace <= slowest]
        horizon = (waiting / limit + DRAIN * len(fed)) / sum(1 / pace for pace in fed)
        if horizon > DRAIN * slowest:
            break
    return [pace <= slowest for pace in paces]


def top_up(loads: Sequence[Load], limits: Sequence[int], waiting: int) -> list[int]:
    """Offline: how many of the `waiting` queries each replica gets now.

    Nobody has a fixed share: each replica is filled to its limit again as it finishes, so that unequal accelerators
    finish together. Where there is not enough for all, the emptiest gets the next one.
    """
    room = [max(limit - load.running, 0) for load, limit in zip(loads, limits, strict=True)]
    if sum(room) <= waiting:
        return room
    shares = [0] * len(loads)
    emptiest = [(load.running, place) for place, load in enumerate(loads) if room[place]]
    heapq.heapify(emptiest)
    for _ in range(waiting):
        running, place = emptiest[0]
        shares[place] += 1
        if shares[place] < room[place]:
            heapq.heapreplace(emptiest, (running + 1, place))
        else:
            heapq.heappop(emptiest)
    return shares


def deal(items: Iterable[Item], counts: Sequence[int]) -> list[list[Item]]:
    """`items` in turn, as cards are dealt, so that each replica gets long and short ones alike; `counts` is of each."""
    hands: list[list[Item]] = [[] for _ in counts]
    cards, places = iter(items), list(range(len(counts)))
    while places := [place for place in places if len(hands[place]) < counts[place]]:
        for place in places:
            hands[place].append(next(cards))
    return hands


def least_loaded(loads: Sequence[Load]) -> int:
    """Server: the replica with the fewest prompt tokens without a first token, then the fewest running queries."""
    return min(range(len(loads)), key=lambda i: (loads[i].unstarted_tokens, loads[i].running))
