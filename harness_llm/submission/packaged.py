"""Results of earlier calls that remain in the tree."""

from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

from harness_llm.config.submission_names import Submission
from harness_llm.submission.places import RESULTS, Places, places_of
from harness_llm.submission.readme import read_fingerprint


def result_folders(submission: Submission, tree: Path) -> set[Path]:
    """Folders of all results of the submitter, relative to `tree`."""
    return {path.relative_to(tree) for path in tree.glob(f"*/{submission.submitter}/{RESULTS}/*/*/*")}


def remaining(submission: Submission, home: Path, replaced: Collection[str]) -> Iterator[Places]:
    """Results of the benchmark and system in `home` under any variant, without those of the scenarios `replaced`."""
    for name in submission.possible_names:
        for folder in sorted((home / RESULTS / submission.system / name).glob("*")):
            if folder.name not in replaced:
                yield places_of(submission, name, folder.name, home)


def remaining_scenarios(submission: Submission, home: Path, replaced: Collection[str]) -> dict[str, list[str]]:
    """The remaining scenarios, by benchmark name."""
    found: dict[str, list[str]] = {}
    for places in remaining(submission, home, replaced):
        found.setdefault(places.name, []).append(places.scenario)
    return found


def remaining_fingerprints(submission: Submission, home: Path, replaced: Collection[str]) -> dict[str, dict[str, Any]]:
    """Fingerprints of the remaining scenarios; results that were made elsewhere have none."""
    found = {places.scenario: read_fingerprint(places.readme) for places in remaining(submission, home, replaced)}
    return {scenario: fingerprint for scenario, fingerprint in found.items() if fingerprint}


def other_benchmarks(submission: Submission, home: Path) -> list[Path]:
    """Folders of the results of other benchmarks on the system."""
    folders = sorted((home / RESULTS / submission.system).glob("*"))
    return [folder for folder in folders if folder.name not in submission.possible_names]
