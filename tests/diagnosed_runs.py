"""The recorded runs in tests/data/diagnosed, which record_diagnosed_runs.py made, and their causes."""

from pathlib import Path

from harness_llm.analysis.diagnosis.causes import Cause
from harness_llm.analysis.diagnosis.diagnosis import Diagnosis

RECORDED = Path(__file__).with_name("data") / "diagnosed"


def path_of(case: str) -> Path:
    [lock] = (RECORDED / case).rglob("run.lock")
    return lock.parent


def tree(diagnosis: Diagnosis) -> dict[Cause, set[Cause]]:
    """The findings in order, with the causes that explain each."""
    return {finding.cause: set(finding.because_of) for finding in diagnosis.findings}
