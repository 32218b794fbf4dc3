"""Manifest of the complete accuracy logs, which the submitter keeps: paths by the hashes in the tree."""

import json
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from harness_llm.config.checkpoint import file_digest
from harness_llm.evaluate.accuracy_file import ACCURACY as SCORES
from harness_llm.fileio import write_atomically
from harness_llm.loadgen.logs import ACCURACY as ANSWERS
from harness_llm.runs.record import Run
from harness_llm.submission.truncate import TRUNCATED_TESTS

_HASH = re.compile(r"^hash=([0-9a-f]{64})$", re.MULTILINE)
_UNKNOWN = "unknown: packaged from another checkout"


def write_manifest(tree: Path, runs: Iterable[Run]) -> Path:
    """Write `<tree>_accuracy_logs.json`: for each hash in the tree, the packaged folders and the complete log.

    Paths of logs are relative to the manifest. Entries of earlier calls are kept.

    Args:
        runs: the runs packaged by this call.
    """
    file = tree.with_name(f"{tree.name}_accuracy_logs.json")
    known = {sha256: entry["log"] for sha256, entry in _read(file).items()}
    for run in runs:
        if run.run_key.test == "accuracy" or run.run_key.test in TRUNCATED_TESTS:
            log = run.path / ANSWERS
            known[file_digest(log)] = os.path.relpath(log, file.parent)
    found = {
        sha256: {"log": known.get(sha256, _UNKNOWN), "packaged": folders} for sha256, folders in _hashes(tree).items()
    }
    with write_atomically(file) as temporary:
        temporary.write_text(json.dumps(found, indent=2) + "\n")
    return file


def _read(file: Path) -> Mapping[str, Mapping[str, str]]:
    manifest: dict[str, dict[str, str]] = json.loads(file.read_text()) if file.is_file() else {}
    return manifest


def _hashes(tree: Path) -> dict[str, list[str]]:
    """Folders in `tree` by the hash in their accuracy.txt."""
    found: dict[str, list[str]] = {}
    for scores in sorted(tree.rglob(SCORES)):
        for sha256 in _HASH.findall(scores.read_text()):
            found.setdefault(sha256, []).append(scores.parent.relative_to(tree).as_posix())
    return found
