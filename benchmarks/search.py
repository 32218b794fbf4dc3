"""The search for a Server target on nodes of known capacity, in simulated time.

The replicas have the pace of the replay engine, the scheduler of LoadGen's process assigns the queries, and the verdict
of a full run is LoadGen's: both p99 latencies by early stopping.
"""

import itertools
import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from rich.table import Table

from benchmarks import drain
from benchmarks.node import Tokens
from benchmarks.server_node import ServerNode
from harness_llm.config.load import Load
from harness_llm.loadgen.early_stopping import allowed_over
from harness_llm.pipeline.tuning.finished_run import FinishedRun, Queries
from harness_llm.pipeline.tuning.saturated_probe import is_saturated
from harness_llm.pipeline.tuning.search_steps import COMPLETIONS, Confirm, Done, Goal, Measurement, Probe
from harness_llm.pipeline.tuning.target_search import MAX_PROBES, USUAL_CONFIRMATIONS, next_target_trial
from harness_llm.replicas.engines.replay_timing import Pace

TARGET = 0.03
# A found target within this of the capacity is as near as two runs of the bisection.
_CAPACITY_PRECISION = 0.003
STARTS = (0.1, 10)
_RESTART_S = 300.0  # of an engine whose replica failed


@dataclass(frozen=True)
class System:
    """A node with a benchmark.

    Attributes:
        limits_ms: of TTFT and TPOT.
        guess: queries per second, near the capacity.
    """

    node: ServerNode
    replicas: int
    limits_ms: Mapping[str, float]
    guess: float


def _llama2(pace: Pace) -> System:
    return System(ServerNode(pace, drain.TOKENS, drain.SAMPLES), len(drain.SPEEDS), {"ttft": 2000, "tpot": 200}, 90)


def _llama31(pace: Pace) -> System:
    return System(ServerNode(pace, LLAMA31, 8313), 1, {"ttft": 6000, "tpot": 175}, 0.15)


LLAMA31 = Tokens(9400, 20_000, 0.4, 684.68, 2000, 0.5)  # mean prompt: MLCommons' announcement; answer: the reference
# llama3.1-405b, assumed: one replica of 8 GPUs, whose step reads 405 GB at 24 TB/s on H200. A prompt token takes
# 0.15 ms. A sequence reads 10,000 tokens of KV cache. MI300X has 1.1 times the bandwidth.
SYSTEMS = {f"llama2-70b on 8 {name}": _llama2(node.pace) for name, node in drain.NODES.items()} | {
    "llama3.1-405b on 8 MI300X": _llama31(Pace(0.00014, 0.015, 0.00018, 256, 512)),
    "llama3.1-405b on 8 H200": _llama31(Pace(0.00015, 0.017, 0.00019, 256, 512)),
}


@dataclass(frozen=True)
class Fault:
    """What differs from equal, constant replicas.

    Attributes:
        noise: standard deviation of the logarithm of the speed between runs.
        slowest: speed of the first replica.
        failing: numbers of the trials in which a replica fails.
    """

    noise: float = 0.0
    slowest: float = 1.0
    failing: frozenset[int] = frozenset()


FAULTS = {
    "none": Fault(),
    "noise of 0.3 %": Fault(noise=0.003),
    "one replica 20 % slower": Fault(slowest=0.8),
    "replica fails in 2 trials": Fault(failing=frozenset({1, 4})),
}


