"""From a complete selection of runs to the tree and its archive."""

import datetime as dt
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from harness_llm.errors import ConfigError, GateFailed
from harness_llm.package.archive import archive
from harness_llm.package.selection import Selection
from harness_llm.package.submission import Submission
from harness_llm.package.system import describe, load_overrides, system_file
from harness_llm.package.tree import build_tree
from harness_llm.workspace import Workspace


class Package(NamedTuple):
    """What `package` made; `notices` are sentences for the submitter."""

    tree: Path
    archive: Path
    notices: list[str]


def package(submission: Submission, selection: Selection, detected: Mapping[str, str], workspace: Workspace) -> Package:
    """Describe the system, assemble the tree, pack it.

    Args:
        detected: what the machine that ran told of itself (`detect`).

    Raises:
        GateFailed: a cell has no run that counts.
        ConfigError: names, division or system description are wrong.
    """
    submission.check()
    _refuse_missing(selection)
    _refuse_strangers(submission, selection)
    file = system_file(workspace, submission.system)
    description = describe(
        submission.system,
        submitter=submission.submitter,
        division=submission.division,
        category=submission.category,
        rules=submission.rules,
        detected=detected,
        overrides=load_overrides(file, submission.rules),
        file=file,
    )
    tree = build_tree(submission, selection.runs, description, workspace)
    notices = submission.notices(dt.datetime.now(dt.UTC).date())
    return Package(tree, archive(tree), notices)


def _refuse_missing(selection: Selection) -> None:
    if not selection.cells or selection.missing:
        lines = [f"{status.cell}: {status.state_text}, {status.reason}" for status in selection.missing]
        raise GateFailed(
            "the results are not complete, so nothing is packaged",
            expected="a VALID run of one subject in every cell",
            found="\n         ".join(lines) or "no cell",
            hint="harness-llm submit runs what is missing",
        )


def _refuse_strangers(submission: Submission, selection: Selection) -> None:
    """Runs of one system or benchmark never stand under the name of another."""
    wanted = (submission.system, submission.benchmark.name)
    for status in selection.cells:
        if status.run and (status.run.system, status.cell.benchmark) != wanted:
            raise ConfigError(
                "a run is of another system or benchmark",
                where=str(status.run.path),
                expected=" ".join(wanted),
                found=f"{status.run.system} {status.cell.benchmark}",
            )
