"""Judgement of a run with a complete log: state, reasons and metrics in run.json. It needs no replica."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from harness_llm.config.request import Request, ScenarioPlan
from harness_llm.errors import HarnessError, RunFailed
from harness_llm.evaluate.log_digests import changed_logs, log_digests
from harness_llm.evaluate.run_result import RunResult, Scorer, gather, judge_compliance, judge_performance
from harness_llm.loadgen.logs import ACCURACY, DamagedLog
from harness_llm.protocol.kv_cache import METRICS
from harness_llm.runs.fingerprint import SOURCE
from harness_llm.runs.program_source import JUDGING, MEASURING
from harness_llm.runs.record import Run, RunRecord, State, digest, finish, lock_run

# States that a judgement decides on; others stay.
_JUDGED = (State.MEASURED, State.VALID, State.INVALID)


class SourceChanged(RunFailed):
    """The source of harness_llm changed while the command ran."""


def judged_by(request: Request, plan: ScenarioPlan, reference: Mapping[str, float]) -> str:
    """Digest of everything besides its log that a judgement of a run depends on: judging source, gates and bounds.

    Args:
        reference: scores of the reference model, from `Scorer`; empty if the round has the gates.
    """
    gates = {name: {"gates": rules.gates, "limits": rules.limits} for name, rules in request.variants.items()}
    tests = {name: request.round.compliance[name].model_dump(mode="json") for name in request.rules.compliance}
    return digest(
        {
            "source": JUDGING.at_start,
            "scenario": plan.scenario,
            "gates": gates,
            "reference": dict(reference),
            "accuracy": request.benchmark.accuracy.model_dump(mode="json", exclude_defaults=True),
            "enforced": request.enforce_accuracy,
            "compliance": tests,
        }
    )


def judge_run(run: Run, request: Request, plan: ScenarioPlan, scorer: Scorer) -> Run:
    """Judge a run, also again, and write its record; the states DEGRADED and PROFILED stay.

    Raises:
        DamagedLog: the log can never be judged; the run is FAILED.
        HarnessError: the scoring failed, or the judging source changed. A MEASURED run stays MEASURED, an earlier
            judgement stays, and the run can be judged again.
    """
    record = run.record
    if record is None:
        raise ValueError(f"{run.path} has no record")
    with lock_run(run.path):
        try:
            _require_logs(run)
            result = _result(run.path, run.run_key.test, request, plan, scorer)
            _require_judging_source()
        except HarnessError as error:
            _record_failure(run.path, record, error)
            raise
        is_judged = record.state in _JUDGED
        changes = {
            "state": result.state if is_judged else record.state,
            "reasons": ([] if is_judged else record.reasons) + result.reasons,
            "judged_notes": result.notes,
            "judged_by": judged_by(request, plan, scorer.reference),
            "logs": log_digests(run.path),
            "metrics": result.metrics | {name: record.metrics[name] for name in METRICS if name in record.metrics},
            "prediction": _with_error(record.prediction, result, plan.load.scenario),
        }
        return finish(run.path, record.model_copy(update=changes))


def _require_logs(run: Run) -> None:
    """Raise DamagedLog if a log has changed since an earlier judgement."""
    if changed := changed_logs(run):
        raise DamagedLog("a log has changed since its judgement", where=str(run.path), found=", ".join(changed))


def _record_failure(path: Path, record: RunRecord, error: HarnessError) -> None:
    """Write why a run could not be judged, unless an earlier judgement stays."""
    if isinstance(error, DamagedLog) and record.state in _JUDGED:
        finish(path, record.model_copy(update={"state": State.FAILED, "reasons": [error.line]}))
    elif record.state is State.MEASURED:
        finish(path, record.model_copy(update={"reasons": [error.line]}))
    elif record.state not in _JUDGED:
        finish(path, record.model_copy(update={"reasons": [error.line, *record.reasons]}))


def require_measuring_source(fingerprint: dict[str, Any]) -> None:
    """Refuse a run during which the source changed: other processes import the package again.

    Raises:
        SourceChanged: the measuring source is not that of the fingerprint.
    """
    if MEASURING.digest() != fingerprint[SOURCE]:
        raise SourceChanged(
            "the source of harness_llm that measures changed after this command had started",
            hint="run the same command again",
        )


def _require_judging_source() -> None:
    """Raise SourceChanged if the modules that this process has loaded are not those of the digest in `judged_by`."""
    if JUDGING.digest() != JUDGING.at_start:
        raise SourceChanged(
            "the source of harness_llm that judges changed after this command had started",
            hint="run the same command again: it judges the complete log",
        )


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
