"""Digests of LoadGen's logs as they were judged: a log that changes afterwards does not show the recorded result."""

from pathlib import Path

from harness_llm.config.checkpoint import file_digest
from harness_llm.loadgen.logs import ACCURACY, DETAIL, SUMMARY
from harness_llm.runs.record import Run

_LOGS = (DETAIL, SUMMARY, ACCURACY)


def log_digests(run: Path) -> dict[str, str]:
    """The sha256 of each of LoadGen's logs in the run directory, by name."""
    return {name: file_digest(run / name) for name in _LOGS if (run / name).is_file()}


def changed_logs(run: Run) -> list[str]:
    """The names of the logs that differ from those judged; none for a run that was not judged."""
    judged = run.record.logs if run.record else {}
    found = log_digests(run.path) if judged else {}
    return sorted(name for name in judged.keys() | found.keys() if judged.get(name) != found.get(name))
