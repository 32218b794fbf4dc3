"""What a report shows: runs, submission trees and tuning sessions, from the paths that a user names."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from string import ascii_uppercase

from harness_llm.analysis.report.column import Column, by_scenario
from harness_llm.analysis.report.wording import instant
from harness_llm.checker.submission_tree import DIVISIONS, trees_near
from harness_llm.config.commands import command
from harness_llm.errors import ConfigError
from harness_llm.paths import Workspace
from harness_llm.runs.record import LOCK, Run, load_run
from harness_llm.runs.trial_store import SESSION, TRIALS


@dataclass(frozen=True)
class ReportInputs:
    """Columns of runs, folders of trees, and folders of tuning sessions."""

    columns: Sequence[Column]
    trees: Sequence[Path]
    sessions: Sequence[Path]


def read_inputs(paths: Sequence[Path], workspace: Workspace) -> ReportInputs:
    """Sort `paths`; without any, the runs of the newest submission.

    Raises:
        ConfigError: a path has neither runs, nor a tree, nor a tuning session.
    """
    runs: list[Run] = []
    trees, sessions = [], []
    for path in paths or [_newest(workspace)]:
        folder = path.resolve()
        if not folder.is_dir():
            raise ConfigError("no such folder", where=str(folder), hint="runs are below build/logs")
        if (folder / TRIALS).is_file() or (folder / SESSION).is_file():
            sessions.append(folder)
        elif found := list(_runs(folder)):
            runs += found
        elif any((folder / division).is_dir() for division in DIVISIONS):
            trees.append(folder)
        else:
            near = trees_near(folder)
            raise ConfigError(
                "nothing to report",
                where=str(folder),
                expected="a run directory, a folder with runs, a submission tree or a tuning session",
                hint=f"name {near}" if near else f"{command('runs')} lists the folders of all runs",
            )
    return ReportInputs(columns_of(runs), trees, sessions)


def _newest(workspace: Workspace) -> Path:
    folders = sorted(lock.parents[4] for lock in workspace.logs.glob(f"*/*/*/*/*/{LOCK}"))
    if not folders:
        raise ConfigError("no run found", where=str(workspace.logs), hint="name runs, a tree or a tuning session")
    return folders[-1]


def _runs(folder: Path) -> Iterator[Run]:
    """The runs below `folder`; of a run directory, all runs of its scenario."""
    top = folder.parent if (folder / LOCK).is_file() else folder
    yield from (load_run(lock.parent) for lock in sorted(top.rglob(LOCK)))


def columns_of(runs: Sequence[Run]) -> list[Column]:
    """The runs by scenario directory, each once, with names where a scenario has several."""
    folders: dict[Path, dict[str, Run]] = {}
    for run in runs:
        folders.setdefault(run.path.parent, {})[run.run_key.test] = run
    return named([Column("", tests) for tests in folders.values()])


def named(columns: Sequence[Column]) -> list[Column]:
    """The columns in order of scenario and time; A, B … where a scenario has several."""
    found = []
    for own in by_scenario(columns).values():
        ordered = sorted(own, key=lambda column: (column.row.started, str(column.path)))
        found += [replace(one, name=_letters(place)) for place, one in enumerate(ordered)] if len(own) > 1 else ordered
    return found


def _letters(place: int) -> str:
    """A … Z, A1 …"""
    turn, letter = divmod(place, len(ascii_uppercase))
    return f"{ascii_uppercase[letter]}{turn or ''}"


def started(column: Column) -> str:
    """When the runs of a column started."""
    run = column.any_run
    return instant(run.record.started) if run.record else column.row.started
