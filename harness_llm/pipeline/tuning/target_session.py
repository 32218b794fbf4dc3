"""Tuning session of a LoadGen target: makes the trials that the search asks for, and keeps them."""

import datetime as dt
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness_llm.config.assets import Assets
from harness_llm.config.plan import targets_path
from harness_llm.config.request import ScenarioPlan
from harness_llm.config.user_conf import UserConf
from harness_llm.errors import RunFailed
from harness_llm.pipeline.run_facts import run_facts
from harness_llm.pipeline.submit import Pipeline
from harness_llm.pipeline.tuning.duration_search import next_duration_trial
from harness_llm.pipeline.tuning.search_steps import Confirm, Done, Goal, Measurement, Probe
from harness_llm.pipeline.tuning.target_report import describe_result, describe_step, describe_trial
from harness_llm.pipeline.tuning.target_search import next_target_trial
from harness_llm.pipeline.tuning.trial_figures import loadgen_ended, margins, measure
from harness_llm.pipeline.tuning.trial_runs import TrialRuns, seats
from harness_llm.runs.record import Run, digest, load_run
from harness_llm.runs.trial_store import Session, Trial, TrialStore, What

_TEST = "performance"
# Failed trials of one command in a row after which it ends.
_MAX_FAILURES = 3


def target_session(pipeline: Pipeline, plan: ScenarioPlan, assets: Assets, what: What, command: str) -> Session:
    """The session that measures `plan` now; only the target of user.conf may differ."""
    request = pipeline.request
    facts = run_facts(request, plan, assets, _TEST)
    values = plan.confs[_TEST].values
    others = UserConf({name: value for name, value in values.items() if str(name) != plan.target_key})
    facts["user_conf"] = others.render()
    return Session(
        benchmark=request.benchmark.name,
        scenario=plan.scenario,
        system_name=request.options.system_name,
        gpu=request.options.gpu,
        what=what,
        fingerprint=digest({"run_facts": facts, "fingerprint": pipeline.fingerprint(plan, assets)}),
        command=command,
        started=dt.datetime.now(dt.UTC),
    )


@dataclass
class TargetSearch:
    """Searches the target of `plan` and keeps each trial in `store`; continues with the trials in it.

    Attributes:
        goal: with the budget that is left for this search.
    """

    pipeline: Pipeline
    plan: ScenarioPlan
    runs: TrialRuns
    store: TrialStore
    goal: Goal
    measurements: list[Measurement] = field(default_factory=list)

    def run(self) -> Done:
        """Make trials until the search ends.

        Raises:
            RunFailed: the processes of several trials in a row failed.
            HarnessError: a trial cannot be made, for another reason than a failed process.
        """
        say = self.pipeline.panel.say
        self.measurements = [self._kept(trial) for trial in self.store.trials if trial.kind != "engine"]
        if self.measurements:
            say(f"continues with {len(self.measurements)} trials of {self.store.folder}")
        following = next_target_trial if self.plan.load.scenario == "Server" else next_duration_trial
        failures = 0
        try:
            while not isinstance(step := following(self.goal, self.measurements), Done):
                say(describe_step(self.goal, self.measurements, step))
                self.measurements.append(self._make(step))
                failures = failures + 1 if self.measurements[-1].failed else 0
                self._check_failures(failures)
            return step
        finally:
            self.runs.stop()

    def _check_failures(self, in_a_row: int) -> None:
        if in_a_row == _MAX_FAILURES:
            last = self.store.trials[-1]
            raise RunFailed(
                f"{in_a_row} trials in a row failed",
                where=last.run or str(self.store.folder),
                found=last.reason,
                hint="after removing the cause, the same command continues the session",
            )

    def _make(self, step: Probe | Confirm) -> Measurement:
        began, full, run = time.monotonic(), isinstance(step, Confirm), None
        try:
            run = self.runs.make(step)
        except RunFailed as error:
            seconds, reason = time.monotonic() - began, error.line
            measured = Measurement(step.target, full, valid=False, seconds=seconds, failed=True)
        else:
            measured = self._measure(run, step.target, full=full, seconds=time.monotonic() - began)
            reason = "" if full and measured.valid else reason_of(run, measured)
        trial = self._trial(step, measured, run, reason)
        self.store.append(trial)
        self.pipeline.panel.say(describe_trial(trial, measured))
        return measured

    def _measure(self, run: Run, target: float, *, full: bool, seconds: float) -> Measurement:
        return measure(run, self.goal, self.pipeline.request.rules, target, full=full, seconds=seconds)

    def _kept(self, trial: Trial) -> Measurement:
        """The measurements of a kept trial, read from its run directory."""
        full, target = trial.kind == "confirmation", trial.target_qps or 0.0
        if trial.run is None or not Path(trial.run).is_dir():
            return Measurement(target, full, valid=False, seconds=trial.seconds, failed=True)
        return self._measure(load_run(Path(trial.run)), target, full=full, seconds=trial.seconds)

    def _trial(self, step: Probe | Confirm, measured: Measurement, run: Run | None, reason: str) -> Trial:
        metrics = run.record.metrics if run and run.record else {}
        ttft, tpot = margins(run, self.pipeline.request.rules, self.plan.scenario)
        return Trial(
            number=self.store.next_number,
            kind="confirmation" if isinstance(step, Confirm) else "probe",
            scenario=self.plan.scenario,
            target_qps=step.target,
            state="FAILED" if measured.failed else "VALID" if measured.valid else "INVALID",
            seconds=round(measured.seconds, 1),
            queries=step.queries if isinstance(step, Probe) else self.goal.full_queries(step.target),
            throughput=metrics.get("samples_per_second"),
            ttft_margin=ttft,
            tpot_margin=tpot,
            reason=reason,
            run=str(run.path) if run else None,
        )


def reason_of(run: Run, measured: Measurement) -> str:
    """Why a trial is not VALID; LoadGen's verdict on a probe is not one: early stopping may need more queries."""
    return "; ".join(run.reasons) if measured.full or measured.failed or not loadgen_ended(run) else ""


def tune_target(
    pipeline: Pipeline, plan: ScenarioPlan, assets: Assets, store: TrialStore, budget_s: float
) -> tuple[str, dict[str, Any]]:
    """Search the target of `plan`; return the result as text and as values, which are empty without a VALID target.

    Raises:
        HarnessError: a trial cannot be made.
    """
    goal = Goal(plan.load, budget_s, seats(plan))
    search = TargetSearch(pipeline, plan, TrialRuns(pipeline, plan, assets, store.folder), store, goal)
    done = search.run()
    text = describe_result(goal, search.measurements, done, plan, str(targets_path(pipeline.request)))
    values = {"target_key": plan.target_key, "target": done.target, "low": done.low, "high": done.high, "text": text}
    return text, values if done.target is not None else {}
