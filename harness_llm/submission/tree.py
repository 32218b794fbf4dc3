"""Assemble the submission tree in the layout of its round (submission_checker/constants.py:2029-2195).

A copy is edited and then replaces the tree, so the tree is never incomplete. Results of other systems and benchmarks
are kept.
"""

import fcntl
import json
import os
import shutil
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from harness_llm.config.rules.rounds import Round
from harness_llm.config.submission_names import Submission
from harness_llm.errors import GateFailed
from harness_llm.evaluate.accuracy_file import ACCURACY as SCORES
from harness_llm.fileio import replacing
from harness_llm.loadgen.logs import ACCURACY as ANSWERS
from harness_llm.loadgen.logs import DETAIL, SUMMARY
from harness_llm.paths import Workspace
from harness_llm.runs.record import Run
from harness_llm.runs.stored_source import write_source
from harness_llm.submission.architecture_document import merged
from harness_llm.submission.archive import remove_archive
from harness_llm.submission.calibration import Quantization, measurements, render_calibration
from harness_llm.submission.datacenter import DOCUMENT, Requirements, measured_results
from harness_llm.submission.documents import Documents
from harness_llm.submission.outputs import Outputs
from harness_llm.submission.packaged import remaining, remaining_scenarios
from harness_llm.submission.packed_source import PackedSource
from harness_llm.submission.places import (
    PROFILE,
    README,
    RESULTS,
    Places,
    description_of,
    home_of,
    places_of,
    source_of,
)
from harness_llm.submission.readme import (
    keep_other_names,
    write_home_readme,
    write_pointer_readme,
    write_result_readme,
    write_source_readme,
)
from harness_llm.submission.truncate import TRUNCATED_TESTS, pack_accuracy
from harness_llm.submission.variants import Scores, packaged_variants

PERFORMANCE = "performance"
ACCURACY = "accuracy"

_LOGS = {DETAIL: DETAIL, SUMMARY: SUMMARY}

Runs = Mapping[str, Mapping[str, Run]]
"""Runs by scenario and test."""


def accuracy_scores(runs: Runs) -> Scores:
    """Scores of the accuracy runs, by scenario."""
    records = {scenario: tests[ACCURACY].record for scenario, tests in runs.items()}
    return {scenario: record.metrics for scenario, record in records.items() if record}


def build_tree(submission: Submission, runs: Runs, documents: Documents, workspace: Workspace) -> Path:
    """Write the results of `runs` into the tree of `submission`, in place of earlier results of the same scenarios.

    Raises:
        GateFailed: a run lacks a file, the accuracy meets the gates of no variant, or the system violates the
            requirements of closed.
    """
    target = workspace.submission / submission.tree_name
    with _editing(target) as tree:
        home = home_of(submission, tree)
        packaged = packaged_variants(submission, accuracy_scores(runs), remaining_scenarios(submission, home, runs))
        _write_json(description_of(submission, home), documents.description)
        _pack_source(submission, home, documents.source)
        _write_mapping(submission, home)
        _write_calibration(submission, home, documents.quantization)
        _clear_unmet(submission, home, packaged)
        for scenario, tests in runs.items():
            names = [name for name, scenarios in packaged.items() if scenario in scenarios]
            for places in (places_of(submission, name, scenario, home) for name in packaged):
                _clear(places)
                if places.name in names:
                    _pack_result(submission, tests, places, documents.outputs)
                    _write_json(
                        places.measurements, measurements(submission.benchmark, documents.quantization, scenario)
                    )
                    write_result_readme(places, submission, names, tests, documents)
        _point_to_source(submission, home)
        if documents.requirements:
            _write_architecture(submission, home, documents.requirements)
        _write_json(home / PROFILE, _profile(submission))
        write_home_readme(home, submission)
    return target


