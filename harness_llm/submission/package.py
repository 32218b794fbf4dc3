"""From a complete selection of runs to the tree."""

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from harness_llm.config.assets import Assets
from harness_llm.config.checkpoint import checkpoint_digest
from harness_llm.config.commands import command, typed
from harness_llm.config.submission_names import Submission
from harness_llm.config.system_file import load_overrides, system_file
from harness_llm.errors import ConfigError, GateFailed
from harness_llm.evaluate.log_digests import changed_logs
from harness_llm.hardware.ecc import State
from harness_llm.paths import Workspace
from harness_llm.runs.record import Run
from harness_llm.runs.selection import Selection
from harness_llm.runs.stored_source import present_source
from harness_llm.submission.accuracy_manifest import write_manifest
from harness_llm.submission.calibration import read_quantization
from harness_llm.submission.consistency import require_one_system, require_same_description
from harness_llm.submission.datacenter import requirements_of
from harness_llm.submission.documents import Documents
from harness_llm.submission.measured_system import MeasuredSystem, measured_system
from harness_llm.submission.outputs import official_outputs, own_notices
from harness_llm.submission.packaged import (
    other_benchmarks,
    remaining_fingerprints,
    remaining_scenarios,
    result_folders,
)
from harness_llm.submission.packed_source import packed_source
from harness_llm.submission.places import description_of, home_of
from harness_llm.submission.release import availability_notices
from harness_llm.submission.system_description import describe
from harness_llm.submission.tree import accuracy_scores, build_tree, write_calibration
from harness_llm.submission.variants import left_out


class Package(NamedTuple):
    """Files written by `package`.

    Attributes:
        manifest: from `write_manifest`.
        notices: sentences for the submitter.
        runs: the packaged runs.
    """

    tree: Path
    manifest: Path
    notices: list[str]
    runs: list[Run]


def describe_system(submission: Submission, measured: MeasuredSystem, workspace: Workspace) -> Documents:
    """Describe the system, and check the requirements of closed datacenter.

    Raises:
        ConfigError: names, division or system description are wrong, or facts that closed requires are missing.
        GateFailed: the system violates the requirements of closed.
    """
    submission.check()
    file = system_file(workspace, submission.system)
    description = describe(
        submission.system,
        submitter=submission.submitter,
        division=submission.division,
        category=submission.category,
        rules=submission.rules,
        detected=measured.machine,
        overrides=load_overrides(file, submission.rules),
        file=file,
    ).require()
    requirements = requirements_of(description, measured.ecc, file)
    if requirements and submission.division == "closed":
        requirements.require()
    return Documents(description, requirements)


def package(submission: Submission, selection: Selection, workspace: Workspace, assets: Assets) -> Package:
    """Describe the system and assemble the tree.

    Args:
        assets: the served checkpoint and the data sets.

    Raises:
        GateFailed: a VALID run or its source is missing, scenarios differ in system or versions (those in the tree
            too), other benchmarks in the tree ran on another state of the system, the accuracy meets the gates of no
            variant, an official script computes other scores or another verdict, or the system violates the
            requirements of closed.
        ConfigError: names, division or system description are wrong, or the checkpoint is not that of the runs.
    """
    _refuse_missing(selection)
    # A scenario that is inferred from another one shares its runs.
    runs = list({run.path: run for tests in selection.runs.values() for run in tests.values()}.values())
    _refuse_changed_logs(runs)
    documents = _documents(submission, selection, runs, workspace, assets.checkpoint)
    documents = replace(documents, outputs=official_outputs(submission, runs, assets))
    scores, home = accuracy_scores(selection.runs), _home(submission, workspace)
    not_packaged = left_out(submission, scores, remaining_scenarios(submission, home, scores))
    before = result_folders(submission, workspace.submission / submission.tree_name)
    tree = build_tree(submission, selection.runs, documents, workspace)
    notices = submission.notices(dt.datetime.now(dt.UTC).date()) + documents.quantization.notices
    notices += own_notices(runs, documents.outputs) + documents.source.notices
    notices += availability_notices(documents.description["status"], _fingerprints(selection).values())
    notices += not_packaged
    if removed := sorted(map(str, before - result_folders(submission, tree))):
        notices.append(f"removed from the tree: {', '.join(removed)}")
    return Package(tree, write_manifest(tree, runs), notices, runs)


def _documents(
    submission: Submission, selection: Selection, runs: Sequence[Run], workspace: Workspace, checkpoint: Path
) -> Documents:
    """The documents on system and quantization, which must be true for the results that remain in the tree too."""
    measured, home = measured_system(runs), _home(submission, workspace)
    documents = describe_system(submission, measured, workspace)
    _refuse_other_runs(submission, selection)
    if documents.requirements and submission.division == "closed":
        _refuse_without_ecc(selection)
    fingerprints = _fingerprints(selection)
    require_one_system(fingerprints)
    _refuse_other_checkpoint(fingerprints, checkpoint)
    packaged = remaining_fingerprints(submission, home, fingerprints)
    _refuse_other_packaged(submission, fingerprints, packaged, checkpoint)
    require_same_description(
        description_of(submission, home), documents.description, measured.machine, other_benchmarks(submission, home)
    )
    quantization = read_quantization(checkpoint, {**packaged, **fingerprints})
    source = packed_source(submission.benchmark, runs, packaged, present_source(workspace))
    return replace(documents, quantization=quantization, source=source)


