"""The tree in the layout of rounds v6.0 and v6.1 (submission_checker/constants.py:2029-2195).

It is assembled beside its place and renamed into it, so that a tree is there whole or not at all. What other
systems and benchmarks left in it stays.
"""

import fcntl
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from harness_llm.compliance.test06 import VERDICT
from harness_llm.errors import GateFailed
from harness_llm.package.readme import write_result_readme, write_source_readme, write_tree_readme
from harness_llm.package.submission import Submission
from harness_llm.package.truncate import ACCURACY_LOG, ACCURACY_TEXT, pack_accuracy
from harness_llm.runs import Run
from harness_llm.workspace import CHECKOUT, Workspace

PERFORMANCE = "performance"
ACCURACY = "accuracy"

_LOGS = ("mlperf_log_detail.txt", "mlperf_log_summary.txt")
# The program that runs, and the part of the workspace that it reads.
_PROGRAM = ("harness_llm", "setup", "submission/*.sh", "Makefile", "pyproject.toml", "LICENSE")
_SETTINGS = ("models/{benchmark}", "models/*.yaml", "code/user_*.conf")
_NOT_SOURCE = shutil.ignore_patterns("__pycache__", "*.egg-info", ".*")

Runs = Mapping[str, Mapping[str, Run]]
"""By scenario and test."""


def build_tree(submission: Submission, runs: Runs, description: Mapping[str, str], workspace: Workspace) -> Path:
    """Put the results of `runs` into the tree of `submission`; what it held of those scenarios before goes.

    Args:
        description: the content of `systems/<system>.json`.

    Raises:
        GateFailed: a run lacks one of its files.
    """
    target = workspace.submission / submission.tree_name
    with _replacing(target) as tree:
        home = tree / submission.division / submission.submitter
        _write_json(home / "systems" / f"{submission.system}.json", description)
        _pack_source(submission, home / submission.rules.layout.source / submission.benchmark.name, workspace)
        _write_mapping(submission, home)
        _write_calibration(submission, home)
        results = home / "results" / submission.system / submission.benchmark.name
        for scenario, tests in runs.items():
            _pack_scenario(submission, scenario, tests, _emptied(results / scenario))
        _write_json(tree / "profile.json", _profile(submission))
        write_tree_readme(tree, submission)
    return target


@contextmanager
def _replacing(target: Path) -> Iterator[Path]:
    """A copy of `target` to work on, which takes its place when the block ends well."""
    target.parent.mkdir(parents=True, exist_ok=True)
    aside, old = (target.with_name(f"{target.name}.{end}") for end in ("tmp", "old"))
    with _locked(target.parent):
        _tidy(target, aside, old)
        try:
            if target.exists():
                shutil.copytree(target, aside)
            else:
                aside.mkdir()
            yield aside
            if target.exists():
                target.rename(old)
            aside.rename(target)
        finally:
            _tidy(target, aside, old)


def _tidy(target: Path, aside: Path, old: Path) -> None:
    """Remove what a replacement left; the old tree comes back if no new one stands there."""
    if old.exists() and not target.exists():
        old.rename(target)
    for leftover in (aside, old):
        if leftover.exists():
            shutil.rmtree(leftover)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """One packager at a time."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _emptied(folder: Path) -> Path:
    if folder.exists():
        shutil.rmtree(folder)
    folder.mkdir(parents=True)
    return folder


def _pack_source(submission: Submission, folder: Path, workspace: Workspace) -> None:
    _emptied(folder)
    settings = [pattern.format(benchmark=submission.benchmark.name) for pattern in _SETTINGS]
    for root, patterns in ((CHECKOUT, _PROGRAM), (workspace.root, settings)):
        for source in (path for pattern in patterns for path in root.glob(pattern)):
            place = folder / source.relative_to(root)
            place.parent.mkdir(parents=True, exist_ok=True)
            if source.is_dir():
                shutil.copytree(source, place, ignore=_NOT_SOURCE)
            else:
                shutil.copy(source, place)
    write_source_readme(folder, submission)


def _write_mapping(submission: Submission, home: Path) -> None:
    if submission.benchmark.mapped:
        file = home / "model_mapping.json"
        known = json.loads(file.read_text()) if file.exists() else {}
        _write_json(file, known | {submission.benchmark.name: submission.benchmark.rules_of})


def _write_calibration(submission: Submission, home: Path) -> None:
    """One document from those that the benchmarks in this tree bring along (Submission_Guidelines.md)."""
    parts = sorted((home / submission.rules.layout.source).glob("*/models/*/calibration.md"))
    if parts:
        document = home / submission.rules.layout.calibration[0]
        document.parent.mkdir(exist_ok=True)
        document.write_text("\n".join(part.read_text() for part in parts))


def _pack_scenario(submission: Submission, scenario: str, tests: Mapping[str, Run], folder: Path) -> None:
    _take(tests[PERFORMANCE], "user.conf", folder)
    # A config.yaml here would make the checker take the result for one of Endpoints (endpoints_parser.py:30).
    _take(tests[PERFORMANCE], "config.yaml", folder, "configuration.yaml")
    _write_json(folder / "measurements.json", submission.benchmark.measurements)
    for test, run in tests.items():
        if test == PERFORMANCE:
            _take_all(run, _LOGS, folder / PERFORMANCE / "run_1")
        elif test == ACCURACY:
            _take_all(run, _LOGS, folder / ACCURACY)
            _require(run, ACCURACY_LOG, ACCURACY_TEXT)
            pack_accuracy(run.path, folder / ACCURACY)
        else:
            _take_all(run, [VERDICT], folder / test)
            _take_all(run, [ACCURACY_LOG], folder / test / ACCURACY)
    write_result_readme(folder, submission, scenario, tests)


def _take_all(run: Run, names: tuple[str, ...] | list[str], folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        _take(run, name, folder)


def _take(run: Run, name: str, folder: Path, new_name: str = "") -> None:
    _require(run, name)
    shutil.copyfile(run.path / name, folder / (new_name or name))


def _require(run: Run, *names: str) -> None:
    for name in names:
        file = run.path / name
        if not file.is_file() or not file.stat().st_size:
            raise GateFailed(
                "a run lacks a file that its result needs",
                where=str(file),
                expected="the file as the run wrote it",
                found="an empty file" if file.exists() else "no file",
                hint=f"remove {run.path} and run {run.cell} again",
            )


def _profile(submission: Submission) -> dict[str, str]:
    return {
        "profile": submission.profile,
        "benchmark": submission.benchmark.name,
        "round": submission.rules.round,
    }


def _write_json(file: Path, document: Mapping[str, object]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(document, indent=2, ensure_ascii=False) + "\n")
