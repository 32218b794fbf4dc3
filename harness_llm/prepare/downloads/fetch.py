"""Fetch one download into a folder: list the files (`r2`, `huggingface`), transfer and record them."""

import errno
import functools
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

from rich.filesize import decimal

from harness_llm.config.assets import Report
from harness_llm.config.benchmark import Download
from harness_llm.errors import EnvironmentMissing
from harness_llm.paths import DATA_VARIABLE, MODELS_VARIABLE
from harness_llm.prepare.downloads import huggingface as hub
from harness_llm.prepare.downloads import r2
from harness_llm.prepare.downloads.http import Connection
from harness_llm.prepare.downloads.manifest import Manifest
from harness_llm.prepare.downloads.parallel import transfer_all
from harness_llm.prepare.downloads.progress import Progress
from harness_llm.prepare.downloads.remote_file import RemoteFile
from harness_llm.prepare.downloads.transfer import part_path, transfer

_FOLDERS = f"set {MODELS_VARIABLE} (models) or {DATA_VARIABLE} (data sets) to"
FREE_SPACE = f"free disk space, or {_FOLDERS} a folder on another disk"
_FULL = {errno.ENOSPC, errno.EDQUOT}
_FORBIDDEN = {errno.EACCES, errno.EPERM, errno.EROFS}


def fetch(download: Download, target: Path, report: Report) -> None:
    """Download into the folder `target`; keep verified files, resume interrupted files.

    Raises:
        EnvironmentMissing: not enough disk space, no network, or a token, login or licence is missing.
        ConfigError: invalid token, or the configured source does not exist.
        RunFailed: wrong size or checksum, or repeated connection errors.
    """
    source = source_of(download)
    progress = Progress(report, download.part)
    with _disk_errors(target):
        manifest = Manifest(target)
        if manifest.has(source):
            progress.step(f"{download.part}: complete", 1.0)
            return
        publisher = _publisher(download)
        with publisher.connect(download, progress.step) as connection:
            progress.step(f"{download.part}: listing files of {download.uri or download.repo}")
            files = publisher.listing(connection, download)
            missing = [file for file in files if not _is_present(file, target, manifest, progress)]
            _require_space(missing, target)
            progress.expect(missing)
            one = functools.partial(_transfer, connection, target, progress)
            transfer_all(missing, one, manifest.add, progress.stop)
        manifest.complete(source, [file.name for file in files])


def require_access(download: Download, *, readable: bool) -> None:
    """Require that the files of `download` can be listed and, if `readable`, that one of them can be read.

    Raises:
        Unreachable: no connection to the publisher.
        EnvironmentMissing: a token, login or licence is missing.
        ConfigError: invalid token, or the configured source does not exist.
        RunFailed: another failure, which may end by itself.
    """
    publisher = _publisher(download)
    with publisher.connect(download, lambda _: None, brief=True) as connection:
        files = publisher.listing(connection, download)
        if readable:
            connection.require_content(min(files, key=lambda file: file.size).url)


def _publisher(download: Download) -> ModuleType:
    return r2 if download.uri else hub


def _transfer(connection: Connection, target: Path, progress: Progress, file: RemoteFile) -> None:
    transfer(connection, file, target / file.name, progress.advance)


def source_of(download: Download) -> str:
    """Return the manifest's key: everything that determines the set of files."""
    origin = download.uri or f"{download.repo_type} {download.repo}@{download.revision}"
    return " ".join([origin, *download.files])


def _is_present(file: RemoteFile, target: Path, manifest: Manifest, progress: Progress) -> bool:
    if manifest.is_verified(file):
        return True
    path = target / file.name
    if path.is_file():
        progress.step(f"{file.name}: verifying checksum")
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
            "not enough disk space for this download",
            where=str(target),
            expected=f"{decimal(needed)} free",
            found=f"{decimal(free)} free",
            hint=FREE_SPACE,
        )


def _free(target: Path) -> int:
    existing = next(folder for folder in [target, *target.parents] if folder.exists())
    return shutil.disk_usage(existing).free


@contextmanager
def _disk_errors(target: Path) -> Iterator[None]:
    """Convert OS errors of the disk to EnvironmentMissing."""
    try:
        yield
    except OSError as error:
        if error.errno in _FULL:
            raise EnvironmentMissing(
                "disk full during a download",
                where=str(target),
                found=f"{decimal(_free(target))} free",
                hint="free some space and run the same command again: it resumes the download",
            ) from error
        if error.errno in _FORBIDDEN:
            raise EnvironmentMissing(
                "no write permission in the download folder",
                where=str(error.filename or target),
                found=str(error.strerror),
                hint=f"change its owner, or {_FOLDERS} another folder",
            ) from error
        raise