def package_calibration(
    submission: Submission, fingerprints: Mapping[str, Mapping[str, Any]], workspace: Workspace, checkpoint: Path
) -> tuple[Path, list[str]]:
    """Write the calibration document, which is due a week before the results (Submission_Guidelines.md).

    Args:
        fingerprints: that runs would have now, by scenario.
        checkpoint: to be served.

    Returns:
        The document, and sentences for the submitter.

    Raises:
        ConfigError: the division or a name is wrong, or the checkpoint differs from its record.
    """
    submission.check()
    packaged = remaining_fingerprints(submission, _home(submission, workspace), fingerprints)
    quantization = read_quantization(checkpoint, {**packaged, **fingerprints})
    return write_calibration(submission, quantization, workspace), quantization.notices


def _fingerprints(selection: Selection) -> dict[str, dict[str, Any]]:
    """The fingerprint of each scenario, which all its runs share."""
    records = {scenario: next(iter(tests.values())).record for scenario, tests in selection.runs.items()}
    return {scenario: record.fingerprint for scenario, record in records.items() if record}


def _home(submission: Submission, workspace: Workspace) -> Path:
    return home_of(submission, workspace.submission / submission.tree_name)


def _refuse_missing(selection: Selection) -> None:
    if not selection.run_keys or selection.missing:
        lines = [f"{status.run_key}: {status.state_text}, {status.reason}" for status in selection.missing]
        raise GateFailed(
            "incomplete results, not packaged",
            expected="a VALID run of one fingerprint for every scenario and test",
            found="\n         ".join(lines) or "no run",
            hint=f"{command('submit')} makes what is missing",
        )


def _refuse_changed_logs(runs: Sequence[Run]) -> None:
    for run in runs:
        if changed := changed_logs(run):
            raise GateFailed(
                "a log of a VALID run has changed since it was judged",
                where=str(run.path),
                expected="the logs that LoadGen wrote",
                found=f"other content: {', '.join(changed)}",
                hint=f"restore the logs, or remove {run.path}: then {command('submit')} makes {run.run_key} again",
            )


def _refuse_other_packaged(
    submission: Submission,
    fingerprints: Mapping[str, Mapping[str, Any]],
    packaged: Mapping[str, Mapping[str, Any]],
    checkpoint: Path,
) -> None:
    """Scenarios of one result share system, versions and checkpoint if they are packaged one after the other too."""
    together = submission.together("submit", [*packaged, *fingerprints])
    hint = (
        f"package them together: {together}, with the other options of the runs; it repeats only the runs that do not "
        "match"
    )
    before = {f"{scenario} in the tree": fingerprint for scenario, fingerprint in packaged.items()}
    require_one_system({**before, **fingerprints}, hint)
    _refuse_other_checkpoint(before, checkpoint, f"restore the checkpoint of the runs, or {hint}")


def _refuse_other_checkpoint(
    fingerprints: Mapping[str, Mapping[str, Any]],
    checkpoint: Path,
    hint: str = "",
) -> None:
    """The calibration document must describe the checkpoint that the runs served."""
    found = checkpoint_digest(checkpoint)
    for scenario, fingerprint in fingerprints.items():
        if fingerprint.get("checkpoint", found) != found:
            raise ConfigError(
                f"the runs of {scenario} served another checkpoint than the present one",
                where=str(checkpoint),
                expected=f"sha256 digest {fingerprint['checkpoint']}",
                found=found,
                hint=hint or f"restore the checkpoint of the runs, or run again: {command('submit')}",
            )


def _refuse_without_ecc(selection: Selection) -> None:
    """ECC must have been on in all runs (inference_rules.adoc:254)."""
    for status in selection.run_keys:
        hosts = status.run.record.hosts if status.run and status.run.record else {}
        off = [
            f"{name}{where and f' of {where}'}"
            for where, host in hosts.items()
            for name, state in host.items()
            if name.endswith("_ecc") and state == State.OFF
        ]
        if off:
            raise GateFailed(
                "a run was made with ECC off, which closed datacenter forbids",
                where=str(status.run.path if status.run else ""),
                expected="on",
                found=", ".join(off),
                hint=f"switch ECC on and run again, or use {typed(division='open')}",
            )


def _refuse_other_runs(submission: Submission, selection: Selection) -> None:
    """Runs of one system or benchmark are never packaged under the name of another."""
    wanted = (submission.system, submission.benchmark.name)
    for status in selection.run_keys:
        if status.run and (status.run.system, status.run_key.benchmark) != wanted:
            raise ConfigError(
                "a run belongs to another system or benchmark",
                where=str(status.run.path),
                expected=" ".join(wanted),
                found=f"{status.run.system} {status.run_key.benchmark}",
            )
