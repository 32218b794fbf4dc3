"""Predicted samples and durations of runs, from earlier ones or from the target."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from harness_llm.config.load import issued, seconds
from harness_llm.config.request import Request, ScenarioPlan
from harness_llm.pipeline.live.run_progress import RunView
from harness_llm.runs.record import Run

_RATE = "samples_per_second"


@dataclass
class Forecast:
    """Predicts the runs of `request`.

    Attributes:
        earlier: runs on the same system, oldest first.
        rates: samples per second by scenario, of the runs of this command.
    """

    request: Request
    earlier: Sequence[Run]
    rates: dict[str, float] = field(default_factory=dict)

    def view(self, scenario: str, test: str) -> RunView:
        """The run of `test` before it starts."""
        request = self.request
        plan = next(plan for plan in request.scenarios if plan.scenario == scenario)
        audit = request.audit_samples(test)
        return RunView(
            name=f"{scenario} {test}",
            total=issued(plan.load, test, audit),
            predicted_s=seconds(plan.load, test, self._rate(plan), audit),
            limit=request.rules.latency_ms.get(scenario),
            min_duration_s=plan.load.min_duration_s if test == "performance" else None,
        )

    def learn(self, run: Run) -> None:
        """Predict the next runs of the scenario by the rate of `run`."""
        figures = run.record.prediction | run.record.metrics if run.record else {}
        if _RATE in figures:
            self.rates[run.run_key.scenario] = figures[_RATE]

    def _rate(self, plan: ScenarioPlan) -> float:
        """Samples per second of the newest run; the target without one."""
        same = (self.request.benchmark.name, plan.scenario)
        earlier = [
            run.record.metrics[_RATE]
            for run in self.earlier
            if run.record and _RATE in run.record.metrics and (run.run_key.benchmark, run.run_key.scenario) == same
        ]
        found = self.rates.get(plan.scenario) or (earlier[-1] if earlier else 0)
        return found or plan.load.target_qps or 1 / plan.load.target_latency_s
