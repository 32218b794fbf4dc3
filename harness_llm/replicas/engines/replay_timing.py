"""Timing model of the replay engine: continuous batching with chunked prefill, in model time. Pure.

It is part of the package because PROFILE=rehearsal uses it. A step adds one token to every sequence that has its first
token, and fills the rest of its token budget with prompts in order of arrival. Its duration is a constant (reading the
weights) plus a term for each sequence and each prompt token. Sequences are never preempted: memory is unlimited.
"""

from collections import deque
from dataclasses import dataclass


@dataclass(frozen=True)
class Pace:
    """Speed of a replica.

    Attributes:
        prefill_s: seconds of a step per prompt token.
        step_s: constant seconds of a step.
        sequence_s: seconds of a step per running sequence.
        seats: maximum number of running sequences (max_num_seqs).
        budget: tokens per step, of prompts and answers (max_num_batched_tokens).
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
        running: sequences with a first token.
        seated: running sequences, and prompts being computed.
        unfinished: all sequences.
        generated: tokens of all steps so far.
    """

    def __init__(self, pace: Pace) -> None:
        self.running = 0
        self.unfinished = 0
        self.generated = 0
        self._pace = pace
        self._waiting: deque[_Sequence] = deque()
        self._prefilled = 0  # tokens of the first waiting prompt
        self._starting: list[_Sequence] = []
        self.seated = 0
        self._step = 0
        self._steps = 1  # combined in the current one
        self._ends: dict[int, list[int]] = {}

    def add(self, query: int, prompt: int, answer: int) -> None:
        """Add a query; lengths in tokens, `answer` at least one."""
        self._waiting.append(_Sequence(query, prompt, answer))
        self.unfinished += 1

    def begin(self) -> float:
        """Begin a step, which needs an unfinished sequence; return its duration in seconds."""
        pace = self._pace
        seconds = pace.step_s + pace.sequence_s * self.running + pace.prefill_s * self._prefill()
        # Steps without duration and without output are combined.
        self._steps = min(self._ends) - self._step if not (seconds or self._starting or self._waiting) else 1
        return seconds

    def _prefill(self) -> int:
        """Add prompts to the step; return the number of tokens."""
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
        """End the step; return the queries with a first token, and those with a whole answer."""
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
        self.unfinished -= len(finished)
        return started, finished
