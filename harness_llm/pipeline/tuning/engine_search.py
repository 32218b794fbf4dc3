"""Search of engine settings that are faster than the shipped ones: which trial to make next. Pure: no clock, no I/O.

1. One trial of the shipped settings, which sizes the others, then BASELINE trials: their mean and noise.
2. Screening: one short probe for each proposal. Settings that are slower by more than the noise are pruned.
3. Comparison of the FINALISTS fastest settings with the shipped ones, in pairs of trials, in the order AB BA AB …,
   which cancels a drift of the machine. Trials of the screening do not count: the fastest of many is partly the
   luckiest. A failed trial is repeated; a finalist is left out when more than MAX_REPEATS of its trials failed.

The interval of a finalist is Student's, of the logarithms of the ratios within its pairs. It is simultaneous: the error
probability is divided by the number of finalists and of looks (Bonferroni).
"""

import math
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from statistics import fmean, stdev

from harness_llm.analysis.interval import CONFIDENCE, FEWEST_RUNS, Estimate, Interval, Spread, between_runs, ratio
from harness_llm.pipeline.tuning.engine_proposal import Refusal, Scored, propose
from harness_llm.pipeline.tuning.search_space import SearchSpace, Settings
from harness_llm.runs.trial_store import Trial

BASELINE = FEWEST_RUNS
FINALISTS = 2
# Pairs after which the interval is computed; the comparison ends if it excludes 1.
LOOKS = (4, 8)
MAX_SETTINGS = 24
# Failed trials of a finalist that are repeated.
MAX_REPEATS = 1
# Share of the budget after which no more settings are screened.
_SCREENING = 0.5
# Settings are pruned if they are slower by more than both.
_PRUNED_BELOW = math.log(1.02)
_NOISE_FACTOR = 3
_SHIPPED: Settings = {}
# The ratio 1, without uncertainty.
_ONE = Estimate(0.0, Spread(0.0, 1.0))


@dataclass(frozen=True)
class Step:
    """A trial to make.

    Attributes:
        samples_per_s: throughput by which the trial is sized; None for the first one.
        pruned_below: score below which the trial is PRUNED; None for no limit.
        note: purpose, for the user.
    """

    settings: Settings
    note: str
    samples_per_s: float | None = None
    pruned_below: float | None = None


@dataclass(frozen=True)
class Comparison:
    """A finalist against the shipped settings.

    Attributes:
        speed: ratio of the speeds; None if more than MAX_REPEATS trials of the finalist failed.
        interval: None with fewer than FEWEST_RUNS pairs.
    """

    settings: Settings
    speed: float | None
    interval: Interval | None
    pairs: int

    @property
    def is_faster(self) -> bool:
        """Whether the whole interval is above 1."""
        return self.interval is not None and self.interval.low > 1


@dataclass(frozen=True)
class Outcome:
    """Result of a search.

    Attributes:
        finalists: fastest first.
        measured: number of settings besides the shipped ones; `failed` of them did not run.
        reason: why the search ended before it was complete; empty if it is complete.
    """

    finalists: tuple[Comparison, ...]
    measured: int
    failed: int
    pruned: int
    space: int
    reason: str = ""

    @property
    def found(self) -> Comparison | None:
        """The fastest settings that are faster than the shipped ones beyond noise."""
        faster = [one for one in self.finalists if one.is_faster]
        return max(faster, key=lambda one: one.speed or 0, default=None)


def score(trial: Trial) -> float | None:
    """Speed of a trial, more is better; None without measurements.

    Server and Interactive: limit divided by p99 latency, of the latency with the smaller margin, because arrivals fix
    the throughput. Otherwise the throughput.
    """
    margins = [margin for margin in (trial.ttft_margin, trial.tpot_margin) if margin is not None]
    if trial.state == "FAILED" or not trial.throughput:
        return None
    return 1 / (1 - min(margins)) if margins else trial.throughput


