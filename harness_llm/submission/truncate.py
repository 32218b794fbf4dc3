"""Truncated accuracy logs, and accuracy.txt with the hash of the complete log.

The format is that of tools/submission/truncate_accuracy_log.py.
"""

import shutil
from pathlib import Path

from harness_llm.config.checkpoint import file_digest
from harness_llm.evaluate.accuracy_file import ACCURACY as SCORES
from harness_llm.loadgen.logs import ACCURACY as ANSWERS

TRUNCATED_TESTS = ("TEST07", "TEST09")
"""Compliance tests whose accuracy logs are truncated; the log of TEST06 is packaged completely."""

_END = 4096  # bytes kept of each end
_GAP = b"\n\n...\n\n"


def pack_accuracy(log: Path, folder: Path, scores: str = "") -> str:
    """Write the truncated `log` and accuracy.txt into `folder`; `log` itself is not changed.

    Args:
        scores: text of accuracy.txt before the hash; empty for compliance tests.

    Returns:
        sha256 of the complete log, the last line of accuracy.txt.
    """
    sha256 = file_digest(log)
    _truncate(log, folder / ANSWERS)
    (folder / SCORES).write_text(f"{scores}\nhash={sha256}\n" if scores else f"hash={sha256}\n")
    return sha256


def _truncate(source: Path, target: Path) -> None:
    size = source.stat().st_size
    if size <= 2 * _END:
        shutil.copyfile(source, target)
        return
    with source.open("rb") as log:
        head = log.read(_END)
        log.seek(size - _END)
        target.write_bytes(head + _GAP + log.read())
