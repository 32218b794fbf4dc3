"""Trials of a search for LoadGen's target: what was measured, and what to measure next. Pure."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from harness_llm.config.load import Load, issued, seconds
from harness_llm.runs.bracket import Verdict

MAX_CONFIRMATIONS = 4
# Shortest probe of a run of LoadGen's 600 s; shorter runs have proportionally shorter probes.
_PROBE_S = 90
_FULL_S = 600
# Mean completion times of a probe: the batch fills in the first, and empties in the last.
COMPLETIONS = 3
# Significant digits of a target in user.conf, and the most that are written.
DIGITS, MOST_DIGITS = 4, 10


@dataclass(frozen=True)
class Latency:
    """A latency of a trial: at the quantile that early stopping requires of a full run, divided by its limit.

    Attributes:
        sd: standard deviation of the logarithm of `ratio`.
        at_least: whether the queue grew during the trial, so that a longer run has a higher latency.
    """

    ratio: float
    sd: float
    at_least: bool = False


@dataclass(frozen=True)
class Measurement:
    """A finished trial.

    Attributes:
        target: queries per second; in SingleStream 1 / target_latency.
        full: whether it was a run of full length, whose verdict counts.
        valid: whether it is VALID: LoadGen's verdict of a full run, otherwise whether all latencies are within limits.
        seconds: wall time of the trial.
        failed: whether it ended without measurements because a process failed.
        latencies: those with a limit; empty if the engine's probe refused the target.
        completion_s: mean time of an answer without its time in a queue; 0 if unknown.
        throughput: samples per second of the system: predicted by the engine's probe, of Offline or SingleStream, or of
            a Server trial that is saturated, or INVALID at full length; 0 if unknown.
        duration_s: from the first query to the last answer, by LoadGen; 0 if unknown.
    """

    target: float
    full: bool
    valid: bool
    seconds: float
    failed: bool = False
    latencies: tuple[Latency, ...] = ()
    completion_s: float = 0.0
    throughput: float = 0.0
    duration_s: float = 0.0

    @property
    def saturated(self) -> bool:
        """Whether `throughput` is the highest of the system, measured while the queue grew."""
        return self.throughput > 0 and (self.full or any(latency.at_least for latency in self.latencies))


@dataclass(frozen=True)
class Probe:
    """Make a short run.

    Attributes:
        predict: with the engine's probe before it.
        whole: wait for all answers, also if the system is saturated.
    """

    target: float
    queries: int
    predict: bool = False
    whole: bool = True


@dataclass(frozen=True)
class Confirm:
    """Make a run of full length."""

    target: float


@dataclass(frozen=True)
class Done:
    """End of a search.

    Attributes:
        target: the best target that a full run confirmed; None if none did.
        low, high: 90 % interval of the best target, from the highest VALID to the lowest INVALID run of full length at
            most; 0 without `target`.
        reason: why the search ended, if not because it found the target.
    """

    target: float | None
    low: float
    high: float
    reason: str = ""


Step = Probe | Confirm | Done


@dataclass(frozen=True)
class Goal:
    """What to search.

    Attributes:
        load: of a full run; its target is the first one.
        budget_s: for all trials together.
        seats: queries that the replicas run at once.
    """

    load: Load
    budget_s: float = math.inf
    seats: int = 0

    @property
    def first(self) -> float:
        """The target of user.conf, as a rate."""
        return 1 / self.load.target_latency_s if self.load.scenario == "SingleStream" else self.load.target_qps

    @property
    def shortest_s(self) -> float:
        """The shortest duration of a probe."""
        return _PROBE_S * min(self.load.min_duration_s / _FULL_S, 1)

    def left_s(self, trials: Sequence[Measurement]) -> float:
        """Seconds of the budget after `trials`."""
        return self.budget_s - sum(trial.seconds for trial in trials)

    def at(self, target: float) -> Load:
        """The load of a full run at `target`."""
        return replace(self.load, target_qps=target, target_latency_s=1 / target)

    def with_digits(self, target: float, digits: int = DIGITS) -> float:
        """Return the nearest target whose value in user.conf has `digits`."""
        if self.load.scenario == "SingleStream":
            return 1000 / float(f"{1000 / target:.{digits}g}")
        return float(f"{target:.{digits}g}")

    def full_queries(self, target: float) -> int:
        """Queries of a full run at `target`."""
        return issued(self.at(target), "performance")

    def full_s(self, target: float, rate: float) -> float:
        """Seconds of a full run at `target` if the system completes `rate` samples per second."""
        return seconds(self.at(target), "performance", rate)


def verdicts(trials: Sequence[Measurement]) -> list[Verdict]:
    """Return the verdicts of the trials that did not fail."""
    return [Verdict(trial.target, trial.valid, trial.full) for trial in trials if not trial.failed]


def rounded(target: float) -> float:
    """Return `target` with the digits that are written to user.conf."""
    return float(f"{target:.{DIGITS}g}")


def conf_value(scenario: str, target: float) -> float:
    """The value of user.conf for a target in queries per second: in SingleStream the latency of a query in ms."""
    return float(f"{1000 / target if scenario == 'SingleStream' else target:.{MOST_DIGITS}g}")
