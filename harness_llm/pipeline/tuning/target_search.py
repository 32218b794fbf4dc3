"""Search of the highest Server target whose run is VALID: which trial to make next. Pure: no clock, no I/O.

1. Bracket: the first probe is at the target of user.conf; its prediction, or the throughput of a saturated probe,
   bounds the rest.
2. Probes at the median of the model of the crossing (crossing.py). They become longer as the interval becomes narrow.
3. Confirmation by a run of full length, at a target that is VALID with probability CONFIDENCE by the model. After an
   INVALID one the model includes it, and the next confirmation is lower. After a VALID one another follows where the
   expected gain is worth it.
"""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field

from harness_llm.loadgen.early_stopping import FEWEST_QUERIES
from harness_llm.pipeline.tuning.crossing import Crossing, Point, Throughput
from harness_llm.pipeline.tuning.search_steps import (
    COMPLETIONS,
    MAX_CONFIRMATIONS,
    Confirm,
    Done,
    Goal,
    Measurement,
    Probe,
    Step,
    rounded,
    verdicts,
)
from harness_llm.runs.bracket import full_bracket

MAX_PROBES = 8
USUAL_CONFIRMATIONS = 2
# Width of the 80 % interval of the crossing at which a confirmation follows; half of it is the step between two.
PRECISION = 0.02
CONFIDENCE = 0.75
# Expected gain that is worth a run of full length after a VALID one, and more of them than usual.
_GAIN, _UNUSUAL_GAIN = 0.005, 0.01
# Targets that are VALID with a probability of a half at least.
_SHARES = [share / 20 for share in range(1, 11)]
# Width of the interval above which a VALID run of full length is followed by more trials.
_BRACKETED = 0.08
# Length of a probe relative to the shortest, by the width of the interval.
_LENGTHS = ((0.25, 1.0), (_BRACKETED, 1.5), (0.0, 2.0))
# Usual standard deviation of the logarithm of the throughput between equal runs on one node.
_DRIFT = 0.005
# Scale of the error of a throughput by the probe of an engine or by a saturated probe, as a logarithm.
_SHORT_SCALE = 0.1
# Doublings of the step between confirmations.
_DOUBLINGS = 4
# A probe longer than this share of a full run is replaced by a full run.
_WORTHWHILE = 0.7


def next_target_trial(goal: Goal, trials: Sequence[Measurement]) -> Step:
    """Return the trial to make after `trials`, or the end of the search."""
    return _Search(goal, list(trials)).next()


def model(goal: Goal, trials: Sequence[Measurement]) -> Crossing:
    """Return the distribution of the highest VALID target after `trials`."""
    measured = [trial for trial in trials if trial.latencies]
    count = max((len(trial.latencies) for trial in measured), default=0)
    points = [[_point(trial, index) for trial in measured] for index in range(count)]
    spread = drift(measured)
    return Crossing(points, goal.first, _throughput(trials, spread), spread)


def _throughput(trials: Sequence[Measurement], spread: float) -> Throughput | None:
    """Throughput of the system, best by INVALID runs of full length."""
    sustained = max((math.log(trial.target) for trial in trials if trial.valid), default=-math.inf)
    if full := [math.log(trial.throughput) for trial in trials if trial.full and trial.throughput]:
        return Throughput(statistics.fmean(full), spread, sustained)
    # The largest: a saturated probe may have been too short to fill the batch.
    if short := [math.log(trial.throughput) for trial in _credible(trials)]:
        return Throughput(max(short), _SHORT_SCALE, sustained)
    return None


def _credible(trials: Sequence[Measurement]) -> list[Measurement]:
    """Trials with a throughput that no VALID trial at a higher target refutes: an overload slows down the system."""
    sustained = max((trial.target for trial in trials if trial.valid), default=0.0)
    return [trial for trial in trials if trial.throughput > sustained * math.exp(-_SHORT_SCALE)]


def drift(trials: Sequence[Measurement]) -> float:
    """Standard deviation of the logarithm of the throughput between runs, of the saturated ones of `trials`."""
    saturated = [math.log(trial.throughput) for trial in _credible(trials) if trial.saturated]
    deviations = [value - statistics.fmean(saturated) for value in saturated]
    return math.sqrt((_DRIFT**2 + sum(value**2 for value in deviations)) / max(len(saturated), 1))


def _point(trial: Measurement, index: int) -> Point:
    latency = trial.latencies[index]
    return Point(math.log(trial.target), math.log(latency.ratio), latency.sd, latency.at_least)


