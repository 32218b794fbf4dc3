"""How much of a node is idle at the end of Offline: the replica client's own decisions in simulated time.

Eight replicas whose speeds differ by 10 % serve llama2-70b's shapes. They are driven once by the query table and the
dispatch functions that LoadGen's process uses, and once by equal shares given out at the start, as harnesses with fixed
shares do. The idle share is (max - mean) / max of the replicas' last completions.
"""

import heapq
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from rich.table import Table

from benchmarks.measurement import interval
from harness_llm.config.in_flight import InFlightLimit
from harness_llm.config.load import Load, issued
from harness_llm.loadgen.query_table import QueryTable
from harness_llm.replicas.engines.replay import Lengths
from harness_llm.replicas.engines.replay_timing import Batch, Pace

WANTED = 0.003
STATIC_LEAST = 0.04  # or the load asks too little
FRESH = 1000  # the first seed; dispatch.DRAIN was chosen on smaller ones
SAMPLES = 24_576  # of llama2-70b
LONGEST = 1024  # prompts and answers, tokens
MEAN_PROMPT = 294
MEAN_ANSWER = 294.45  # the reference's tokens per sample
# Not published; the mean and the cut are.
SPREAD = 0.9
SPEEDS = np.linspace(0.9, 1.1, 8)
LEAST_S = 600
BACKLOG = 64


@dataclass(frozen=True)
class Node:
    """A node of eight accelerators with one replica each.

    Attributes:
        samples_per_s: published Offline target_qps, which chooses how many samples LoadGen issues.
    """

    pace: Pace
    samples_per_s: float


# Batches and rates are published: AMD v5.1 for MI300X (decode batch 1536, 93 samples/s), NVIDIA v4.1 for H200 (batch
# 806, 104 samples/s). The step without load is the weights' 70 GB at about 3 TB/s on either; what a token adds, in a
# prompt or in an answer, is what is then left of the published rate.
NODES = {
    "MI300X": Node(Pace(0.000138, 0.025, 0.000138, 1536, 40_960), 93),
    "H200": Node(Pace(0.000118, 0.022, 0.000118, 806, 8192), 104),
}


@dataclass(frozen=True)
class Work:
    """What is asked: prompt and answer lengths in tokens by sample, and the samples in the order of issue."""

    prompts: npt.NDArray[np.int64]
    answers: npt.NDArray[np.int64]
    samples: npt.NDArray[np.int64]


