"""Outcomes that run.json states: failed runs, missed gates, LoadGen's errors."""

from collections.abc import Iterator

from harness_llm.analysis.diagnosis.causes import Cause
from harness_llm.analysis.diagnosis.finding import Finding
from harness_llm.analysis.diagnosis.run_data import RunData
from harness_llm.runs.record import State

_LOADGEN_ERROR = "LoadGen error: "
_PERFORMANCE = "performance"


def failed_run(data: RunData) -> Iterator[Finding]:
    """A run that ended without a result."""
    if data.record.state is not State.FAILED:
        return
    reasons = data.record.reasons or ["no reason recorded"]
    yield Finding(
        Cause.RUN_FAILED,
        reasons[0],
        {f"reason {number}": reason for number, reason in enumerate(reasons, start=1)},
        "remove the reason, then run the same command again: docs/troubleshooting.md, Failed runs",
        loss=1.0,
        look=(str(data.run.path / "loadgen.log"),),
    )


def not_judged(data: RunData) -> Iterator[Finding]:
    """A run whose log is complete and not judged."""
    if data.record.state is not State.MEASURED:
        return
    yield Finding(
        Cause.NOT_JUDGED,
        data.run.reasons[0],
        {f"reason {number}": reason for number, reason in enumerate(data.run.reasons, start=1)},
        "remove the reason; the next submit judges the log again: docs/troubleshooting.md, Failed scoring",
        loss=1.0,
        look=(str(data.run.path),),
    )


def missed_gates(data: RunData) -> Iterator[Finding]:
    """An accuracy or compliance run that is INVALID."""
    record = data.record
    reasons = [line for line in record.reasons if not line.startswith(_LOADGEN_ERROR)]
    if record.state is not State.INVALID or record.test == _PERFORMANCE or not reasons:
        return
    yield Finding(
        Cause.GATE_MISSED,
        reasons[0],
        {f"gate {number}": reason for number, reason in enumerate(reasons, start=1)},
        "docs/troubleshooting.md, Wrong accuracy; an accuracy below its gate: another quantization recipe",
        loss=1.0,
        look=(str(data.run.path),),
    )


def loadgen_errors(data: RunData) -> Iterator[Finding]:
    """Errors in LoadGen's log."""
    errors = data.log.errors if data.log else []
    if errors:
        yield Finding(
            Cause.LOADGEN_ERROR,
            errors[0],
            {f"error {number}": error for number, error in enumerate(errors[:10], start=1)},
            "remove the reason; LoadGen makes a run with errors INVALID",
            loss=1.0,
            look=(str(data.run.path / "mlperf_log_detail.txt"),),
        )
