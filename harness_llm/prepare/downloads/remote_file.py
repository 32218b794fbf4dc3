"""A file to be fetched, as its publisher describes it."""

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
    """What the content must hash to; `git` is the name of a git blob, all that a repository gives for small files."""

    kind: Literal["md5", "sha256", "git"]
    value: str

    def hasher(self, size: int) -> "_Hash":
        """A hash of this kind over content of `size` bytes, of which nothing has come yet."""
        if self.kind == "git":
            return hashlib.sha1(b"blob %d\0" % size, usedforsecurity=False)
        return hashlib.new(self.kind, usedforsecurity=False)

    def __str__(self) -> str:
        """As the manifest and messages show it."""
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
        """Whether `path` holds it, by reading all of it."""
        if not path.is_file() or path.stat().st_size != self.size:
            return False
        digest = self.checksum.hasher(self.size)
        with path.open("rb") as content:
            while block := content.read(_BLOCK):
                digest.update(block)
        return digest.hexdigest() == self.checksum.value


def require_inside(name: str, listing: str) -> str:
    """`name` as it came in `listing`, which must lead to a file below the folder.

    Raises:
        RunFailed: it leads elsewhere.
    """
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or not path.name or "\0" in name:
        raise RunFailed(
            "a list of files names one outside its folder, so nothing was fetched",
            where=listing,
            found=repr(name),
            hint="this list is broken or forged; report it to its publisher",
        )
    return name


def wanted(names: Sequence[str], patterns: Sequence[str], listing: str) -> list[str]:
    """The `names` that match one of `patterns`, or all if there are none.

    Raises:
        ConfigError: none does.
    """
    chosen = [name for name in names if not patterns or any(fnmatchcase(name, pattern) for pattern in patterns)]
    if not chosen:
        raise ConfigError(
            "none of the files that are published is wanted",
            where=listing,
            expected=", ".join(patterns),
            found=", ".join(names),
            hint="`files` of this download in models/*/benchmark.yaml says which are wanted",
        )
    return chosen
