"""The timing model of the replay engine: continuous batching with chunked prefill, in model time. Pure.

A step serves every sequence that has its first token with one more, and fills what is left of its token budget with
prompts, in the order in which they came. It lasts as long as reading the weights takes, and a little longer for each of
the sequences and prompt tokens in it. Sequences are never preempted: the memory is held to be large enough.
"""

from collections import deque
from dataclasses import dataclass


@dataclass(frozen=True)
class Pace:
    """How fast a replica is.

    Attributes:
        prefill_s: seconds that a prompt token adds to a step.
        step_s: seconds of a step whatever is in it.
        sequence_s: seconds that a sequence adds to a step.
        seats: sequences that run at once (max_num_seqs).
        budget: tokens of a step, prompts and answers together (max_num_batched_tokens).
    """

    prefill_s: float
    step_s: float
    sequence_s: float
    seats: int
    budget: int


@dataclass(slots=True)
class _Sequence:
    query: int
    prompt: int
    answer: int


class Batch:
    """The sequences of one replica.

    Attributes:
        running: those that have their first token.
        seated: those, and the prompts that are being read.
        held: all.
        generated: tokens of all steps so far.
    """

    def __init__(self, pace: Pace) -> None:
        """Hold nothing."""
        self.running = 0
        self.held = 0
        self.generated = 0
        self._pace = pace
        self._waiting: deque[_Sequence] = deque()
        self._prefilled = 0  # tokens of the first that waits
        self._starting: list[_Sequence] = []
        self.seated = 0
        self._step = 0
        self._steps = 1  # in the stretch under way
        self._ends: dict[int, list[int]] = {}

    def add(self, query: int, prompt: int, answer: int) -> None:
        """Take in a query; lengths in tokens, `answer` at least one."""
        self._waiting.append(_Sequence(query, prompt, answer))
        self.held += 1

    def begin(self) -> float:
        """Begin a step, while anything is held; the seconds that it lasts."""
        pace = self._pace
        seconds = pace.step_s + pace.sequence_s * self.running + pace.prefill_s * self._prefill()
        # Steps that take no time and bring nothing are made at once.
        self._steps = min(self._ends) - self._step if not (seconds or self._starting or self._waiting) else 1
        return seconds

    def _prefill(self) -> int:
        """Put prompts into the step; returns how many tokens."""
        room = budget = max(self._pace.budget - self.running, 0)
        waiting = self._waiting
        while waiting and room:
            first = waiting[0]
            if not self._prefilled:
                if self.seated == self._pace.seats:
                    break
                self.seated += 1
            part = min(first.prompt - self._prefilled, room)
            room -= part
            self._prefilled += part
            if self._prefilled == first.prompt:
                self._starting.append(waiting.popleft())
                self._prefilled = 0
        return budget - room

    def end(self) -> tuple[list[int], list[int]]:
        """End the step: the queries that have their first token now, and those that have their whole answer."""
        self._step += self._steps
        self.generated += self.running * self._steps + len(self._starting)
        finished = self._ends.pop(self._step, [])
        self.running -= len(finished)
        for sequence in self._starting:
            if sequence.answer == 1:
                finished.append(sequence.query)
            else:
                self._ends.setdefault(self._step + sequence.answer - 1, []).append(sequence.query)
                self.running += 1
        started = [sequence.query for sequence in self._starting]
        self._starting.clear()
        self.seated -= len(finished)
        self.held -= len(finished)
        return started, finished
