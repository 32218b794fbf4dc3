"""Judgement of a run with a complete log: state, reasons and metrics in run.json. It needs no replica."""

from pathlib import Path
from typing import Any

from harness_llm.config.assets import Assets
from harness_llm.config.benchmark import Sampling
from harness_llm.config.request import Request, ScenarioPlan
from harness_llm.errors import ConfigError, HarnessError, RunFailed
from harness_llm.evaluate.run_result import RunResult, Scorer, gather, judge_compliance, judge_performance
from harness_llm.loadgen.logs import ACCURACY
from harness_llm.protocol.token_store import open_store
from harness_llm.runs.fingerprint import source_digest
from harness_llm.runs.record import Run, State, finish, lock_run


def judge_run(run: Run, request: Request, plan: ScenarioPlan, scorer: Scorer) -> Run:
    """Judge a run, and write its record; a state other than MEASURED stays.

    Raises:
        ConfigError: the log is not complete, and the run is FAILED.
        HarnessError: the scoring failed: the run stays MEASURED, and can be judged again.
    """
    record = run.record
    if record is None:
        raise ValueError(f"{run.path} has no record")
    reasons = [] if record.state is State.MEASURED else record.reasons
    with lock_run(run.path):
        try:
            result = _result(run.path, run.run_key.test, request, plan, scorer)
            require_source(record.fingerprint)
        except HarnessError as error:
            state = State.FAILED if isinstance(error, ConfigError) else record.state
            finish(run.path, record.model_copy(update={"state": state, "reasons": [error.line, *reasons]}))
            raise
        changes = {
            "state": result.state if record.state is State.MEASURED else record.state,
            "reasons": reasons + result.reasons,
            "notes": result.notes + record.notes,
            "metrics": result.metrics | record.metrics,
            "prediction": _with_error(record.prediction, result, plan.load.scenario),
        }
        return finish(run.path, record.model_copy(update=changes))


def require_source(fingerprint: dict[str, Any]) -> None:
    """Other processes import the package again: the fingerprint is wrong if the source changed during the run."""
    if source_digest() != fingerprint["harness_llm"]:
        raise RunFailed("the source of harness_llm changed during the run", hint="run it again")


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


def sampling_of(request: Request, plan: ScenarioPlan, test: str) -> Sampling:
    """The sampling of `test`, with the settings of --set."""
    return plan.config.sampling.changed(request.benchmark.sampling_of.get(test, {}))


def run_facts(request: Request, plan: ScenarioPlan, assets: Assets, test: str) -> dict[str, Any]:
    """Data set, sampling, user.conf and audit settings of a run of `test`."""
    audit = request.round.compliance.get(test)
    return {
        "dataset": open_store(assets.store(test)).digest,
        "samples": request.samples(test),
        "profile": request.profile.model_dump(mode="json"),
        "accuracy": request.benchmark.accuracy.model_dump(mode="json"),
        "sampling": sampling_of(request, plan, test).model_dump(mode="json"),
        "violations": plan.violations,
        "user_conf": plan.confs[test].render(),
        "audit": audit.audit if audit else {},
    }
