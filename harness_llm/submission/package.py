"""From a complete selection of runs to the tree."""

import datetime as dt
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from harness_llm.config.assets import Assets
from harness_llm.config.checkpoint import checkpoint_digest
from harness_llm.config.submission_names import Submission
from harness_llm.config.system_file import load_overrides, system_file
from harness_llm.errors import ConfigError, GateFailed
from harness_llm.hardware.ecc import Ecc, State, read_ecc
from harness_llm.paths import Workspace
from harness_llm.runs.selection import Selection
from harness_llm.submission.accuracy_manifest import write_manifest
from harness_llm.submission.calibration import read_quantization
from harness_llm.submission.consistency import require_one_system
from harness_llm.submission.datacenter import requirements
from harness_llm.submission.documents import Documents
from harness_llm.submission.outputs import official_outputs, own_notices
from harness_llm.submission.release import availability_notices
from harness_llm.submission.system_description import describe
from harness_llm.submission.tree import accuracy_scores, build_tree, write_calibration
from harness_llm.submission.variants import left_out


class Package(NamedTuple):
    """What `package` made; `notices` are sentences for the submitter, `manifest` is from `write_manifest`."""

    tree: Path
    manifest: Path
    notices: list[str]


def describe_system(
    submission: Submission, detected: Mapping[str, str], workspace: Workspace, ecc: Ecc | None = None
) -> Documents:
    """The system's description, and what a datacenter submission owes beside it.

    Args:
        detected: what the machine that runs tells of itself (`detect`), or its nodes together.
        ecc: of all nodes where there are several; read from this machine otherwise.

    Raises:
        ConfigError: names, division or system description are wrong, or closed needs to know more.
        GateFailed: closed does not take the system.
    """
    submission.check()
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
    owed = requirements(description, ecc or read_ecc(), file)
    if owed and submission.division == "closed":
        owed.require()
    return Documents(description, owed)


def package(
    submission: Submission,
    selection: Selection,
    detected: Mapping[str, str],
    workspace: Workspace,
    assets: Assets,
    *,
    ecc: Ecc | None = None,
) -> Package:
    """Describe the system and assemble the tree.

    Args:
        detected, ecc: as for `describe_system`.
        assets: the checkpoint that was served and the data sets; records say how it was quantized.

    Raises:
        GateFailed: a run has no run that counts, scenarios differ in system or versions, the accuracy is that of no
            variant, an official script finds other scores or another verdict, or closed takes no such system.
        ConfigError: names, division or system description are wrong, or the checkpoint is not that of the runs.
    """
    documents = describe_system(submission, detected, workspace, ecc)
    _refuse_missing(selection)
    _refuse_strangers(submission, selection)
    if documents.owed and submission.division == "closed":
        _refuse_without_ecc(selection)
    fingerprints = _fingerprints(selection)
    require_one_system(fingerprints)
    _refuse_other_checkpoint(fingerprints, assets.checkpoint)
    # Two scenarios share a run where one is inferred from the other.
    runs = list({run.path: run for tests in selection.runs.values() for run in tests.values()}.values())
    documents = replace(
        documents,
        quantization=read_quantization(assets.checkpoint, fingerprints),
        outputs=official_outputs(submission, runs, assets),
    )
    tree = build_tree(submission, selection.runs, documents, workspace)
    notices = submission.notices(dt.datetime.now(dt.UTC).date()) + documents.quantization.notices
    notices += own_notices(runs, documents.outputs)
    notices += availability_notices(documents.description["status"], fingerprints.values())
    notices += left_out(submission, accuracy_scores(selection.runs))
    return Package(tree, write_manifest(tree, runs), notices)


def package_calibration(
    submission: Submission, fingerprints: Mapping[str, Mapping[str, Any]], workspace: Workspace, checkpoint: Path
) -> tuple[Path, list[str]]:
    """Write the calibration document, which is due a week before the results (Submission_Guidelines.md).

    Args:
        fingerprints: of runs that could be made now, by scenario.
        checkpoint: the one that will be served.

    Returns:
        The document, and sentences for the submitter.

    Raises:
        ConfigError: the division or a name is wrong, or the checkpoint is not what its record says.
    """
    submission.check()
    quantization = read_quantization(checkpoint, fingerprints)
    return write_calibration(submission, quantization, workspace), quantization.notices


def _fingerprints(selection: Selection) -> dict[str, dict[str, Any]]:
    """Of the runs of each scenario, which all share one."""
    records = {scenario: next(iter(tests.values())).record for scenario, tests in selection.runs.items()}
    return {scenario: record.fingerprint for scenario, record in records.items() if record}


def _refuse_missing(selection: Selection) -> None:
    if not selection.run_keys or selection.missing:
        lines = [f"{status.run_key}: {status.state_text}, {status.reason}" for status in selection.missing]
        raise GateFailed(
            "the results are not complete, so nothing is packaged",
            expected="a VALID run of one fingerprint in every run",
            found="\n         ".join(lines) or "no run",
            hint="harness-llm submit runs what is missing",
        )


def _refuse_other_checkpoint(fingerprints: Mapping[str, Mapping[str, Any]], checkpoint: Path) -> None:
    """The calibration document is about the checkpoint that the runs served."""
    found = checkpoint_digest(checkpoint)
    for scenario, fingerprint in fingerprints.items():
        if fingerprint.get("checkpoint", found) != found:
            raise ConfigError(
                f"the runs of {scenario} served another checkpoint than the one that is there now",
                where=str(checkpoint),
                expected=f"sha256 digest {fingerprint['checkpoint']}",
                found=found,
                hint="put the checkpoint of the runs back, or run again: harness-llm submit",
            )


def _refuse_without_ecc(selection: Selection) -> None:
    """ECC is on in all runs (inference_rules.adoc:254), not only now."""
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
                "a run was made with ECC off, which closed datacenter does not take",
                where=str(status.run.path if status.run else ""),
                expected="on",
                found=", ".join(off),
                hint="switch it on and run again, or use --division open",
            )


def _refuse_strangers(submission: Submission, selection: Selection) -> None:
    """Runs of one system or benchmark never stand under the name of another."""
    wanted = (submission.system, submission.benchmark.name)
    for status in selection.run_keys:
        if status.run and (status.run.system, status.run_key.benchmark) != wanted:
            raise ConfigError(
                "a run is of another system or benchmark",
                where=str(status.run.path),
                expected=" ".join(wanted),
                found=f"{status.run.system} {status.run_key.benchmark}",
            )
