"""A file to download: name, URL, size and checksum as published."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Literal

from harness_llm.errors import ConfigError, RunFailed

if TYPE_CHECKING:
    from hashlib import _Hash

_BLOCK = 1 << 20


@dataclass(frozen=True)
class Checksum:
    """Expected checksum; `git` is the id of a git blob, Hugging Face's only checksum of small files."""

    kind: Literal["md5", "sha256", "git"]
    value: str

    def hasher(self, size: int) -> "_Hash":
        """Return a new hash object for content of `size` bytes."""
        if self.kind == "git":
            return hashlib.sha1(b"blob %d\0" % size, usedforsecurity=False)
        return hashlib.new(self.kind, usedforsecurity=False)

    def __str__(self) -> str:
        """Return the text for manifest and messages."""
        return f"{self.kind} {self.value}"


@dataclass(frozen=True)
class RemoteFile:
    """One file.

    Attributes:
        name: its path below the folder, with slashes.
        size: bytes.
    """

    name: str
    url: str
    size: int
    checksum: Checksum

    def is_at(self, path: Path) -> bool:
        """Return whether the content of `path` has this size and checksum."""
        if not path.is_file() or path.stat().st_size != self.size:
            return False
        digest = self.checksum.hasher(self.size)
        with path.open("rb") as content:
            while block := content.read(_BLOCK):
                digest.update(block)
        return digest.hexdigest() == self.checksum.value


def require_inside(name: str, listing: str) -> str:
    """Return `name` if it is a path below the folder.

    Raises:
        RunFailed: the path is outside the folder; `where` is `listing`.
    """
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or not path.name or "\0" in name:
        raise RunFailed(
            "file name outside the folder in a file list; downloaded no file",
            where=listing,
            found=repr(name),
            hint="the list is damaged or forged; report it to its publisher",
        )
    return name


def select(names: Sequence[str], patterns: Sequence[str], listing: str) -> list[str]:
    """Return the `names` that match one of `patterns`; all without patterns.

    Raises:
        ConfigError: no match.
    """
    chosen = [name for name in names if not patterns or any(fnmatchcase(name, pattern) for pattern in patterns)]
    if not chosen:
        raise ConfigError(
            "no published file matches",
            where=listing,
            expected=", ".join(patterns),
            found=", ".join(names),
            hint="correct `files` of this download in models/*/benchmark.yaml",
        )
    return chosen