@contextmanager
def _editing(target: Path) -> Iterator[Path]:
    """Yield a copy of the tree `target` that replaces `target` when the block ends without an exception.

    The archive of the replaced tree is removed.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    with locked(target.parent), replacing(target) as copy:
        if target.exists():
            shutil.copytree(target, copy, dirs_exist_ok=True)
        yield copy
        remove_archive(target)


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Lock `folder`, so that only one process edits trees in it."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _pack_source(submission: Submission, home: Path, source: PackedSource) -> None:
    """Write the source of the runs, once per benchmark."""
    folder = source_of(submission, submission.benchmark.name, home)
    _remove(folder)
    folder.mkdir(parents=True)
    write_source(source.files, folder)
    write_source_readme(folder, submission, source)


def _point_to_source(submission: Submission, home: Path) -> None:
    """Give each variant with results a source folder that refers to that of the benchmark."""
    for name in submission.possible_names:
        folder = source_of(submission, name, home)
        if name != submission.benchmark.name:
            _remove(folder.parent)
            if any(home.glob(f"{RESULTS}/*/{name}")):
                folder.mkdir(parents=True)
                write_pointer_readme(folder / README, submission, name)


def _write_mapping(submission: Submission, home: Path) -> None:
    if submission.benchmark.mapped:
        file = home / "model_mapping.json"
        known = json.loads(file.read_text()) if file.exists() else {}
        _write_json(file, known | {submission.benchmark.name: next(iter(submission.variants))})


def write_calibration(submission: Submission, quantization: Quantization, workspace: Workspace) -> Path:
    """Write only the calibration document into the tree of `submission`; return its path."""
    target = workspace.submission / submission.tree_name
    with _editing(target) as tree:
        document = _write_calibration(submission, home_of(submission, tree), quantization)
        return target / document.relative_to(tree)


def _write_calibration(submission: Submission, home: Path, quantization: Quantization) -> Path:
    """Write one document on the checkpoints of all results in the tree (Submission_Guidelines.md), and its parts."""
    part = _calibration_part(submission, home)
    part.parent.mkdir(parents=True, exist_ok=True)
    part.write_text(render_calibration(submission.benchmark, quantization))
    return _join_calibration(part.parent)


def _calibration_part(submission: Submission, home: Path) -> Path:
    parts = (home / submission.rules.layout.calibration[0]).with_suffix("")
    return parts / f"{submission.benchmark.name}_{submission.system}.md"


def _join_calibration(parts: Path) -> Path:
    document = parts.with_suffix(".md")
    document.write_text("\n".join(part.read_text() for part in sorted(parts.iterdir())))
    return document


def _write_architecture(submission: Submission, home: Path, requirements: Requirements) -> None:
    """Write the part of the architecture document on this system; check the requirements in closed."""
    results = measured_results(home, submission.system, submission.rules)
    if submission.division == "closed":
        requirements.require(results)
    document = home / DOCUMENT
    document.parent.mkdir(exist_ok=True)
    before = document.read_text() if document.exists() else ""
    document.write_text(merged(before, requirements.render(submission.system, results)))


def _clear_unmet(submission: Submission, home: Path, names: Collection[str]) -> None:
    """Remove earlier results of variants that are not packaged, for example because a required scenario misses one."""
    for name in submission.possible_names:
        if name not in names:
            for folder in (home / RESULTS / submission.system / name).glob("*"):
                _clear(places_of(submission, name, folder.name, home))
    for places in remaining(submission, home, ()):
        keep_other_names(places.readme, names)


def _clear(places: Places) -> None:
    """Remove a result, and the folders of its benchmark and system if they become empty."""
    for folder in places.folders:
        _remove(folder)
        for above in list(folder.parents)[:2]:
            _remove_empty(above)


def _remove(folder: Path) -> None:
    if folder.exists():
        shutil.rmtree(folder)


def _remove_empty(folder: Path) -> None:
    if folder.is_dir() and not any(folder.iterdir()):
        folder.rmdir()


def _pack_result(submission: Submission, tests: Mapping[str, Run], places: Places, outputs: Outputs) -> None:
    # With a file config.yaml, the checker would treat the results as those of Endpoints (endpoints_parser.py:30).
    settings = {"user.conf": "user.conf", "configuration.yaml": "config.yaml"}
    _take(tests[PERFORMANCE], settings, places.measurements.parent)
    for test, run in tests.items():
        if test == PERFORMANCE:
            _take(run, _LOGS, places.results / PERFORMANCE / "run_1")
        elif test == ACCURACY:
            _take(run, _LOGS, places.results / ACCURACY)
            _require(run, ANSWERS, SCORES)
            scores = outputs[run.path].text if run.path in outputs else (run.path / SCORES).read_text()
            pack_accuracy(run.path / ANSWERS, places.results / ACCURACY, scores)
        else:
            _pack_compliance(submission.rules, test, run, places.compliance / test)
            if run.path in outputs:
                verdict = submission.rules.compliance[test].verdict
                (places.compliance / test / verdict).write_text(outputs[run.path].text)


def _pack_compliance(rules: Round, test: str, run: Run, folder: Path) -> None:
    facts = rules.compliance[test]
    _take(run, {facts.verdict: facts.verdict} | facts.packed, folder)
    if test in TRUNCATED_TESTS:
        pack_accuracy(run.path / ANSWERS, folder / ACCURACY)


def _take(run: Run, names: Mapping[str, str], folder: Path) -> None:
    """Copy files of a run; `names` maps paths in `folder` to file names in the run's directory."""
    for place, name in names.items():
        _require(run, name)
        target = folder / place
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(run.path / name, target)


def _require(run: Run, *names: str) -> None:
    for name in names:
        file = run.path / name
        if not file.is_file() or not file.stat().st_size:
            raise GateFailed(
                "a run lacks a file of its result",
                where=str(file),
                expected="the file that the run wrote",
                found="an empty file" if file.exists() else "no file",
                hint=f"remove {run.path} and run {run.run_key} again",
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
