"""The VALID run of full length that confirmed a target: `tune --write` makes it a run that `submit` counts."""

import shutil
import tempfile
from pathlib import Path

from harness_llm.runs.trial_store import Trial

# Path of a run below the folder of all runs: time, system, benchmark, scenario, test.
_DEPTH = 5


def confirming_run(trials: list[Trial], target: float | None) -> Path | None:
    """The directory of the newest VALID run of full length at `target`; None without one."""
    runs = [t.run for t in trials if (t.kind, t.state, t.target_qps) == ("confirmation", "VALID", target) and t.run]
    return Path(runs[-1]) if runs and Path(runs[-1]).is_dir() else None


def keep_as_run(run: Path, logs: Path) -> Path:
    """Copy the run directory of a trial to the runs below `logs`; returns the copy. The session keeps its own."""
    copy = logs.joinpath(*run.parts[-_DEPTH:])
    if not copy.is_dir():
        copy.parent.mkdir(parents=True, exist_ok=True)
        # Not beside the copy: a part of a run would be found as a run.
        with tempfile.TemporaryDirectory(prefix="kept-", dir=run.parent) as folder:
            shutil.copytree(run, Path(folder, run.name)).rename(copy)
    return copy
