"""The replicas of a node in simulated time, and the lengths of prompts and answers. For drain.py and server_node.py."""

import heapq
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from harness_llm.replicas.engines.replay import Lengths
from harness_llm.replicas.engines.replay_timing import Batch, Pace

Integers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Tokens:
    """Lengths of a benchmark in tokens: means, maxima, and standard deviations of the logarithm.

    Means and maxima are published, the deviations are assumed.
    """

    prompt: float
    longest_prompt: int
    prompt_spread: float
    answer: float
    longest_answer: int
    answer_spread: float

    def draw(self, samples: int, rng: np.random.Generator) -> tuple[Integers, Integers]:
        """Draw prompt and answer lengths of a data set."""
        prompts = Lengths(self.prompt, self.prompt_spread, self.longest_prompt)
        answers = Lengths(self.answer, self.answer_spread, self.longest_answer)
        drawn = [np.array([one.at(quantile) for quantile in rng.random(samples)]) for one in (prompts, answers)]
        return drawn[0], drawn[1]


@dataclass(frozen=True)
class Step:
    """A finished step of a replica.

    Attributes:
        now: its end, in seconds.
        seated: queries in the batch.
        started, finished: queries with a first token, and with a whole answer.
    """

    now: float
    replica: int
    seconds: float
    seated: int
    started: list[int]
    finished: list[int]


class Replicas:
    """Replicas with the pace of the replay engine, whose steps take 1 / speed of the usual time."""

    def __init__(self, pace: Pace, speeds: Sequence[float]) -> None:
        """Create a replica for each speed."""
        self._batches = [
            Batch(Pace(pace.prefill_s / v, pace.step_s / v, pace.sequence_s / v, pace.seats, pace.budget))
            for v in speeds
        ]
        self._steps: list[tuple[float, int]] = []  # ends of the current steps
        self._begun = [(0.0, 0)] * len(speeds)  # seconds and seated queries of the latest step
        self._idle = [True] * len(speeds)

    @property
    def next_end(self) -> float:
        """End of the next step; infinite if no replica works."""
        return self._steps[0][0] if self._steps else np.inf

    def add(self, replica: int, query: int, prompt: int, answer: int) -> None:
        """Add a query, with lengths in tokens."""
        self._batches[replica].add(query, prompt, answer)

    def begin(self, now: float) -> None:
        """Begin a step of every idle replica that has queries."""
        for replica, batch in enumerate(self._batches):
            if self._idle[replica] and batch.unfinished:
                seconds = batch.begin()
                self._idle[replica], self._begun[replica] = False, (seconds, batch.seated)
                heapq.heappush(self._steps, (now + seconds, replica))

    def end(self) -> Step:
        """End the next step; its replica is idle until `begin`."""
        now, replica = heapq.heappop(self._steps)
        self._idle[replica] = True
        return Step(now, replica, *self._begun[replica], *self._batches[replica].end())
