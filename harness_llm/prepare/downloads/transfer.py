"""Download one file; it gets its name after its size and checksum are verified."""

import fcntl
import glob
import os
from collections.abc import Callable
from io import FileIO
from pathlib import Path

import httpx

from harness_llm.errors import EnvironmentMissing, RunFailed
from harness_llm.prepare.downloads.http import Connection
from harness_llm.prepare.downloads.remote_file import RemoteFile

Advance = Callable[[int], None]
"""Callback with the number of new bytes; negative for discarded bytes."""

_SUFFIX = ".part"
_SHORT = 8
_BLOCK = 1 << 20


class _WrongContent(RunFailed):
    """The received bytes are not those of the published file."""


def part_path(path: Path, file: RemoteFile) -> Path:
    """Return the path of the partial file; it contains the checksum, so that no other version is resumed."""
    return path.with_name(f"{path.name}.{file.checksum.value[:_SHORT]}{_SUFFIX}")


def transfer(connection: Connection, file: RemoteFile, path: Path, advance: Advance) -> None:
    """Download `file` to `path`; resume an interrupted download.

    Raises:
        RunFailed: wrong size or checksum, or the server fails.
        EnvironmentMissing: server unreachable, or another process downloads this file.
        OSError: disk full; the partial file stays.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = part_path(path, file)
    _remove_stale(path, temporary)
    with temporary.open("a+b", buffering=0) as stream:
        _lock(stream, path)
        part = _Part(stream, file, advance)
        try:
            connection.retry(lambda: _resume(connection, file, part), lambda: part.size)
            part.verify()
            os.fsync(stream.fileno())
        except _WrongContent:
            part.restart()
            raise
        finally:
            if file.size and not part.size:
                temporary.unlink()
    temporary.replace(path)


class _Part:
    """Partial file: the received beginning of a file."""

    def __init__(self, stream: FileIO, file: RemoteFile, advance: Advance) -> None:
        self._stream, self._file, self._advance = stream, file, advance
        self.size = 0
        self._digest = file.checksum.hasher(file.size)
        stream.seek(0)
        while block := stream.read(_BLOCK):
            self._count(block)
        if self.size > file.size:
            self.restart()

    def _count(self, block: bytes | memoryview) -> None:
        self.size += len(block)
        self._digest.update(block)
        self._advance(len(block))

    def append(self, chunk: bytes) -> None:
        """Write `chunk`; bytes beyond the published size are an error and not written."""
        if self.size + len(chunk) > self._file.size:
            raise self._wrong_size(f"more than {self._file.size} bytes")
        rest = memoryview(chunk)
        while rest:  # a raw write may be partial, above all when the disk is nearly full
            written = self._stream.write(rest)
            self._count(rest[:written])
            rest = rest[written:]

    def restart(self) -> None:
        """Discard the received bytes."""
        self._stream.truncate(0)
        discarded, self.size = self.size, 0
        self._digest = self._file.checksum.hasher(self._file.size)
        self._advance(-discarded)

    def require_size(self, total: int | None) -> None:
        """Require that the size in the response, if any, is the published one."""
        if total not in {None, self._file.size}:
            raise self._wrong_size(f"{total} bytes")

    def verify(self) -> None:
        """Require the published checksum."""
        if self._digest.hexdigest() != self._file.checksum.value:
            raise self._wrong(
                "checksum", str(self._file.checksum), f"{self._file.checksum.kind} {self._digest.hexdigest()}"
            )

    def _wrong_size(self, found: str) -> _WrongContent:
        return self._wrong("size", f"{self._file.size} bytes", found)

    def _wrong(self, what: str, expected: str, found: str) -> _WrongContent:
        return _WrongContent(
            f"wrong {what} of {self._file.name}; removed the file",
            where=self._file.url,
            expected=expected,
            found=found,
            hint="run the same command again; if the error remains, the published file is damaged",
        )


def _resume(connection: Connection, file: RemoteFile, part: _Part) -> None:
    if part.size == file.size:
        return
    with connection.stream(file.url, part.size) as response:
        if part.size and response.status_code == httpx.codes.OK:  # no support for ranges
            part.restart()
        part.require_size(_total(response))
        for chunk in response.iter_raw():
            part.append(chunk)


def _total(response: httpx.Response) -> int | None:
    """Return the size of the whole file, from Content-Range (`bytes 10-99/100`) or Content-Length."""
    text = response.headers.get("Content-Range", "").rpartition("/")[2] or response.headers.get("Content-Length", "")
    return int(text) if text.isdecimal() else None


def _remove_stale(path: Path, current: Path) -> None:
    """Remove partial files of other versions of this file."""
    for old in path.parent.glob(f"{glob.escape(path.name)}.*{_SUFFIX}"):
        if old != current and len(old.name) == len(current.name):
            old.unlink()


def _lock(stream: FileIO, path: Path) -> None:
    try:
        fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise EnvironmentMissing(
            "another process is downloading this file", where=str(path), hint="wait for it, or stop it"
        ) from error