@dataclass
class EngineSearch:
    """The search as a coroutine: it yields steps and is sent their trials.

    Attributes:
        budget_s: of all trials together.
    """

    space: SearchSpace
    refusal: Refusal
    budget_s: float = math.inf
    _spent_s: float = 0.0
    _count: int = 0
    _first: float | None = None
    _baseline: list[float] = field(default_factory=list)
    _results: list[Scored] = field(default_factory=list)
    _finalist_failures: int = 0

    def run(self) -> Generator[Step, Trial, Outcome]:
        """Yield each step; return the outcome."""
        yield from self._measure_baseline()
        reasons = [(yield from self._screen())]
        finalists: list[Comparison] = []
        for finalist in self._fastest():
            comparison = yield from self._compare(finalist.settings, math.exp(finalist.score or 0.0))
            finalists.append(comparison)
            if comparison.interval is None and comparison.speed is not None:
                reasons.append("the budget left no time to compare every finalist")
        finalists.sort(key=lambda one: -(one.speed or 0))
        failed = sum(result.score is None for result in self._results)
        pruned = sum(result.pruned for result in self._results)
        return Outcome(
            tuple(finalists),
            len(self._results),
            failed,
            pruned,
            self.space.size,
            "; ".join(filter(None, dict.fromkeys(reasons))),
        )

    def _trial(self, step: Step) -> Generator[Step, Trial, Trial]:
        trial = yield step
        self._spent_s += trial.seconds
        self._count += 1
        return trial

    def _measure_baseline(self) -> Generator[Step, Trial, None]:
        while self._first is None:
            sizing = yield from self._trial(Step(_SHIPPED, "shipped settings, to size the trials"))
            self._first = sizing.throughput
        while len(self._baseline) < BASELINE:
            note = f"shipped settings, {len(self._baseline) + 1} of {BASELINE}"
            trial = yield from self._trial(Step(_SHIPPED, note, self._first))
            if (speed := score(trial)) is not None:
                self._baseline.append(math.log(speed))

    def _screen(self) -> Generator[Step, Trial, str]:
        """Probe proposals; return why the screening ended early."""
        noise = max(_PRUNED_BELOW, _NOISE_FACTOR * stdev(self._baseline))
        mean = fmean(self._baseline)
        while len(self._results) < MAX_SETTINGS:
            if self._results and self._spent_s >= _SCREENING * self.budget_s:
                return f"the budget ended the screening after {len(self._results)} settings"
            settings = propose(self.space, self._results, self.refusal)
            if settings is None:
                return ""
            note = f"settings {len(self._results) + 1} of at most {MAX_SETTINGS}"
            trial = yield from self._trial(Step(settings, note, self._first, math.exp(mean - noise)))
            speed = score(trial)
            relative = math.log(speed) - mean if speed is not None else None
            self._results.append(Scored(settings, relative, trial.state == "PRUNED"))
        return ""

    def _fastest(self) -> list[Scored]:
        measured = [result for result in self._results if result.score is not None]
        return sorted(measured, key=lambda result: -(result.score or 0))[:FINALISTS]

    def _compare(self, settings: Settings, screened: float) -> Generator[Step, Trial, Comparison]:
        """Compare a finalist; its speed is `screened` if the budget leaves no time for pairs."""
        ratios: list[float] = []
        self._finalist_failures = 0
        for look in LOOKS:
            if self._spent_s + 2 * (look - len(ratios)) * self._trial_s > self.budget_s:
                break
            while len(ratios) < look:
                speed = yield from self._pair(settings, len(ratios))
                if speed is None:
                    return Comparison(settings, None, None, len(ratios))
                ratios.append(speed)
            interval = _interval(ratios)
            if interval and not interval.low <= 1 <= interval.high:
                break
        speed = math.exp(fmean(map(math.log, ratios))) if ratios else screened
        return Comparison(settings, speed, _interval(ratios), len(ratios))

    def _pair(self, settings: Settings, index: int) -> Generator[Step, Trial, float | None]:
        """Measure the shipped settings and `settings`; return the ratio of the speeds, None as `_speed`."""
        order = (_SHIPPED, settings) if index % 2 == 0 else (settings, _SHIPPED)
        speeds: dict[bool, float] = {}
        for one in order:
            note = f"pair {index + 1} of at most {LOOKS[-1]}: {'finalist' if one else 'shipped settings'}"
            speed = yield from self._speed(Step(one, note, self._first))
            if speed is None:
                return None
            speeds[bool(one)] = speed
        return speeds[True] / speeds[False]

    def _speed(self, step: Step) -> Generator[Step, Trial, float | None]:
        """Repeat a failed trial of `step`; return None if a finalist fails more than MAX_REPEATS times."""
        while (speed := score((yield from self._trial(step)))) is None:
            self._finalist_failures += bool(step.settings)
            if self._finalist_failures > MAX_REPEATS:
                return None
        return speed

    @property
    def _trial_s(self) -> float:
        return self._spent_s / self._count


def _interval(ratios: Sequence[float]) -> Interval | None:
    estimate = between_runs(ratios)
    confidence = 1 - (1 - CONFIDENCE) / (FINALISTS * len(LOOKS))
    return ratio(_ONE, estimate, confidence) if estimate else None
