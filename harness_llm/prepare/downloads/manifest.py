"""Manifest of the verified files of a download folder, so that a second call need not hash them again."""

from collections.abc import Sequence
from pathlib import Path

from pydantic import BaseModel, ValidationError

from harness_llm.prepare.downloads.remote_file import RemoteFile

NAME = ".downloads.json"


class _Entry(BaseModel):
    size: int
    mtime_ns: int
    checksum: str


class _Content(BaseModel):
    files: dict[str, _Entry] = {}
    complete: dict[str, list[str]] = {}


class Manifest:
    """Manifest of one folder; a missing or damaged manifest only causes files to be hashed again."""

    def __init__(self, folder: Path) -> None:
        """Read the manifest."""
        self._folder = folder
        try:
            self._content = _Content.model_validate_json((folder / NAME).read_bytes())
        except (FileNotFoundError, NotADirectoryError, ValidationError):
            self._content = _Content()

    def has(self, source: str) -> bool:
        """Return whether all files of `source` are verified and unchanged."""
        names = self._content.complete.get(source, [])
        return bool(names) and all(self._is_unchanged(name) for name in names)

    @property
    def is_interrupted(self) -> bool:
        """Whether files were downloaded and no download into the folder is complete."""
        return bool(self._content.files) and not self._content.complete

    def is_verified(self, file: RemoteFile) -> bool:
        """Return whether `file` was verified and is unchanged."""
        return self._is_unchanged(file.name) and self._content.files[file.name].checksum == str(file.checksum)

    def _is_unchanged(self, name: str) -> bool:
        entry, path = self._content.files.get(name), self._folder / name
        if entry is None or not path.is_file():
            return False
        status = path.stat()
        return (status.st_size, status.st_mtime_ns) == (entry.size, entry.mtime_ns)

    def add(self, file: RemoteFile) -> None:
        """Record `file` as verified."""
        status = (self._folder / file.name).stat()
        self._content.files[file.name] = _Entry(
            size=status.st_size, mtime_ns=status.st_mtime_ns, checksum=str(file.checksum)
        )
        self._write()

    def complete(self, source: str, names: Sequence[str]) -> None:
        """Record `source` as complete with the files `names`."""
        self._content.complete[source] = list(names)
        self._write()

    def _write(self) -> None:
        temporary = self._folder / f"{NAME}.tmp"
        try:
            temporary.write_text(self._content.model_dump_json(indent=1) + "\n")
            temporary.replace(self._folder / NAME)
        finally:
            temporary.unlink(missing_ok=True)