def draw(node: Node, seed: int) -> Work:
    """Another data set of llama2-70b's shapes, and as many passes over it as make a run of 600 s."""
    rng = np.random.default_rng(seed)
    prompts, answers = (
        np.array([lengths.at(quantile) for quantile in rng.random(SAMPLES)])
        for lengths in (Lengths(MEAN_PROMPT, SPREAD, LONGEST), Lengths(MEAN_ANSWER, SPREAD, LONGEST))
    )
    count = issued(Load("Offline", SAMPLES, SAMPLES, LEAST_S, node.samples_per_s), "performance")
    return Work(prompts, answers, np.concatenate([rng.permutation(SAMPLES) for _ in range(count // SAMPLES)]))


@dataclass(frozen=True)
class Drain:
    """How a simulated run ended; times in seconds.

    Attributes:
        last: completion of each replica.
        idle_share: (max - mean) / max of those.
        idle_slots: share of the seats that no sequence had, over the whole run.
        tail_s: from the first time that a replica could not fill its seats any more.
        tail_slots: idle slots in that time.
    """

    last: list[float]
    idle_share: float
    idle_slots: float
    tail_s: float
    tail_slots: float

    @property
    def seconds(self) -> float:
        """The run."""
        return max(self.last)


Shares = list[tuple[int, list[tuple[int, int]]]]
"""A replica, and the queries it gets: id and sample."""


class Topped:
    """The query table, as LoadGen's process drives it."""

    def __init__(self, node: Node, work: Work) -> None:
        """Take in the whole load."""
        self._query_table = QueryTable(InFlightLimit(node.pace.seats, BACKLOG))
        self._query_table.reset(work.prompts)
        for replica in range(len(SPEEDS)):
            self._query_table.add_replica(str(replica))
        self._query_table.issue(range(len(work.samples)), work.samples.tolist())

    def assign(self, now: float) -> Shares:
        """What is to be sent now."""
        return [(int(replica), [(q.id, q.sample) for q in share]) for replica, share in self._query_table.assign(now)]

    def finish(self, replica: int, query: int, tokens: int, now: float) -> None:
        """`replica` has answered."""
        self._query_table.finish(str(replica), query, tokens, now)


class Static:
    """Equal shares at the start."""

    def __init__(self, _: Node, work: Work) -> None:
        """Deal the whole load."""
        queries = list(enumerate(work.samples.tolist()))
        self._shares: Shares = [(replica, queries[replica :: len(SPEEDS)]) for replica in range(len(SPEEDS))]

    def assign(self, _: float) -> Shares:
        """Everything, the first time."""
        shares, self._shares = self._shares, []
        return shares

    def finish(self, replica: int, query: int, tokens: int, now: float) -> None:
        """Nothing follows from it."""


Feeder = Callable[[Node, Work], Topped | Static]


class Simulation:
    """The replicas of a node in simulated time."""

    def __init__(self, node: Node, work: Work, feeder: Feeder, speeds: Sequence[float]) -> None:
        """Give each its speed."""
        pace = node.pace
        self._batches = [
            Batch(Pace(pace.prefill_s / v, pace.step_s / v, pace.sequence_s / v, pace.seats, pace.budget))
            for v in speeds
        ]
        self._seats = pace.seats
        self._work = work
        self._feeder = feeder(node, work)
        self._steps: list[tuple[float, int]] = []  # ends of those under way
        self._working = [False] * len(speeds)
        self._last = [0.0] * len(speeds)
        self._spans: list[tuple[int, float, float, int]] = []  # replica, end and length of a step, sequences in it

    def run(self) -> Drain:
        """To the last completion."""
        self._feed(0.0)
        while self._steps:
            now, replica = heapq.heappop(self._steps)
            batch = self._batches[replica]
            _, finished = batch.end()
            for query in finished:
                tokens = int(self._work.answers[self._work.samples[query]])
                self._feeder.finish(replica, query, tokens, now)
            if finished:
                self._last[replica] = now
                self._feed(now)
            if batch.unfinished:
                self._begin(replica, now)
            else:
                self._working[replica] = False
        return self._drain()

    def _feed(self, now: float) -> None:
        for replica, share in self._feeder.assign(now):
            for query, sample in share:
                self._batches[replica].add(query, int(self._work.prompts[sample]), int(self._work.answers[sample]))
            if share and not self._working[replica]:
                self._begin(replica, now)

    def _begin(self, replica: int, now: float) -> None:
        batch = self._batches[replica]
        self._working[replica] = True
        seconds = batch.begin()
        self._spans.append((replica, now + seconds, seconds, batch.seated))
        heapq.heappush(self._steps, (now + seconds, replica))

    def _drain(self) -> Drain:
        replicas, ends, lengths, seated = (np.array(column) for column in zip(*self._spans, strict=True))
        longest, mean, room = max(self._last), float(np.mean(self._last)), self._seats * len(self._last)
        full = seated == self._seats
        tail = min(ends[full & (replicas == replica)].max(initial=0.0) for replica in range(len(self._last)))
        late = ends > tail
        return Drain(
            last=self._last,
            idle_share=(longest - mean) / longest,
            idle_slots=1 - float(lengths @ seated) / (room * longest),
            tail_s=longest - tail,
            tail_slots=1 - float(lengths[late] @ seated[late]) / (room * (longest - tail)),
        )


ARMS: dict[str, Feeder] = {"harness": Topped, "static": Static}


def measure(repeats: int, say: Callable[[str], None]) -> dict[str, Any]:
    """Both arms on the same work, `repeats` times for each node, with other data and other places of the slow ones."""
    found: dict[str, Any] = {"wanted": WANTED, "static_at_least": STATIC_LEAST, "speeds": list(SPEEDS), "nodes": {}}
    for name, node in NODES.items():
        runs: dict[str, list[Drain]] = {arm: [] for arm in ARMS}
        for seed in range(FRESH, FRESH + repeats):
            work, speeds = draw(node, seed), np.random.default_rng(seed).permutation(SPEEDS)
            for arm, feeder in ARMS.items():
                runs[arm].append(Simulation(node, work, feeder, speeds.tolist()).run())
            shares = ", ".join(f"{arm} {drains[-1].idle_share:.2%}" for arm, drains in runs.items())
            say(f"drain, {name}, {seed - FRESH + 1} of {repeats}: idle at the end {shares}")
        found["nodes"][name] = {"pace": asdict(node.pace), **{arm: _summary(drains) for arm, drains in runs.items()}}
    return found


def _summary(drains: Sequence[Drain]) -> dict[str, Any]:
    figures = ("idle_share", "idle_slots", "tail_s", "tail_slots", "seconds")
    return {name: interval([getattr(drain, name) for drain in drains]) for name in figures} | {
        "runs": [asdict(drain) for drain in drains]
    }


def table(found: Mapping[str, Any]) -> Table:
    """Medians, with their intervals for the idle share."""
    shown = Table("node", "arm", "run, s", "idle share", "idle slots", "tail, s", "idle slots in it", box=None)
    for name, node in found["nodes"].items():
        for arm in ARMS:
            own = node[arm]
            share = own["idle_share"]
            shown.add_row(
                name,
                arm,
                f"{own['seconds']['median']:.0f}",
                f"{share['median']:.2%} ({share['low']:.2%} to {share['high']:.2%})",
                f"{own['idle_slots']['median']:.1%}",
                f"{own['tail_s']['median']:.0f}",
                f"{own['tail_slots']['median']:.0%}",
            )
    return shown


def misses(found: Mapping[str, Any]) -> list[str]:
    """What is not as wanted."""
    lines = []
    for name, node in found["nodes"].items():
        own, static = (node[arm]["idle_share"]["median"] for arm in ARMS)
        if own > WANTED:
            lines.append(f"{name}: idle share {own:.2%}, wanted at most {WANTED:.1%}")
        if static < STATIC_LEAST:
            lines.append(f"{name}: idle share of the static split {static:.2%}, wanted at least {STATIC_LEAST:.0%}")
    return lines
