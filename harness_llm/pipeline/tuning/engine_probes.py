"""Short runs that measure engine settings on one replica pool, which is started again only where settings need it."""

import math
import time
from dataclasses import dataclass, replace
from typing import Protocol

from msgspec.structs import replace as changed

from harness_llm.config.assets import Assets
from harness_llm.config.load import issued
from harness_llm.config.profile import Profile
from harness_llm.config.request import Request, ScenarioPlan
from harness_llm.config.rules import LatencyLimit
from harness_llm.errors import HarnessError
from harness_llm.pipeline.run import ScenarioContext
from harness_llm.pipeline.scenario_runs import later
from harness_llm.pipeline.submit import Pipeline
from harness_llm.pipeline.tuning.engine_search import Step
from harness_llm.pipeline.tuning.search_space import SearchSpace, Settings
from harness_llm.pipeline.tuning.settings_check import with_settings
from harness_llm.runs.record import Run, State
from harness_llm.runs.trial_store import Trial

PROFILE = "tune"
"""Profile of the runs: its name and sizes keep them out of results."""
# Length of a probe of a run of LoadGen's 600 s; shorter runs have proportionally shorter probes.
_PROBE_S, _FULL_S, _SHORTEST_S = 60.0, 600.0, 10.0
# Queries that LoadGen's early stopping needs for a verdict at the 99th percentile, and at SingleStream's 90th.
_FEWEST = {"Offline": 1, "Server": 662, "SingleStream": 64}
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
        pipeline: with the shipped settings.
    """

    pipeline: Pipeline
    scenario: str
    assets: Assets
    space: SearchSpace
    _context: ScenarioContext | None = None
    _settings: Settings | None = None

    def measure(self, number: int, step: Step) -> Trial:
        """Make the trial of `step`; a failure of an engine is a result, after which the next trial starts a new one."""
        began = time.monotonic()
        request = self._planned(step)
        [plan] = request.scenarios
        trial = Trial(
            number=number,
            kind="engine",
            scenario=self.scenario,
            settings=dict(step.settings),
            state="FAILED",
            seconds=0.0,
            target_qps=plan.load.target_qps or None,
        )
        try:
            pipeline = replace(self.pipeline, request=request)
            run = pipeline.execute(self._ready(pipeline, step), "performance")
            limit = request.rules.latency_ms.get(self.scenario)
            trial = judged(trial, run, limit, issued(plan.load, "performance"))
        except HarnessError as error:
            self.stop()
            trial = changed(trial, reason=error.line)
        return changed(trial, seconds=time.monotonic() - began)

    def stop(self) -> None:
        """Stop the replica pool."""
        if self._context:
            self._context.pool.stop()
        self._context = None

    def _planned(self, step: Step) -> Request:
        """A request of one short run with the settings of `step`, which starts now."""
        shipped = later(self.pipeline.request)
        self.pipeline = replace(self.pipeline, request=shipped)
        plan = next(plan for plan in shipped.scenarios if plan.scenario == self.scenario)
        short = replace(shipped, profile=probe_profile(shipped.profile, plan, step.samples_per_s))
        return with_settings(short, self.scenario, step.settings)

    def _ready(self, pipeline: Pipeline, step: Step) -> ScenarioContext:
        """The context of the run; its engines are started unless they run with the settings that they need."""
        [plan] = pipeline.request.scenarios
        if self._settings is None or self.space.needs_restart(self._settings, step.settings):
            self.stop()
        self._context = (
            replace(
                self._context, request=pipeline.request, plan=plan, fingerprint=pipeline.fingerprint(plan, self.assets)
            )
            if self._context
            else pipeline.start_context(pipeline.request, plan, self.assets)
        )
        self._settings = step.settings
        return self._context


def probe_profile(profile: Profile, plan: ScenarioPlan, samples_per_s: float | None) -> Profile:
    """The profile of a probe instead of runs with `profile`.

    Args:
        plan: of the shipped settings with `profile`.
        samples_per_s: throughput; None if it is unknown.
    """
    load = plan.load
    seconds = max(_PROBE_S * min(load.min_duration_s / _FULL_S, 1), _SHORTEST_S)
    rate = load.target_qps if load.scenario == "Server" else samples_per_s or 0
    batches = _BATCHES * plan.config.in_flight_limit.batch * plan.config.replicas if load.scenario == "Offline" else 0
    return Profile(
        name=PROFILE,
        samples=max(math.ceil(rate * seconds), batches, _FEWEST[load.scenario]),
        min_duration_ms=round(seconds * 1000) if load.scenario == "Server" else 0,
        enforce_accuracy=False,
        probe_s=0,
        packaged=False,
        rehearsed=profile.rehearsed,
    )


def judged(trial: Trial, run: Run, limit: LatencyLimit | None, queries: int) -> Trial:
    """`trial` with the figures of its run; a run in which a replica failed is FAILED."""
    figures = run.record.metrics if run.record else {}
    margins = {}
    for name in ("ttft", "tpot"):
        latency = figures.get(f"p99_{name}_ms")
        margins[name] = 1 - latency / getattr(limit, name) if limit and latency is not None else None
    state = run.state.value if run.state in (State.VALID, State.INVALID) else "FAILED"
    return changed(
        trial,
        state=state,
        queries=queries,
        throughput=figures.get("samples_per_second"),
        ttft_margin=margins["ttft"],
        tpot_margin=margins["tpot"],
        reason="" if run.state is State.VALID else "; ".join(run.reasons),
        run=str(run.path),
    )
