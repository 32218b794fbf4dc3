"""The accuracy log as it is packaged: both ends of it, and the hash of the whole in accuracy.txt.

The shape is that of tools/submission/truncate_accuracy_log.py, so that running it again changes nothing.
"""

import hashlib
import shutil
from pathlib import Path

ACCURACY_LOG = "mlperf_log_accuracy.json"
ACCURACY_TEXT = "accuracy.txt"

_END = 4096  # bytes kept of each end
_GAP = b"\n\n...\n\n"


def pack_accuracy(run: Path, folder: Path) -> str:
    """Write accuracy.txt and the cut accuracy log of `run` into `folder`; the run stays whole.

    Returns:
        The sha256 of the whole log, which accuracy.txt ends with.
    """
    with (run / ACCURACY_LOG).open("rb") as log:
        sha256 = hashlib.file_digest(log, "sha256").hexdigest()
    _cut(run / ACCURACY_LOG, folder / ACCURACY_LOG)
    (folder / ACCURACY_TEXT).write_text(f"{(run / ACCURACY_TEXT).read_text()}\nhash={sha256}\n")
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
