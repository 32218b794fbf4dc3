"""Runs of a tuning session: short ones and ones of full length, on a warm replica pool. Never packaged.

Short runs draw samples at random from the whole data set, so that their number is free. The runs of a submission cover
the data set in whole passes; runs of full length do so too.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from harness_llm.config.assets import Assets
from harness_llm.config.load import issued
from harness_llm.config.options import Options
from harness_llm.config.request import Request, ScenarioPlan
from harness_llm.errors import RunFailed
from harness_llm.pipeline.live.run_progress import RunView
from harness_llm.pipeline.run import ScenarioContext, execute_run
from harness_llm.pipeline.scenario_runs import later
from harness_llm.pipeline.submit import Pipeline
from harness_llm.pipeline.tuning.saturated_probe import SaturatedProbe
from harness_llm.pipeline.tuning.search_steps import Confirm, Probe, conf_value
from harness_llm.runs.record import Run

_TEST = "performance"
# Limit of the engine's probe where the profile has none.
_PREDICT_S = 45.0
_SHORTEST_MS = 1


@dataclass
class TrialRuns:
    """Makes the runs of one scenario below `folder`; the replica pool is started for the first one and after a failure.

    Attributes:
        plan: of a full run; `change` replaces it.
    """

    pipeline: Pipeline
    plan: ScenarioPlan
    assets: Assets
    folder: Path
    _context: ScenarioContext | None = None
    _request: Request = field(init=False)

    def __post_init__(self) -> None:
        self._request = replace(self.pipeline.request, runs=self.folder)

    def make(self, step: Probe | Confirm) -> Run:
        """Make the run of `step`.

        Raises:
            RunFailed: a process failed; the next run starts a new replica pool.
            HarnessError: the run cannot be made.
        """
        self._request = later(self._request)
        try:
            return self._execute(step)
        except RunFailed:
            self.stop()
            raise

    def change(self, options: Options, plan: ScenarioPlan, *, restart: bool) -> None:
        """Make the next runs with `plan`, which is of `options`; on a new replica pool if `restart`."""
        if restart:
            self.stop()
        self._request, self.plan = replace(self._request, options=options), plan
        if self._context:
            self._context = replace(self._context, fingerprint=self.pipeline.fingerprint(plan, self.assets))

    def stop(self) -> None:
        """Stop the replica pool."""
        if self._context:
            self._context.pool.stop()
        self._context = None

    def _execute(self, step: Probe | Confirm) -> Run:
        panel = self.pipeline.panel
        self._context = self._context or self.pipeline.start_context(self._request, self.plan, self.assets)
        plan = probe_plan(self.plan, step) if isinstance(step, Probe) else with_target(self.plan, step.target)
        context = replace(self._context, plan=plan, request=_with_prediction(self._request, step))
        total = issued(plan.load, _TEST)
        limit = self._request.rules.latency_ms.get(plan.scenario)
        try:
            context.pool.await_restarts(panel.say, panel.starting)
            panel.begin(RunView(f"{plan.scenario} {_kind(step)}", total, total / step.target, limit))
            whole = isinstance(step, Confirm) or step.whole
            return execute_run(context, _TEST, panel if whole else SaturatedProbe(panel, total, seats(plan)))
        finally:
            panel.end()


def seats(plan: ScenarioPlan) -> int:
    """Return how many queries the replicas run at once."""
    return plan.config.in_flight_limit.batch * plan.config.replicas


def _kind(step: Probe | Confirm) -> str:
    return "probe" if isinstance(step, Probe) else "confirmation"


def _with_prediction(request: Request, step: Probe | Confirm) -> Request:
    """`request` with the engine's probe only if `step` asks for it: it takes up to a minute."""
    limit_s = (request.profile.probe_s or _PREDICT_S) if isinstance(step, Probe) and step.predict else 0.0
    return replace(request, profile=request.profile.model_copy(update={"probe_s": limit_s}))


def probe_plan(plan: ScenarioPlan, step: Probe) -> ScenarioPlan:
    """Return `plan` with the load of a short run of `step.queries`."""
    duration_ms = int(1000 * step.queries / step.target) if plan.load.scenario == "Server" else _SHORTEST_MS
    values = {
        "min_duration": duration_ms,
        "min_query_count": step.queries,
        "sample_concatenate_permutation": 0,
    }
    load = replace(plan.load, samples=step.queries, min_duration_s=duration_ms / 1000, min_query_count=step.queries)
    return with_target(replace(plan, load=load), step.target, values)


def with_target(plan: ScenarioPlan, target: float, values: Mapping[str, int | float] = {}) -> ScenarioPlan:
    """Return `plan` with another target, and `values` of user.conf."""
    load = plan.load
    own = "target_latency" if load.scenario == "SingleStream" else "target_qps"
    value = conf_value(load.scenario, target)
    conf = plan.confs[_TEST].for_run(plan.loadgen_model, load.scenario, {own: value, **values})
    load = replace(load, target_qps=target, target_latency_s=value / 1000 if own == "target_latency" else 1 / target)
    return replace(plan, confs={**plan.confs, _TEST: conf}, load=load)
