"""Runs that another state of the program made than the source that is packed."""

from collections.abc import Sequence

from harness_llm.config.commands import command
from harness_llm.runs.fingerprint import source_digest
from harness_llm.runs.record import Run


def runs_of_other_source(runs: Sequence[Run]) -> list[Run]:
    """The runs whose fingerprint has another digest of the source than the present one."""
    present = source_digest()
    return [run for run in runs if run.record and run.record.fingerprint.get("harness_llm", present) != present]


def source_notices(others: Sequence[Run]) -> list[str]:
    """One sentence if `others`, from `runs_of_other_source`, are packaged with the present source."""
    if not others:
        return []
    names = ", ".join(f"{run.run_key.scenario} {run.run_key.test}" for run in others)
    again = f"package with that program, or run again: {command('submit')}"
    return [f"the packed source is not the program that made {names}; {again}"]
