"""Idle share of a node at the end of Offline: the scheduler in simulated time.

Eight replicas whose speeds differ by 10 % serve llama2-70b's shapes: once with the query table and scheduler of
LoadGen's process, and once with equal shares assigned at the start (static split). The idle share is (max - mean) / max
of the replicas' last completions.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from rich.table import Table

from benchmarks.measurement import interval
from benchmarks.node import Replicas, Tokens
from harness_llm.config.in_flight import InFlightLimit
from harness_llm.config.load import Load, issued
from harness_llm.loadgen.query_table import QueryTable
from harness_llm.replicas.engines.replay_timing import Pace

TARGET = 0.003
STATIC_MINIMUM = 0.04  # a smaller share means that the load is too easy
FIRST_SEED = 1000  # scheduler.DRAIN was chosen with smaller seeds
SAMPLES = 24_576  # of llama2-70b
TOKENS = Tokens(294, 1024, 0.9, 294.45, 1024, 0.9)  # answers: the reference's tokens per sample
SPEEDS = np.linspace(0.9, 1.1, 8)
MIN_DURATION_S = 600
BACKLOG = 64


@dataclass(frozen=True)
class Node:
    """A node of eight accelerators with one replica each.

    Attributes:
        samples_per_s: published Offline target_qps, which determines the number of samples that LoadGen issues.
    """

    pace: Pace
    samples_per_s: float


# Batches and rates are published: AMD v5.1 for MI300X (decode batch 1536, 93 samples/s), NVIDIA v4.1 for H200 (batch
# 806, 104 samples/s). An empty step reads the weights' 70 GB at about 3 TB/s on both; the time per prompt or output
# token is the rest of the time that the published rate implies.
NODES = {
    "MI300X": Node(Pace(0.000138, 0.025, 0.000138, 1536, 40_960), 93),
    "H200": Node(Pace(0.000118, 0.022, 0.000118, 806, 8192), 104),
}


@dataclass(frozen=True)
class Work:
    """The load: prompt and answer lengths in tokens by sample, and the samples in order of issue."""

    prompts: npt.NDArray[np.int64]
    answers: npt.NDArray[np.int64]
    samples: npt.NDArray[np.int64]


def draw(node: Node, seed: int) -> Work:
    """Draw a data set of llama2-70b's shapes, with as many passes as a run of 600 s needs."""
    rng = np.random.default_rng(seed)
    prompts, answers = TOKENS.draw(SAMPLES, rng)
    count = issued(Load("Offline", SAMPLES, SAMPLES, MIN_DURATION_S, node.samples_per_s), "performance")
    return Work(prompts, answers, np.concatenate([rng.permutation(SAMPLES) for _ in range(count // SAMPLES)]))


@dataclass(frozen=True)
class Drain:
    """End of a simulated run; times in seconds.

    Attributes:
        last: completion of each replica.
        idle_share: (max - mean) / max of those.
        idle_slots: share of empty seats over the whole run.
        tail_s: from the time when the first replica could not fill its seats any more.
        tail_slots: idle slots in that time.
    """

    last: list[float]
    idle_share: float
    idle_slots: float
    tail_s: float
    tail_slots: float

    @property
    def seconds(self) -> float:
        """Duration of the run."""
        return max(self.last)


Shares = list[tuple[int, list[tuple[int, int]]]]
"""Replicas and the queries they get: id and sample."""


class Scheduled:
    """The query table, as used by LoadGen's process."""

    def __init__(self, node: Node, work: Work) -> None:
        """Issue the whole load."""
        self._query_table = QueryTable(InFlightLimit(node.pace.seats, BACKLOG))
        self._query_table.reset(work.prompts)
        for replica in range(len(SPEEDS)):
            self._query_table.add_replica(str(replica))
        self._query_table.issue(range(len(work.samples)), work.samples.tolist())

    def assign(self, now: float) -> Shares:
        """Return the queries to send now."""
        return [(int(replica), [(q.id, q.sample) for q in share]) for replica, share in self._query_table.assign(now)]

    def finish(self, replica: int, query: int, tokens: int, now: float) -> None:
        """Record an answer of `replica`."""
        self._query_table.finish(str(replica), query, tokens, now)


class Static:
    """Equal shares, assigned at the start."""

    def __init__(self, _: Node, work: Work) -> None:
        """Divide the whole load round-robin."""
        queries = list(enumerate(work.samples.tolist()))
        self._shares: Shares = [(replica, queries[replica :: len(SPEEDS)]) for replica in range(len(SPEEDS))]

    def assign(self, _: float) -> Shares:
        """Return all queries at the first call."""
        shares, self._shares = self._shares, []
        return shares

    def finish(self, replica: int, query: int, tokens: int, now: float) -> None:
        """Ignore the answer."""


Feeder = Callable[[Node, Work], Scheduled | Static]


class Simulation:
    """The replicas of a node in simulated time."""

    def __init__(self, node: Node, work: Work, feeder: Feeder, speeds: Sequence[float]) -> None:
        """Create a replica for each speed."""
        self._replicas = Replicas(node.pace, speeds)
        self._seats = node.pace.seats
        self._work = work
        self._feeder = feeder(node, work)
        self._last = [0.0] * len(speeds)
        self._spans: list[tuple[int, float, float, int]] = []  # replica, end and length of a step, sequences in it

    def run(self) -> Drain:
        """Run to the last completion."""
        self._feed(0.0)
        while self._replicas.next_end < math.inf:
            step = self._replicas.end()
            self._spans.append((step.replica, step.now, step.seconds, step.seated))
            for query in step.finished:
                tokens = int(self._work.answers[self._work.samples[query]])
                self._feeder.finish(step.replica, query, tokens, step.now)
            if step.finished:
                self._last[step.replica] = step.now
            self._feed(step.now)
        return self._drain()

    def _feed(self, now: float) -> None:
        for replica, share in self._feeder.assign(now):
            for query, sample in share:
                self._replicas.add(replica, query, int(self._work.prompts[sample]), int(self._work.answers[sample]))
        self._replicas.begin(now)

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


ARMS: dict[str, Feeder] = {"harness": Scheduled, "static": Static}


def measure(repeats: int, report: Callable[[str], None]) -> dict[str, Any]:
    """Run both arms on the same work, `repeats` times per node, with other data and another order of the speeds."""
    found: dict[str, Any] = {"target": TARGET, "static_at_least": STATIC_MINIMUM, "speeds": list(SPEEDS), "nodes": {}}
    for name, node in NODES.items():
        runs: dict[str, list[Drain]] = {arm: [] for arm in ARMS}
        for seed in range(FIRST_SEED, FIRST_SEED + repeats):
            work, speeds = draw(node, seed), np.random.default_rng(seed).permutation(SPEEDS)
            for arm, feeder in ARMS.items():
                runs[arm].append(Simulation(node, work, feeder, speeds.tolist()).run())
            shares = ", ".join(f"{arm} {drains[-1].idle_share:.2%}" for arm, drains in runs.items())
            report(f"drain, {name}, {seed - FIRST_SEED + 1} of {repeats}: idle at the end {shares}")
        found["nodes"][name] = {"pace": asdict(node.pace), **{arm: _summary(drains) for arm, drains in runs.items()}}
    return found


def _summary(drains: Sequence[Drain]) -> dict[str, Any]:
    figures = ("idle_share", "idle_slots", "tail_s", "tail_slots", "seconds")
    return {name: interval([getattr(drain, name) for drain in drains]) for name in figures} | {
        "runs": [asdict(drain) for drain in drains]
    }


def table(found: Mapping[str, Any]) -> Table:
    """Show the medians, and the interval of the idle share."""
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
    """Return the figures that miss their targets."""
    lines = []
    for name, node in found["nodes"].items():
        own, static = (node[arm]["idle_share"]["median"] for arm in ARMS)
        if own > TARGET:
            lines.append(f"{name}: idle share {own:.2%}, target at most {TARGET:.1%}")
        if static < STATIC_MINIMUM:
            lines.append(f"{name}: idle share of the static split {static:.2%}, target at least {STATIC_MINIMUM:.0%}")
    return lines
