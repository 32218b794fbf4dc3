"""Search of the highest Server target whose run is VALID: which trial to make next. Pure: no clock, no I/O.

1. Bracket: the first probe is at the target of user.conf; its prediction, or the throughput of a saturated probe,
   bounds the rest.
2. Probes at the median of the model of the crossing (crossing.py). They become longer as the interval becomes narrow.
3. Confirmation by a run of full length, at a target that is VALID with probability CONFIDENCE by the model. After an
   INVALID one the model includes it, and the next confirmation is lower.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from harness_llm.config.load import Load, seconds
from harness_llm.loadgen.prediction import SERVER_SHARE
from harness_llm.pipeline.tuning.crossing import Crossing, Point
from harness_llm.pipeline.tuning.early_stopping import fewest_queries

MAX_PROBES = 8
MAX_CONFIRMATIONS = 4
USUAL_CONFIRMATIONS = 2
# Failed trials in a row after which the search ends.
MAX_FAILURES = 3
# Width of the 80 % interval of the crossing at which a confirmation follows.
PRECISION = 0.03
CONFIDENCE = 0.75
# Shortest probe of a run of LoadGen's 600 s; shorter runs have proportionally shorter probes.
PROBE_S = 90
_FULL_S = 600
# Mean completion times of a probe: the batch fills in the first, and empties in the last.
COMPLETIONS = 3
# Queries of which early stopping allows one to be too slow: 662 at the 99th percentile.
MIN_QUERIES = fewest_queries(over=1)
# Length of a probe relative to the shortest, by the width of the interval.
_LENGTHS = ((0.25, 1.0), (0.08, 1.5), (0.0, 2.0))
# A probe longer than this share of a full run is replaced by a full run.
_WORTHWHILE = 0.7


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
class Trial:
    """A finished trial.

    Attributes:
        full: whether it was a run of full length, whose verdict counts.
        valid: whether it is VALID: LoadGen's verdict of a full run, otherwise all latencies within their limits.
        failed: whether it ended without measurements because a process failed.
        latencies: TTFT and TPOT; empty if the engine's probe refused the target.
        completion_s: mean time of an answer; 0 if unknown.
        throughput: queries per second of the system by the engine's probe, or of a saturated trial; 0 if unknown.
    """

    target: float
    full: bool
    valid: bool
    seconds: float
    failed: bool = False
    latencies: tuple[Latency, ...] = ()
    completion_s: float = 0.0
    throughput: float = 0.0


@dataclass(frozen=True)
class Probe:
    """Make a short run; `predict`: with the engine's probe before it."""

    target: float
    queries: int
    predict: bool = False


@dataclass(frozen=True)
class Confirm:
    """Make a run of full length."""

    target: float


@dataclass(frozen=True)
class Done:
    """End of the search.

    Attributes:
        target: the highest target that a full run confirmed; None if none did.
        low, high: 90 % interval of the highest VALID target.
        reason: why the search ended.
    """

    target: float | None
    low: float
    high: float
    reason: str


@dataclass(frozen=True)
class Goal:
    """What to search.

    Attributes:
        load: of a full run; `target_qps` is the first target.
        budget_s: for all trials together.
        seats: queries that the replicas run at once; bounds the completion time before the first measurement.
    """

    load: Load
    budget_s: float = math.inf
    seats: int = 0

    def full_s(self, target: float) -> float:
        """Seconds of a full run at `target`."""
        return seconds(_at(self.load, target), "performance", target)

    def probe_queries(self, target: float, completion_s: float, longer: float) -> int:
        """Queries of a probe at `target`; `longer` is relative to the shortest."""
        shortest = PROBE_S * min(self.load.min_duration_s / _FULL_S, 1)
        queries = max(target * longer * max(shortest, COMPLETIONS * completion_s), MIN_QUERIES)
        return math.ceil(queries)


Next = Probe | Confirm | Done


def next_trial(goal: Goal, trials: Sequence[Trial]) -> Next:
    """Return the trial to make after `trials`, or the end of the search."""
    return _Search(goal, list(trials)).next()


