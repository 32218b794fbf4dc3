"""Judgement of a run with a complete log: state, reasons and metrics in run.json. It needs no replica."""

from pathlib import Path
from typing import Any

from harness_llm.config.request import Request, ScenarioPlan
from harness_llm.errors import HarnessError, RunFailed
from harness_llm.evaluate.run_result import RunResult, Scorer, gather, judge_compliance, judge_performance
from harness_llm.loadgen.logs import ACCURACY, DamagedLog
from harness_llm.runs.fingerprint import source_digest
from harness_llm.runs.record import Run, State, finish, lock_run


class SourceChanged(RunFailed):
    """The source of harness_llm is not that of the run's fingerprint."""


_FINAL = (DamagedLog, SourceChanged)


def judge_run(run: Run, request: Request, plan: ScenarioPlan, scorer: Scorer) -> Run:
    """Judge a run, and write its record; a state other than MEASURED stays.

    Raises:
        DamagedLog, SourceChanged: the log can never be judged, and a MEASURED run is FAILED.
        HarnessError: the scoring failed: a MEASURED run stays MEASURED, and can be judged again.
    """
    record = run.record
    if record is None:
        raise ValueError(f"{run.path} has no record")
    is_measured = record.state is State.MEASURED
    reasons = [] if is_measured else record.reasons
    with lock_run(run.path):
        try:
            result = _result(run.path, run.run_key.test, request, plan, scorer)
            require_source(record.fingerprint)
        except HarnessError as error:
            state = State.FAILED if is_measured and isinstance(error, _FINAL) else record.state
            finish(run.path, record.model_copy(update={"state": state, "reasons": [error.line, *reasons]}))
            raise
        changes = {
            "state": result.state if is_measured else record.state,
            "reasons": reasons + result.reasons,
            "notes": result.notes + record.notes,
            "metrics": result.metrics | record.metrics,
            "prediction": _with_error(record.prediction, result, plan.load.scenario),
        }
        return finish(run.path, record.model_copy(update=changes))


def judged_by(request: Request, plan: ScenarioPlan) -> str:  # noqa: ARG001
    """Digest of the rules and of the source that judge a run of `plan` now."""
    return ""


def require_source(fingerprint: dict[str, Any]) -> None:
    """Refuse a run during which the source changed: other processes import the package again.

    Raises:
        SourceChanged: the source is not that of the fingerprint.
    """
    if source_digest() != fingerprint["harness_llm"]:
        raise SourceChanged("the source of harness_llm changed during the run", hint="run it again")


def _result(path: Path, test: str, request: Request, plan: ScenarioPlan, scorer: Scorer) -> RunResult:
    if test == "performance":
        return judge_performance(path)
    samples, enforce = request.samples(test), request.enforce_accuracy
    if test == "accuracy":
        return scorer.judge(path, samples, enforce=enforce)
    rules, log = request.round.compliance[test], path / ACCURACY
    evidence = gather(log, plan.scenario, request.benchmark, rules, lambda: scorer.score(log, test, samples))
    return judge_compliance(path, test, rules, evidence, issued=request.audit_samples(test), enforce=enforce)


def _with_error(prediction: dict[str, float], result: RunResult, scenario: str) -> dict[str, float]:
    """`prediction` with its relative error; not for Server, whose duration depends on the arrivals."""
    duration_s = result.metrics.get("duration_s")
    if not prediction or not duration_s or scenario == "Server":
        return prediction
    return prediction | {"error": duration_s / prediction["run_s"] - 1}
