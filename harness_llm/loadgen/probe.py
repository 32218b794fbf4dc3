"""Probe: seconds of load before LoadGen's clock starts, which measure prefill and decode separately.

1. Fill: send calibration prompts, extended to the contexts of steady state, until the batch is full or a share of the
   time has passed. The duration gives the time per prompt token.
2. Hold: send no prompts; every sequence gets one token per step, which gives the decode step with these contexts.
3. Abort, send short prompts, and hold at half of that batch, at that batch and at the full batch.

Answers have no stop tokens, so that the batch is constant during a hold; the next attachment aborts them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import msgspec
import numpy as np
import numpy.typing as npt

from harness_llm.loadgen.prediction import MEAN_AGE, Measured, OutputTokens, Prediction, Work, predict

# Shares of the time limit: prompts are sent for FILL, and a hold lasts at most HOLD.
FILL = 0.25
HOLD = 0.08
# Decode steps of a hold, if they take less time than HOLD.
STEPS = 32
# Prompt tokens sent ahead, in engine steps: the prompts of the next step must have arrived when a step ends.
AHEAD = 2
SHORT_PROMPT = 8
# Most tokens that a sequence of the probe generates; holds need some 150.
MOST_TOKENS = 1024

Prompts = Sequence[npt.NDArray[np.int32]]


class ProbeSpec(msgspec.Struct, frozen=True, kw_only=True):
    """Parameters of the probe.

    Attributes:
        store: calibration prompts.
        limit_s: time limit of load and drain.
        batch: sequences that a replica runs at once (max_num_seqs; 1 in SingleStream).
        step_tokens: token budget of an engine step, 0 if unknown (max_num_batched_tokens).
        max_model_len: longest prompt and answer.
        longest: most tokens of an answer in the run.
    """

    store: str
    limit_s: float
    batch: int
    step_tokens: int
    max_model_len: int
    output: OutputTokens
    longest: int

    @property
    def tokens(self) -> int:
        """Tokens that each sequence of the probe may generate."""
        return min(MOST_TOKENS, self.max_model_len // 2)

    def work(self, prompt_tokens: float) -> Work:
        """Return the work of a replica; prompts share the token budget of a step with running sequences."""
        batch = self.batch
        if self.step_tokens:
            batch = min(batch, int(self.step_tokens / (1 + prompt_tokens / self.output.mean)))
        return Work(prompt_tokens, self.output, max(batch, 1))


@dataclass(frozen=True)
class Replica:
    """State of a replica in the probe.

    Attributes:
        running: sequences sent and not finished.
        unstarted_tokens: prompt tokens of those without a first token.
        prompt_tokens: of all running sequences.
    """

    running: int
    unstarted_tokens: int
    prompt_tokens: int


@dataclass(frozen=True)
class Count:
    """Tokens that a replica has generated since the last attachment, and the time of the last, on its clock."""

    generated: int
    at: float


class Pool(Protocol):
    """Interface of the probe to the replicas; lists are by replica, in the same order."""

    def now(self) -> float:
        """Return seconds of this pool's clock."""

    def begin(self, prompts: Prompts) -> None:
        """Abort all sequences and serve `prompts`; return once all replicas are idle."""

    def issue(self, prompts: range) -> None:
        """Issue prompts, by number modulo the number of prompts; the next poll sends them in equal shares."""

    def poll(self) -> None:
        """Send what is issued and wait for messages."""

    def replicas(self) -> list[Replica]:
        """Return the load of each replica."""

    def counts(self) -> list[Count]:
        """Request the counts of every replica."""


class Unmeasured(Exception):
    """No result: the time limit was too short, or a replica failed or was added meanwhile."""


def contexts(prompts: Prompts, spec: ProbeSpec) -> Prompts:
    """Extend each calibration prompt by a part of itself to a context of steady state."""
    longest = spec.max_model_len - spec.tokens
    golden = (5**0.5 - 1) / 2  # distributes the ages evenly over any number of prompts
    ages = (np.arange(len(prompts)) * golden) % 1 * (2 * MEAN_AGE * spec.output.mean)
    return [np.resize(p, min(len(p) + int(age), longest)) for p, age in zip(prompts, ages, strict=True)]


