"""A node in Server in simulated time, with the query table and scheduler of LoadGen's process. For search.py."""

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from benchmarks.node import Integers, Replicas, Tokens
from harness_llm.loadgen.query_table import QueryTable
from harness_llm.pipeline.tuning.finished_run import Queries
from harness_llm.replicas.engines.replay import MIN_TOKENS
from harness_llm.replicas.engines.replay_timing import Pace

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class ServerNode:
    """A node whose data set has `samples` of these lengths."""

    pace: Pace
    tokens: Tokens
    samples: int

    @cached_property
    def lengths(self) -> tuple[Integers, Integers]:
        """Tokens of the prompts and of the answers."""
        return self.tokens.draw(self.samples, np.random.default_rng(1))

    def run(self, speeds: list[float], arrivals: Floats, rng: np.random.Generator) -> Queries:
        """Serve queries that arrive at these seconds, in passes over the data set, with an idle replica per speed."""
        passes = math.ceil(len(arrivals) / self.samples)
        order = np.concatenate([rng.permutation(self.samples) for _ in range(passes)])
        return _Run(self, speeds, arrivals, order[: len(arrivals)]).finish()


class _Run:
    def __init__(self, node: ServerNode, speeds: list[float], arrivals: Floats, samples: Integers) -> None:
        prompts, answers = node.lengths
        self._arrivals, self._samples = arrivals, samples.tolist()
        self._prompts, self._answers = prompts[samples].tolist(), answers[samples].tolist()
        self._table = QueryTable(None)
        self._table.reset(prompts)
        for replica in range(len(speeds)):
            self._table.add_replica(str(replica))
        self._replicas = Replicas(node.pace, speeds)
        self._first = np.full(len(arrivals), np.nan)
        self._completed = np.full(len(arrivals), np.nan)

    def finish(self) -> Queries:
        for query, due in enumerate(self._arrivals.tolist()):
            self._advance(due)
            self._issue(query, due)
        self._advance(math.inf)
        return Queries(self._arrivals, self._first, self._completed, np.array(self._answers, dtype=np.float64))

    def _issue(self, query: int, now: float) -> None:
        self._table.issue([query], [self._samples[query]])
        for replica, share in self._table.assign(now):
            for one in share:
                self._replicas.add(int(replica), one.id, self._prompts[one.id], self._answers[one.id])
        self._replicas.begin(now)

    def _advance(self, until: float) -> None:
        """End all steps before `until`."""
        while self._replicas.next_end < until:
            step = self._replicas.end()
            self._first[step.started] = step.now
            self._completed[step.finished] = step.now
            for query in step.started:
                self._table.first_token(str(step.replica), query, MIN_TOKENS)
            for query in step.finished:
                self._table.finish(str(step.replica), query, self._answers[query], step.now)
            self._replicas.begin(step.now)
