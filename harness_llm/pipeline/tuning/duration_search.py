"""Search of an Offline or SingleStream target: the run is longer than min_duration, and no longer than needed. Pure.

The target is a hint: LoadGen computes the number of samples from it, in whole passes over the data set. The search
measures the throughput with probes, computes the fewest passes that last long enough, and confirms them.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from harness_llm.loadgen.early_stopping import FEWEST_QUERIES
from harness_llm.pipeline.tuning.search_steps import (
    COMPLETIONS,
    DIGITS,
    MAX_CONFIRMATIONS,
    MOST_DIGITS,
    Confirm,
    Done,
    Goal,
    Measurement,
    Probe,
    Step,
    rounded,
)

# Duration above min_duration: runs differ by about this share.
MARGIN = 0.02
_LARGEST = 1e7
# The first fills the batches a few times; the second one lasts longer, at the throughput of the first.
_PROBES = 2
# Most queries of a probe, relative to a full run.
_LONGEST = 0.5


def next_duration_trial(goal: Goal, trials: Sequence[Measurement]) -> Step:
    """Return the trial to make after `trials`, or the end of the search."""
    return _Search(goal, list(trials)).next()


@dataclass
class _Search:
    goal: Goal
    trials: list[Measurement]

    def next(self) -> Step:
        probes = [trial for trial in self._measured if not trial.full]
        if not self._throughput:
            return self._first()
        if self._confirmations:
            return self._after_confirmation()
        if len(probes) < _PROBES and (probe := self._probe()):
            return probe
        return self._confirm(self._passes(self._throughput))

    @property
    def _measured(self) -> list[Measurement]:
        return [trial for trial in self.trials if not trial.failed]

    @property
    def _confirmations(self) -> list[Measurement]:
        return [trial for trial in self._measured if trial.full]

    @property
    def _throughput(self) -> float:
        """Samples per second, by the newest trial."""
        return next((trial.throughput for trial in reversed(self._measured) if trial.throughput), 0.0)

    def _first(self) -> Step:
        """A probe at the target of user.conf; a run of full length if the budget leaves time for one of both only."""
        rate, queries, left_s = self.goal.first, self._queries(0.0), self.goal.left_s(self.trials)
        probe_s, full_s = queries / rate, self.goal.full_s(rate, rate)
        if full_s <= left_s < probe_s + full_s:
            return Confirm(rate)
        if left_s < probe_s:
            return self._done("the budget leaves no time for a probe at the target of user.conf")
        return Probe(rate, queries, predict=True)

    def _queries(self, rate: float) -> int:
        """Queries of a probe at `rate`, which is 0 if it is unknown."""
        scenario = self.goal.load.scenario
        batches = COMPLETIONS * self.goal.seats if scenario == "Offline" else 0
        wanted = max(self.goal.shortest_s * rate, batches, FEWEST_QUERIES[scenario])
        return math.ceil(min(wanted, _LONGEST * self._samples(self._passes(rate))))

    def _probe(self) -> Probe | None:
        """A probe longer than the first, if the budget allows it and a full run."""
        rate = self._throughput
        queries, full = self._queries(rate), self._samples(self._passes(rate))
        if queries <= self._queries(0.0) or self.goal.left_s(self.trials) < (queries + full) / rate:
            return None
        return Probe(rounded(rate), queries)

    def _samples(self, passes: int) -> int:
        return passes * self.goal.load.samples

    def _passes(self, rate: float) -> int:
        """The fewest passes over the data set that last longer than min_duration at `rate`, and that LoadGen allows."""
        fewest = self.goal.full_queries(1 / _LARGEST) // self.goal.load.samples
        needed_s = self.goal.load.min_duration_s * (1 + MARGIN)
        return max(math.ceil(needed_s * rate / self.goal.load.samples), fewest)

    def _confirm(self, passes: int) -> Step:
        if self.goal.left_s(self.trials) < self._samples(passes) / self._throughput:
            return self._done("the budget leaves no time for a run of full length")
        return Confirm(target_of(self.goal, passes, self._throughput))

    def _after_confirmation(self) -> Step:
        last = self._confirmations[-1]
        if not last.valid and last.duration_s >= self.goal.load.min_duration_s:
            return self._done("a run of full length is INVALID, and not because it was too short")
        made = self._made(last)
        wanted = self._passes(self._samples(made) / last.duration_s) if last.duration_s else made
        too_few = max((self._made(run) for run in self._confirmations if not run.valid), default=0)
        enough = min((self._made(run) for run in self._confirmations if run.valid), default=math.inf)
        passes = max(wanted, too_few + 1)
        if passes >= enough:
            return self._done()
        if len(self._confirmations) >= MAX_CONFIRMATIONS:
            return self._done(f"{len(self._confirmations)} runs of full length")
        return self._confirm(passes)

    def _made(self, run: Measurement) -> int:
        """Passes over the data set of a run of full length."""
        return self.goal.full_queries(run.target) // self.goal.load.samples

    def _done(self, reason: str = "") -> Done:
        valid = [trial.target for trial in self._confirmations if trial.valid]
        if not valid:
            return Done(None, 0.0, 0.0, reason)
        return Done(min(valid), *bounds(self.goal, self.goal.full_queries(min(valid))))


def bounds(goal: Goal, samples: int) -> tuple[float, float]:
    """Return the lowest and the highest target with which LoadGen issues `samples`."""
    return _first_target(goal, samples), _first_target(goal, samples + 1)


def target_of(goal: Goal, passes: int, rate: float) -> float:
    """Return the target nearest to `rate` with which LoadGen makes `passes` over the data set."""
    low, high = bounds(goal, passes * goal.load.samples)
    inside = min(max(rate, low), high)
    middle = math.sqrt(low * high)
    short = [goal.with_digits(target) for target in (inside, inside * 0.999, inside * 1.001)]
    near = [*short, *(goal.with_digits(middle, digits) for digits in range(DIGITS, MOST_DIGITS + 1))]
    return next(target for target in near if goal.full_queries(target) == passes * goal.load.samples)


def _first_target(goal: Goal, samples: int) -> float:
    """Return the lowest target with which LoadGen issues at least `samples`."""
    low, high = 1 / _LARGEST, _LARGEST
    while high / low > 1 + 1e-9:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if goal.full_queries(middle) >= samples else (middle, high)
    return high
