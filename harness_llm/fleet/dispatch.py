"""Who gets the next query, and in which order: pure decisions over what each replica holds."""

import heapq
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import numpy.typing as npt

Item = TypeVar("Item")


@dataclass(slots=True)
class Load:
    """What one replica holds.

    Attributes:
        running: queries sent and not answered.
        unstarted_tokens: prompt tokens of queries without a first token.
    """

    running: int = 0
    unstarted_tokens: int = 0


@dataclass(frozen=True)
class Credit:
    """How many queries a replica may hold in Offline.

    Attributes:
        batch: sequences that its engine runs at once.
        backlog: more of them, so that the engine never waits for us.
    """

    batch: int
    backlog: int

    def limit(self, replicas: int, waiting: int) -> int:
        """What each of `replicas` may hold while `waiting` queries are with none.

        The backlog goes as the load ends: what a slow replica has taken early, another could have begun by now.
        """
        return self.batch + min(self.backlog, waiting // replicas)


def top_up(loads: Sequence[Load], limit: int, waiting: int) -> list[int]:
    """Offline: how many of the `waiting` queries each replica gets now.

    Nobody has a fixed share: each replica is filled to `limit` again as it finishes, so that unequal accelerators
    finish together. Where there is not enough for all, the emptiest gets the next one.
    """
    room = [max(limit - load.running, 0) for load in loads]
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


def longest_first(samples: npt.NDArray[np.int64], lengths: npt.NDArray[np.int64]) -> npt.NDArray[np.intp]:
    """Offline: the order in which `samples`, as LoadGen issued them, are sent; `lengths` is by sample.

    Longest prompts first, so that what begins last ends soon; but never beyond one pass over the data set
    (inference_rules.adoc, LLM rules). Under equal issue a pass is as many samples as there are different ones.
    """
    one_pass = len(np.unique(samples))
    passes = np.arange(len(samples)) // max(one_pass, 1)
    order: npt.NDArray[np.intp] = np.lexsort((-lengths[samples], passes))
    return order
