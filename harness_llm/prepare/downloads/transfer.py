"""One file from the wire to the disk: its name appears when its size and checksum are right."""

import fcntl
import glob
import os
from collections.abc import Callable
from io import FileIO
from pathlib import Path

import httpx

from harness_llm.errors import EnvironmentMissing, RunFailed
from harness_llm.prepare.downloads.http import Wire
from harness_llm.prepare.downloads.remote_file import RemoteFile

Advance = Callable[[int], None]
"""Is told how many bytes more are there; fewer, if negative."""

_SUFFIX = ".part"
_SHORT = 8
_BLOCK = 1 << 20


class _Spoiled(RunFailed):
    """What has come is not the beginning of the file."""


def part_path(path: Path, file: RemoteFile) -> Path:
    """Where the beginning of `file` waits for the rest; it bears the checksum, so that it never continues another."""
    return path.with_name(f"{path.name}.{file.checksum.value[:_SHORT]}{_SUFFIX}")


def transfer(wire: Wire, file: RemoteFile, path: Path, advance: Advance) -> None:
    """Fetch `file` to `path`, continuing what an earlier call left.

    Raises:
        RunFailed: its size or checksum is not what was published, or it does not come.
        EnvironmentMissing: the server cannot be reached, or another process fetches this file.
        OSError: the disk is full; nothing is left.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = part_path(path, file)
    _remove_stale(path, temporary)
    with temporary.open("a+b", buffering=0) as stream:
        _lock(stream, path)
        part = _Part(stream, file, advance)
        try:
            wire.patiently(lambda: _continue(wire, file, part), lambda: part.size)
            part.verify()
            os.fsync(stream.fileno())
        except (_Spoiled, OSError):
            part.restart()
            raise
        finally:
            if file.size and not part.size:
                temporary.unlink()
    temporary.replace(path)


class _Part:
    """The beginning of a file, as long as it has come."""

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
        """Write `chunk`; what does not fit into the file that was announced is never written."""
        if self.size + len(chunk) > self._file.size:
            raise self._wrong_size(f"more than {self._file.size} bytes")
        rest = memoryview(chunk)
        while rest:  # a raw write may take less than it is given, above all when the disk is nearly full
            written = self._stream.write(rest)
            self._count(rest[:written])
            rest = rest[written:]

    def restart(self) -> None:
        """Forget what has come."""
        self._stream.truncate(0)
        self._advance(-self.size)
        self.size = 0
        self._digest = self._file.checksum.hasher(self._file.size)

    def require_announced(self, total: int | None) -> None:
        """The server must speak of a file of the same size as before."""
        if total not in {None, self._file.size}:
            raise self._wrong_size(f"{total} bytes")

    def verify(self) -> None:
        """What has come must be what was published."""
        if self._digest.hexdigest() != self._file.checksum.value:
            raise _Spoiled(
                f"the checksum of {self._file.name} is wrong, so it was thrown away",
                where=self._file.url,
                expected=str(self._file.checksum),
                found=f"{self._file.checksum.kind} {self._digest.hexdigest()}",
                hint="run the same command again; if it stays wrong, what is published there is damaged",
            )

    def _wrong_size(self, found: str) -> _Spoiled:
        return _Spoiled(
            f"the size of {self._file.name} is wrong, so it was thrown away",
            where=self._file.url,
            expected=f"{self._file.size} bytes",
            found=found,
            hint="run the same command again; if it stays wrong, what is published there is damaged",
        )


def _continue(wire: Wire, file: RemoteFile, part: _Part) -> None:
    if part.size == file.size:
        return
    with wire.stream(file.url, part.size) as response:
        if part.size and response.status_code == httpx.codes.OK:  # it knows no ranges
            part.restart()
        part.require_announced(_total(response))
        for chunk in response.iter_raw():
            part.append(chunk)


def _total(response: httpx.Response) -> int | None:
    """The size of the whole file, if `response` says; 206 says it as `bytes 10-99/100`."""
    text = response.headers.get("Content-Range", "").rpartition("/")[2] or response.headers.get("Content-Length", "")
    return int(text) if text.isdecimal() else None


def _remove_stale(path: Path, current: Path) -> None:
    """Beginnings of what was published under this name before."""
    for old in path.parent.glob(f"{glob.escape(path.name)}.*{_SUFFIX}"):
        if old != current and len(old.name) == len(current.name):
            old.unlink()


def _lock(stream: FileIO, path: Path) -> None:
    try:
        fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise EnvironmentMissing(
            "another process is fetching this file", where=str(path), hint="wait for it, or stop it"
        ) from error
