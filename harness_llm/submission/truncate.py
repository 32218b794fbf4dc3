"""The accuracy log as it is packaged: both ends of it, and the hash of the whole in accuracy.txt.

The shape is that of tools/submission/truncate_accuracy_log.py.
"""

import shutil
from pathlib import Path

from harness_llm.config.checkpoint import file_digest
from harness_llm.evaluate.accuracy_file import ACCURACY as SCORES
from harness_llm.loadgen.logs import ACCURACY as ANSWERS

TRUNCATED_TESTS = ("TEST07", "TEST09")
"""Compliance tests whose accuracy logs are cut too; that of TEST06 stays whole."""

_END = 4096  # bytes kept of each end
_GAP = b"\n\n...\n\n"


def pack_accuracy(log: Path, folder: Path, scores: str = "") -> str:
    """Write the cut `log` and accuracy.txt into `folder`; the log itself stays whole.

    Args:
        scores: what accuracy.txt says before the hash; compliance tests have no scores there.

    Returns:
        The sha256 of the whole log, which accuracy.txt ends with.
    """
    sha256 = file_digest(log)
    _cut(log, folder / ANSWERS)
    (folder / SCORES).write_text(f"{scores}\nhash={sha256}\n" if scores else f"hash={sha256}\n")
    return sha256


def _cut(source: Path, target: Path) -> None:
    size = source.stat().st_size
    if size <= 2 * _END:
        shutil.copyfile(source, target)
        return
    with source.open("rb") as log:
        head = log.read(_END)
        log.seek(size - _END)
        target.write_bytes(head + _GAP + log.read())