@dataclass(frozen=True)
class Case:
    """A system with a fault; makes trials of it."""

    system: System
    fault: Fault
    seed: int

    @cached_property
    def capacity(self) -> float:
        """The highest target at which most of three full runs without noise are VALID, by bisection."""
        low, high = 0.3 * self.system.guess, 2 * self.system.guess
        while high / low > 1 + _CAPACITY_PRECISION:
            middle = math.sqrt(low * high)
            runs = [self._run(self._goal(middle), middle, None, noise=0.0, number=-n) for n in (1, 2, 3)]
            valid = statistics.median(run.valid for run in runs)
            low, high = (middle, high) if valid else (low, middle)
        return low

    def search(self, start: float) -> tuple[Done, list[Measurement]]:
        """Search from `start` times the capacity."""
        goal, trials = self._goal(start * self.capacity), list[Measurement]()
        while not isinstance(step := next_target_trial(goal, trials), Done):
            trials.append(self._trial(goal, step, len(trials)))
        return step, trials

    def _goal(self, target: float) -> Goal:
        node = self.system.node
        load = Load("Server", node.samples, node.samples, drain.MIN_DURATION_S, target)
        return Goal(load, seats=node.pace.seats * self.system.replicas)

    def _trial(self, goal: Goal, step: Probe | Confirm, number: int) -> Measurement:
        queries = step.queries if isinstance(step, Probe) else None
        if number in self.fault.failing:
            return Measurement(step.target, queries is None, valid=False, seconds=_RESTART_S, failed=True)
        made = self._run(goal, step.target, queries, self.fault.noise, number)
        ended = made if made.full else self._ended(made, goal.seats)
        return ended.measure_server(goal, self.system.limits_ms)

    def _ended(self, made: FinishedRun, seats: int) -> FinishedRun:
        """`made`, or what was answered when a saturated probe ends."""
        queries, limit_s = made.queries, self.system.limits_ms["ttft"] / 1000
        enough = min(COMPLETIONS * seats, len(queries.completed)) - 1
        now = max(queries.issued[-1], np.partition(queries.completed, enough)[enough])
        done = queries.completed <= now
        over = np.count_nonzero(np.minimum(queries.first, now) - queries.issued > limit_s)
        if not is_saturated(len(done), int(over), int(np.count_nonzero(~done)), seats):
            return made
        issued, first, completed, tokens = (
            values[done] for values in (queries.issued, queries.first, queries.completed, queries.tokens)
        )
        answered = Queries(issued, first, completed, tokens, unanswered=queries.issued[~done])
        return replace(made, queries=answered, p99_ms={}, duration_s=float(now - queries.issued[0]))

    def _run(self, goal: Goal, target: float, queries: int | None, noise: float, number: int) -> FinishedRun:
        rng = np.random.default_rng([self.seed, number + 3, round(1000 * target)])
        count = queries or goal.full_queries(target)
        speeds = np.ones(self.system.replicas) * math.exp(rng.normal(0, noise))
        speeds[0] *= self.fault.slowest
        arrivals = np.cumsum(rng.exponential(1 / target, count))
        served = self.system.node.run(speeds.tolist(), arrivals, rng)
        return self._finished(served, target, full=queries is None)

    def _finished(self, served: Queries, target: float, *, full: bool) -> FinishedRun:
        values = {name: served.latencies_ms(name) for name in self.system.limits_ms}
        most = allowed_over(len(served.issued))
        valid = all((values[name] > limit).sum() <= most for name, limit in self.system.limits_ms.items())
        p99_ms = {name: float(np.quantile(one, 0.99)) for name, one in values.items()}
        duration_s = float(served.completed.max() - served.issued[0])
        return FinishedRun(served, p99_ms, duration_s, target, full, valid)


def measure(repeats: int, report: Callable[[str], None]) -> dict[str, Any]:
    """Search every system with every fault from both starts, `repeats` times."""
    rows = []
    for (name, system), (fault_name, fault), seed in itertools.product(SYSTEMS.items(), FAULTS.items(), range(repeats)):
        if fault.slowest < 1 and system.replicas == 1:
            continue
        case = Case(system, fault, seed)
        for start in STARTS:
            rows.append({"system": name, "fault": fault_name, "start": start, **_row(case, *case.search(start))})
            report(f"search, {name}, {fault_name}, from {start:g}x: {rows[-1]['error']:+.1%} of {case.capacity:.4g}")
    return {"target": TARGET, "rows": rows}


def _row(case: Case, done: Done, trials: Sequence[Measurement]) -> dict[str, Any]:
    made = [trial for trial in trials if not trial.failed]
    full = sum(trial.full for trial in made)
    return {
        "capacity": case.capacity,
        "found": done.target,
        "error": (done.target or 0) / case.capacity - 1,
        "probes": len(made) - full,
        "full": full,
        "hours": sum(trial.seconds for trial in trials) / 3600,
    }


def _groups(rows: Sequence[Mapping[str, Any]]) -> dict[tuple[str, str], list[Mapping[str, Any]]]:
    groups: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for row in rows:
        groups.setdefault((row["system"], row["fault"]), []).append(row)
    return groups


def table(found: Mapping[str, Any]) -> Table:
    """Show the extremes over starts and repeats."""
    shown = Table("system", "fault", "capacity", "found / capacity - 1", "probes", "full runs", "hours", box=None)
    for (system, fault), rows in _groups(found["rows"]).items():
        errors = [row["error"] for row in rows]
        shown.add_row(
            system,
            fault,
            f"{statistics.median(row['capacity'] for row in rows):.4g}",
            f"{min(errors):+.1%} to {max(errors):+.1%}",
            *(_range([row[name] for row in rows]) for name in ("probes", "full")),
            f"{statistics.median(row['hours'] for row in rows):.1f}",
        )
    return shown


def _range(values: Sequence[int]) -> str:
    return f"{min(values)} to {max(values)}"


def misses(found: Mapping[str, Any]) -> list[str]:
    """Return the searches that are too far off or too long."""
    lines = []
    for row in found["rows"]:
        what = f"{row['system']}, {row['fault']}, from {row['start']:g}x"
        if abs(row["error"]) > TARGET:
            lines.append(f"{what}: {row['error']:+.1%} off, target at most {TARGET:.0%}")
        if row["probes"] > MAX_PROBES or row["full"] > USUAL_CONFIRMATIONS:
            lines.append(f"{what}: {row['probes']} probes, {row['full']} full runs")
    return lines