@dataclass
class _Search:
    goal: Goal
    trials: list[Measurement]
    crossing: Crossing = field(init=False)

    def __post_init__(self) -> None:
        self.crossing = model(self.goal, self.trials)

    @property
    def _measured(self) -> list[Measurement]:
        return [trial for trial in self.trials if not trial.failed]

    @property
    def _confirmations(self) -> list[Measurement]:
        return [trial for trial in self._measured if trial.full]

    def next(self) -> Step:
        if self._confirmations and not self._far_below:
            return self._after_confirmation()
        if not self._measured:
            return self._probe(self.goal.first, predict=True)
        if len(self._measured) >= MAX_PROBES or self.crossing.width() <= PRECISION:
            return self._confirm(self._safe_target())
        return self._probe(rounded(self.crossing.quantile(0.5)))

    @property
    def _far_below(self) -> bool:
        """Whether the runs of full length only replaced probes, far below the crossing."""
        wide = self.crossing.width() > _BRACKETED and len(self._measured) < MAX_PROBES
        return wide and all(trial.valid for trial in self._confirmations)

    def _probe(self, target: float, *, predict: bool = False) -> Step:
        """A probe, or a confirmation if a probe is too long or the budget leaves time for a full run only."""
        width = self.crossing.width() if self._measured else math.inf
        longer = next(length for bound, length in _LENGTHS if width >= bound)
        full_s = self.goal.full_s(target, target)
        queries = self._queries(target, longer)
        if queries / target > _WORTHWHILE * full_s:
            queries = self._queries(target, 1)
        probe_s = queries / target
        if probe_s > _WORTHWHILE * full_s or self.goal.left_s(self.trials) < probe_s + self._last_s:
            return self._confirm(self._safe_target() if self._measured else target)
        return Probe(target, queries, predict, whole=False)

    @property
    def _last_s(self) -> float:
        """Seconds of the full run that ends the search."""
        if not self._measured:
            return self.goal.load.min_duration_s
        likely = self.crossing.quantile(0.5)
        return self.goal.full_s(likely, likely)

    def _queries(self, target: float, longer: float) -> int:
        """Queries of a probe; `longer` is relative to the shortest."""
        duration_s = longer * max(self.goal.shortest_s, COMPLETIONS * self._completion_s(target))
        return math.ceil(max(target * duration_s, FEWEST_QUERIES["Server"]))

    def _completion_s(self, target: float) -> float:
        """Mean time of an answer at `target`: of the trial with the nearest target, at first of a full batch."""
        known = [trial for trial in self._measured if trial.completion_s]
        if known:
            return min(known, key=lambda trial: abs(math.log(trial.target / target))).completion_s
        throughput = max((trial.throughput for trial in self._measured), default=0.0)
        return self.goal.seats / throughput if throughput else 0.0

    def _safe_target(self) -> float:
        return rounded(self.crossing.quantile(1 - CONFIDENCE))

    def _confirm(self, target: float) -> Step:
        if self.goal.left_s(self.trials) < self.goal.full_s(target, target):
            return self._done("the budget leaves no time for a run of full length")
        return Confirm(target)

    def _after_confirmation(self) -> Step:
        made, target = self._confirmations, self._safe_target()
        # Runs of full length replace probes that would take about as long.
        instead = self._queries(target, 1) > _WORTHWHILE * self.goal.full_queries(target)
        if valid := [trial.target for trial in made if trial.valid]:
            higher, gain = self._higher(max(valid))
            worthwhile = gain > (_GAIN if instead or len(made) < USUAL_CONFIRMATIONS else _UNUSUAL_GAIN)
            return self._confirm(higher) if worthwhile and len(made) < MAX_PROBES else self._done()
        if len(made) >= (MAX_PROBES if instead else MAX_CONFIRMATIONS):
            return self._done(f"{len(made)} runs of full length are INVALID")
        # Each step down is at least twice the one before: a wrong model ends in a VALID run nevertheless.
        lower = min(trial.target for trial in made) * (1 - PRECISION / 2 * 2 ** min(len(made) - 1, _DOUBLINGS))
        return self._confirm(rounded(min(target, lower)))

    def _higher(self, valid: float) -> tuple[float, float]:
        """Return the target above `valid` with the largest expected gain, and this gain relative to `valid`."""
        invalid = min((trial.target for trial in self._confirmations if not trial.valid), default=math.inf)
        highest = invalid * (1 - PRECISION / 2)
        targets = [rounded(min(self.crossing.quantile(share), highest)) for share in _SHARES]
        gains = [self.crossing.probability(target) * (target / valid - 1) for target in targets]
        return max(zip(targets, gains, strict=True), key=lambda one: one[1])

    def _done(self, reason: str = "") -> Done:
        confirmed = full_bracket(verdicts(self.trials))
        if not confirmed.valid:
            return Done(None, 0.0, 0.0, reason)
        return Done(confirmed.valid, *self.crossing.interval(0.9, confirmed.valid, confirmed.invalid))
