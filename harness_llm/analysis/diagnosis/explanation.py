"""The causes of a run in a few lines, at its end."""

from dataclasses import dataclass

from harness_llm.analysis.diagnosis.diagnosis import diagnose
from harness_llm.analysis.diagnosis.diagnosis_report import brief, headlines
from harness_llm.analysis.diagnosis.run_data import read_run
from harness_llm.config.commands import command
from harness_llm.errors import ConfigError
from harness_llm.runs.record import Run, State


@dataclass(frozen=True)
class Explanation:
    """Why a run is not VALID; empty if it is, or if no cause was found.

    Attributes:
        cause: the most important cause, one clause.
        lines: all causes with their actions, or why there is no diagnosis.
    """

    cause: str = ""
    lines: str = ""


def explain(run: Run) -> Explanation:
    """The causes of `run`; empty if it is VALID, not judged or profiled, has no record or no cause was found."""
    if run.state in (State.VALID, State.MEASURED, State.PROFILED) or run.record is None:
        return Explanation()
    try:
        diagnosis = diagnose(read_run(run.path))
        return Explanation(next(iter(headlines(diagnosis)), ""), brief(diagnosis))
    except ConfigError as error:
        return Explanation(lines=f"  no diagnosis: {error.line}")
    except Exception as error:  # noqa: BLE001 - a defect here must not end a submission
        again = command("-v", "diagnose", str(run.path))
        return Explanation(lines=f"  no diagnosis: {error!r}; {again} shows the traceback")