@dataclass
class _Search:
    goal: Goal
    trials: list[Trial]
    crossing: Crossing = field(init=False)

    def __post_init__(self) -> None:
        self.crossing = model(self.goal, self.trials)

    @property
    def _measured(self) -> list[Trial]:
        return [trial for trial in self.trials if not trial.failed]

    @property
    def _confirmations(self) -> list[Trial]:
        return [trial for trial in self._measured if trial.full]

    @property
    def _probes(self) -> int:
        return len(self._measured) - len(self._confirmations)

    @property
    def _left_s(self) -> float:
        return self.goal.budget_s - sum(trial.seconds for trial in self.trials)

    def next(self) -> Next:
        last = self.trials[-MAX_FAILURES:]
        if len(last) == MAX_FAILURES and all(trial.failed for trial in last):
            return self._done(f"{MAX_FAILURES} trials in a row failed")
        if self._confirmations:
            return self._after_confirmation()
        if not self._measured:
            return self._probe(self.goal.load.target_qps, predict=True)
        if self._probes >= MAX_PROBES or self.crossing.width() <= PRECISION:
            return self._confirm()
        return self._probe(self.crossing.quantile(0.5))

    def _probe(self, target: float, *, predict: bool = False) -> Next:
        """A probe, or a confirmation if a probe is too long or the budget leaves time for a full run only."""
        completion_s = self._completion_s(target)
        width = self.crossing.width() if self._measured else math.inf
        longer = next(length for bound, length in _LENGTHS if width >= bound)
        probe = Probe(target, self.goal.probe_queries(target, completion_s, longer), predict)
        full_s, probe_s = self.goal.full_s(target), probe.queries / target
        if probe_s > _WORTHWHILE * full_s and longer > 1:
            probe = Probe(target, self.goal.probe_queries(target, completion_s, 1), predict)
            probe_s = probe.queries / target
        if probe_s > _WORTHWHILE * full_s or self._left_s < probe_s + full_s:
            return self._confirm() if self._measured else self._affordable(Confirm(target))
        return probe

    def _completion_s(self, target: float) -> float:
        """Mean time of an answer at `target`: of the trial with the nearest target."""
        known = [trial for trial in self._measured if trial.completion_s]
        if known:
            return min(known, key=lambda trial: abs(math.log(trial.target / target))).completion_s
        throughput = next((trial.throughput for trial in self._measured if trial.throughput), 0.0)
        return self.goal.seats / throughput if throughput else 0.0

    def _confirm(self) -> Next:
        return self._affordable(Confirm(self.crossing.quantile(1 - CONFIDENCE)))

    def _affordable(self, confirm: Confirm) -> Next:
        if self._left_s < self.goal.full_s(confirm.target):
            return self._done("the budget leaves no time for a run of full length")
        return confirm

    def _after_confirmation(self) -> Next:
        made, valid = self._confirmations, [t.target for t in self._confirmations if t.valid]
        target = self.crossing.quantile(1 - CONFIDENCE)
        if valid:
            higher = target > max(valid) * (1 + PRECISION / 2)
            if higher and len(made) < USUAL_CONFIRMATIONS:
                return self._affordable(Confirm(target))
            return self._done("")
        if len(made) >= MAX_CONFIRMATIONS:
            return self._done(f"{len(made)} runs of full length are INVALID")
        lowest = min(trial.target for trial in made)
        return self._affordable(Confirm(min(target, lowest * (1 - PRECISION / 2))))

    def _done(self, reason: str) -> Done:
        valid = [trial.target for trial in self._confirmations if trial.valid]
        found = max(valid, default=None)
        low, high = self.crossing.quantile(0.05), self.crossing.quantile(0.95)
        return Done(found, max(low, found or 0), max(high, found or 0), reason)


def model(goal: Goal, trials: Sequence[Trial]) -> Crossing:
    """Return the distribution of the highest VALID target after `trials`."""
    measured = [trial for trial in trials if trial.latencies]
    count = max((len(trial.latencies) for trial in measured), default=0)
    points = [[_point(trial, index) for trial in measured] for index in range(count)]
    return Crossing(points, _centre(goal, trials), _throughput(trials))


def _point(trial: Trial, index: int) -> Point:
    latency = trial.latencies[index]
    return Point(math.log(trial.target), math.log(latency.ratio), latency.sd, latency.at_least)


def _throughput(trials: Sequence[Trial]) -> float | None:
    """The largest known throughput: a saturated trial may have been too short to fill the batch."""
    return max((trial.throughput for trial in trials), default=0.0) or None


def _centre(goal: Goal, trials: Sequence[Trial]) -> float:
    throughput = _throughput(trials)
    return throughput * SERVER_SHARE if throughput else goal.load.target_qps


def _at(load: Load, target: float) -> Load:
    from dataclasses import replace

    return replace(load, target_qps=target)