def run_probe(pool: Pool, prompts: Prompts, work: Work, spec: ProbeSpec) -> Prediction:
    """Load the replicas, measure, and predict the throughput.

    Raises:
        Unmeasured: no prediction; the message contains the cause.
    """
    probe = _Probe(pool, work.batch, spec)
    return predict(probe.measure(prompts), work, spec.longest)


class _Probe:
    def __init__(self, pool: Pool, batch: int, spec: ProbeSpec) -> None:
        self._pool = pool
        self._batch = batch
        self._spec = spec
        self._began = pool.now()

    @property
    def _elapsed(self) -> float:
        return self._pool.now() - self._began

    def measure(self, prompts: Prompts) -> list[Measured]:
        pool = self._pool
        pool.begin(prompts)
        durations = self._fill(prompts)
        self._running()
        filled, counts = pool.replicas(), pool.counts()
        steps = self._hold()
        short = self._short(prompts, min(replica.running for replica in filled))
        return [
            Measured(
                fill_s=durations[i],
                fill_tokens=replica.prompt_tokens,
                # The batch grows evenly, so it is half full on average.
                fill_steps=2 * (counts[i].generated - replica.running) / replica.running,
                batch=replica.running,
                context=replica.prompt_tokens / replica.running,
                step_s=steps[i],
                short_steps_s={size: found[i] for size, found in short.items()},
            )
            for i, replica in enumerate(filled)
        ]

    def _fill(self, prompts: Prompts) -> list[float]:
        """Send real contexts; return the seconds until each replica had the first tokens of all its prompts."""
        pool, began, sent = self._pool, self._pool.now(), 0
        replicas = len(pool.replicas())
        total = self._batch * replicas
        ahead = AHEAD * self._spec.step_tokens * replicas
        while sent < total and (sent == 0 or self._elapsed < FILL * self._spec.limit_s):
            room = ahead - sum(replica.unstarted_tokens for replica in pool.replicas())
            more = sent
            while more < total and (room > 0 or more < replicas):
                room -= len(prompts[more % len(prompts)])
                more += 1
            pool.issue(range(sent, more))
            sent = more
            if sent < total:
                self._poll()
        return self._started(began)

    def _started(self, began: float) -> list[float]:
        durations = [0.0] * len(self._pool.replicas())
        while not all(durations):
            self._poll()
            for i, replica in enumerate(self._pool.replicas()):
                if not replica.unstarted_tokens and not durations[i]:
                    durations[i] = self._pool.now() - began
        return durations

    def _short(self, prompts: Prompts, batch: int) -> dict[int, list[float]]:
        """Measure the decode step with short contexts; return it by batch."""
        pool = self._pool
        pool.begin([prompt[:SHORT_PROMPT] for prompt in prompts])
        replicas = len(pool.replicas())
        found, sent = {}, 0
        for size in sorted({max(batch // 2, 1), batch, self._batch}):
            pool.issue(range(sent, size * replicas))
            sent = size * replicas
            self._started(pool.now())
            found[size] = self._hold()
        return found

    def _hold(self) -> list[float]:
        """Measure the seconds of a decode step of each replica, while no prompt is computed."""
        pool = self._pool
        began, first = pool.now(), pool.counts()
        running = self._running()
        while True:
            self._poll()
            last = pool.counts()
            steps = [(b.generated - a.generated) / n for a, b, n in zip(first, last, running, strict=True)]
            enough = pool.now() - began > HOLD * self._spec.limit_s
            if all(steps) and (enough or min(steps) >= STEPS):
                return [(b.at - a.at) / step for a, b, step in zip(first, last, steps, strict=True)]
            self._running()

    def _running(self) -> list[int]:
        running = [replica.running for replica in self._pool.replicas()]
        if not all(running):
            raise Unmeasured("all sequences ended before their steps were measured")
        return running

    def _poll(self) -> None:
        if self._elapsed > self._spec.limit_s:
            raise Unmeasured(f"prompts and answers take longer than {self._spec.limit_s:g} s")
        self._pool.poll()
