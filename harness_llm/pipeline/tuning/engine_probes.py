"""Trials of engine settings: short runs on a replica pool that is started again only where settings need it."""

import math
import time
from dataclasses import dataclass
from typing import Protocol

from msgspec.structs import replace as changed

from harness_llm.config.request import Request, ScenarioPlan
from harness_llm.config.rules import BenchmarkRules
from harness_llm.errors import HarnessError
from harness_llm.loadgen.early_stopping import FEWEST_QUERIES
from harness_llm.pipeline.tuning.engine_search import Step
from harness_llm.pipeline.tuning.search_space import SearchSpace, Settings
from harness_llm.pipeline.tuning.search_steps import Goal, Probe
from harness_llm.pipeline.tuning.settings_check import with_settings
from harness_llm.pipeline.tuning.trial_figures import margins
from harness_llm.pipeline.tuning.trial_runs import TrialRuns, seats
from harness_llm.runs.record import Run, State
from harness_llm.runs.trial_store import Trial

# Probes of profiles with very short runs are longer, because noise hides the differences.
_SHORTEST_S = 10.0
# Batches of an Offline run: the last one drains, which takes a larger share of shorter runs.
_BATCHES = 4


class Probes(Protocol):
    """Makes trials."""

    def measure(self, number: int, step: Step) -> Trial:
        """Make the trial of `step`; a failure of an engine is a result."""


@dataclass
class PoolProbes:
    """Trials on real engines.

    Attributes:
        request: with the shipped settings.
        runs: of the same scenario.
    """

    request: Request
    runs: TrialRuns
    space: SearchSpace
    _settings: Settings | None = None

    def measure(self, number: int, step: Step) -> Trial:
        """Make the trial of `step`; a failure of an engine is a result, after which the next trial starts a new one."""
        began, scenario = time.monotonic(), self.runs.plan.scenario
        planned = with_settings(self.request, scenario, step.settings)
        probe = probe_of(planned.scenarios[0], step.samples_per_s)
        trial = Trial(
            number=number,
            kind="engine",
            scenario=scenario,
            settings=dict(step.settings),
            target_qps=probe.target,
            queries=probe.queries,
            state="FAILED",
            seconds=0.0,
        )
        try:
            self._change(planned, step.settings)
            trial = judged(trial, self.runs.make(probe), self.request.rules)
        except HarnessError as error:
            self.runs.stop()
            trial = changed(trial, reason=error.line)
        return changed(trial, seconds=round(time.monotonic() - began, 1))

    def _change(self, planned: Request, settings: Settings) -> None:
        restart = self._settings is None or self.space.needs_restart(self._settings, settings)
        self._settings = settings
        self.runs.change(planned.options, planned.scenarios[0], restart=restart)


def probe_of(plan: ScenarioPlan, samples_per_s: float | None) -> Probe:
    """The probe of `plan`.

    Args:
        samples_per_s: throughput; None if it is unknown. Server has the target's.
    """
    load = plan.load
    goal = Goal(load, seats=seats(plan))
    rate = goal.first if load.scenario == "Server" else samples_per_s or 0.0
    batches = _BATCHES * goal.seats if load.scenario == "Offline" else 0
    queries = max(math.ceil(rate * max(goal.shortest_s, _SHORTEST_S)), batches, FEWEST_QUERIES[load.scenario])
    return Probe(goal.first, queries)


def judged(trial: Trial, run: Run, rules: BenchmarkRules) -> Trial:
    """`trial` with the figures of its run; a run in which a replica failed is FAILED."""
    figures = run.record.metrics if run.record else {}
    ttft, tpot = margins(run, rules, trial.scenario)
    state = run.state.value if run.state in {State.VALID, State.INVALID} else "FAILED"
    return changed(
        trial,
        state=state,
        throughput=figures.get("samples_per_second"),
        ttft_margin=ttft,
        tpot_margin=tpot,
        reason="" if run.state is State.VALID else "; ".join(run.reasons),
        run=str(run.path),
    )
