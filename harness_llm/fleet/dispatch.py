"""Who gets the next query: pure decisions over what each replica holds."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass
class Load:
    """What one replica holds.

    Attributes:
        running: queries sent and not answered.
        unstarted_tokens: prompt tokens of queries without a first token.
    """

    running: int = 0
    unstarted_tokens: int = 0


def top_up(loads: Sequence[Load], credit: int, waiting: int) -> list[int]:
    """Offline: how many of the `waiting` queries each replica gets now.

    Each replica holds at most `credit` queries, what its batch needs plus a small backlog, so that unequal
    accelerators finish together.
    """
    shares = [0] * len(loads)
    for index in sorted(range(len(loads)), key=lambda i: loads[i].running):
        shares[index] = min(max(credit - loads[index].running, 0), waiting)
        waiting -= shares[index]
    return shares


def least_loaded(loads: Sequence[Load]) -> int:
    """Server: the replica with the fewest prompt tokens without a first token, then the fewest running queries."""
    return min(range(len(loads)), key=lambda i: (loads[i].unstarted_tokens, loads[i].running))
