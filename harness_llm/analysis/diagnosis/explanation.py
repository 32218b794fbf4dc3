"""Explanation of a run that is not VALID, in a few lines, at its end."""

from harness_llm.analysis.diagnosis.diagnosis import diagnose
from harness_llm.analysis.diagnosis.diagnosis_report import brief
from harness_llm.analysis.diagnosis.run_data import read_run
from harness_llm.errors import ConfigError
from harness_llm.runs.record import Run, State


def explain(run: Run) -> str:
    """The causes of `run`; empty if it is VALID, not judged or profiled, has no record or no cause was found."""
    if run.state in (State.VALID, State.MEASURED, State.PROFILED) or run.record is None:
        return ""
    try:
        return brief(diagnose(read_run(run.path)))
    except ConfigError as error:
        return f"  no diagnosis: {error.line}"
    except Exception as error:  # noqa: BLE001 - a defect here must not end a submission
        return f"  no diagnosis: {error!r}; harness-llm -v diagnose {run.path} shows the traceback"
