"""Downloads: MLCommons' storage and Hugging Face.

Each publisher gives a list of files (`r2`, `hub`); `transfer` brings them over the `wire`, `manifest` remembers them.
"""

import errno
import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rich.filesize import decimal

from harness_llm.config.assets import Report
from harness_llm.config.benchmark import Download
from harness_llm.errors import EnvironmentMissing
from harness_llm.prepare.downloads import huggingface as hub
from harness_llm.prepare.downloads import r2
from harness_llm.prepare.downloads.manifest import Manifest
from harness_llm.prepare.downloads.remote_file import RemoteFile
from harness_llm.prepare.downloads.transfer import Advance, part_path, transfer

_REPORT_EVERY_S = 0.2
_FULL = {errno.ENOSPC, errno.EDQUOT}
_FORBIDDEN = {errno.EACCES, errno.EPERM, errno.EROFS}


def fetch(download: Download, target: Path, report: Report) -> None:
    """Bring `download` into the folder `target`; what is there and verified is left alone, what was cut is continued.

    Raises:
        EnvironmentMissing: the disk is too small, a token, login or licence is missing, or there is no network.
        ConfigError: the token is wrong, or what is configured is not published.
        RunFailed: what comes is not what was published, or the connection keeps breaking.
    """
    source = _source(download)
    with _explained(target):
        manifest = Manifest(target)
        if manifest.has(source):
            report(f"{download.part}: complete", 1.0)
            return
        publisher = r2 if download.uri else hub
        with publisher.connect(download, lambda text: report(text, None)) as wire:
            report(f"{download.part}: asking for the list of {download.uri or download.repo}", None)
            files = publisher.listing(wire, download)
            missing = [file for file in files if not _is_there(file, target, manifest, report)]
            _require_space(missing, target)
            progress = _Progress(report, missing)
            for file in missing:
                transfer(wire, file, target / file.name, progress.of(file.name))
                manifest.add(file)
        manifest.complete(source, [file.name for file in files])


def _source(download: Download) -> str:
    """What the manifest calls it: all that decides which files come."""
    origin = download.uri or f"{download.repo_type} {download.repo}@{download.revision}"
    return " ".join([origin, *download.files])


def _is_there(file: RemoteFile, target: Path, manifest: Manifest, report: Report) -> bool:
    if manifest.knows(file):
        return True
    path = target / file.name
    if path.is_file():
        report(f"{file.name}: checking what is there", None)
    if not file.is_at(path):
        return False
    manifest.add(file)
    return True


def _require_space(files: Sequence[RemoteFile], target: Path) -> None:
    parts = [part_path(target / file.name, file) for file in files]
    needed = sum(file.size for file in files) - sum(part.stat().st_size for part in parts if part.is_file())
    free = _free(target)
    if needed > free:
        raise EnvironmentMissing(
            "the disk is too small for this download",
            where=str(target),
            expected=f"{decimal(needed)} more",
            found=f"{decimal(free)} free",
            hint="free some space, or let LAB_MODEL (models) or LAB_DATASET (data sets) name a folder on another disk",
        )


def _free(target: Path) -> int:
    existing = next(folder for folder in [target, *target.parents] if folder.exists())
    return shutil.disk_usage(existing).free


class _Progress:
    """Bytes of all files together."""

    def __init__(self, report: Report, files: Sequence[RemoteFile]) -> None:
        self._report, self._total, self._done = report, sum(file.size for file in files), 0
        self._spoken = 0.0

    def of(self, name: str) -> Advance:
        """Counts for the file `name`."""

        def advance(count: int) -> None:
            self._done += count
            now = time.monotonic()
            if now - self._spoken >= _REPORT_EVERY_S or self._done == self._total:
                self._spoken = now
                self._report(
                    f"{name}: {decimal(self._done)} of {decimal(self._total)}", self._done / max(self._total, 1)
                )

        return advance


@contextmanager
def _explained(target: Path) -> Iterator[None]:
    """What the disk may say."""
    try:
        yield
    except OSError as error:
        if error.errno in _FULL:
            raise EnvironmentMissing(
                "the disk became full during a download; the file that did not fit was removed, the others are kept",
                where=str(target),
                found=f"{decimal(_free(target))} free",
                hint="free some space and run the same command again",
            ) from error
        if error.errno in _FORBIDDEN:
            raise EnvironmentMissing(
                "a folder for downloads may not be written",
                where=str(error.filename or target),
                found=str(error.strerror),
                hint="make it yours, or let LAB_MODEL (models) or LAB_DATASET (data sets) name another",
            ) from error
        raise
