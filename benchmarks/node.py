"""A node in Server in simulated time: the query table and scheduler of LoadGen's process, and replicas with a pace."""

import heapq
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from harness_llm.loadgen.query_table import QueryTable
from harness_llm.pipeline.tuning.finished_run import Queries
from harness_llm.replicas.engines.replay import MIN_TOKENS, Lengths
from harness_llm.replicas.engines.replay_timing import Batch, Pace


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

    def draw(self, samples: int, seed: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Draw prompt and answer lengths of a data set."""
        rng = np.random.default_rng(seed)
        means = (
            Lengths(self.prompt, self.prompt_spread, self.longest_prompt),
            Lengths(self.answer, self.answer_spread, self.longest_answer),
        )
        prompts, answers = (np.array([one.at(q) for q in rng.random(samples)], dtype=np.int64) for one in means)
        return prompts, answers


class ServerNode:
    """The replicas of a node; each run starts with idle ones."""

    def __init__(self, pace: Pace, prompts: npt.NDArray[np.int64], answers: npt.NDArray[np.int64]) -> None:
        """Create a node whose data set has these lengths in tokens."""
        self._pace = pace
        self._prompts = prompts
        self._answers = answers

    def run(self, speeds: npt.NDArray[np.float64], arrivals: npt.NDArray[np.float64], seed: int) -> Queries:
        """Serve queries that arrive at these seconds, in whole passes over the data set, with a replica per speed."""
        count = len(self._prompts)
        rng = np.random.default_rng(seed)
        order = np.concatenate([rng.permutation(count) for _ in range(-(-len(arrivals) // count))])
        return _Run(self, speeds, arrivals, order[: len(arrivals)]).finish()

    def batch(self, speed: float) -> Batch:
        """A replica whose steps take 1 / `speed` of the usual time."""
        pace = self._pace
        faster = {name: getattr(pace, name) / speed for name in ("prefill_s", "step_s", "sequence_s")}
        return Batch(replace(pace, **faster))

    def lengths(self, sample: int) -> tuple[int, int]:
        """Tokens of a sample's prompt and answer."""
        return int(self._prompts[sample]), int(self._answers[sample])

    def table(self, replicas: int) -> QueryTable:
        """A query table for Server."""
        table = QueryTable(None)
        table.reset(self._prompts)
        for replica in range(replicas):
            table.add_replica(str(replica))
        return table


class _Run:
    def __init__(
        self,
        node: ServerNode,
        speeds: npt.NDArray[np.float64],
        arrivals: npt.NDArray[np.float64],
        samples: npt.NDArray[np.int64],
    ) -> None:
        self._node = node
        self._arrivals = arrivals
        self._samples = samples.tolist()
        self._table = node.table(len(speeds))
        self._batches = [node.batch(speed) for speed in speeds.tolist()]
        self._working = [False] * len(speeds)
        self._steps: list[tuple[float, int]] = []  # end of the current step of each replica
        self._first = np.full(len(arrivals), np.nan)
        self._completed = np.full(len(arrivals), np.nan)

    def finish(self) -> Queries:
        for query, due in enumerate(self._arrivals.tolist()):
            while self._steps and self._steps[0][0] <= due:
                self._end_step()
            self._issue(query, due)
        while self._steps:
            self._end_step()
        tokens = np.array([self._node.lengths(sample)[1] for sample in self._samples], dtype=np.float64)
        return Queries(self._arrivals, self._first, self._completed, tokens)

    def _issue(self, query: int, now: float) -> None:
        self._table.issue([query], [self._samples[query]])
        for name, share in self._table.assign(now):
            replica = int(name)
            for one in share:
                self._batches[replica].add(one.id, *self._node.lengths(one.sample))
            if not self._working[replica]:
                self._begin_step(replica, now)

    def _begin_step(self, replica: int, now: float) -> None:
        self._working[replica] = True
        heapq.heappush(self._steps, (now + self._batches[replica].begin(), replica))

    def _end_step(self) -> None:
        now, replica = heapq.heappop(self._steps)
        batch = self._batches[replica]
        started, finished = batch.end()
        self._first[started] = now
        self._completed[finished] = now
        for query in started:
            self._table.first_token(str(replica), query, MIN_TOKENS)
        for query in finished:
            self._table.finish(str(replica), query, self._node.lengths(self._samples[query])[1], now)
        self._working[replica] = False
        if batch.unfinished:
            self._begin_step(replica, now)
