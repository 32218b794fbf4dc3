"""Write access to folders, by creating a file: permissions do not show read-only mounts, quotas and full disks."""

import errno
import os
import shlex
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from harness_llm.errors import EnvironmentMissing

PREFIX = ".harness-llm-"
_BLOCK = bytes(4096)  # a full disk still creates an empty file
_HINTS = {
    errno.EACCES: "sudo chown -R {owner} {folders}",
    errno.EPERM: "sudo lsattr -d {folders} shows i for an immutable folder; sudo chattr -i {folders}",
    errno.EROFS: "findmnt --target {folders} shows the read-only mount: sudo mount -o remount,rw MOUNT",
    errno.ENOSPC: "free disk space or inodes: df -h {folders}; df -i {folders}",
    errno.EDQUOT: "free some of the quota: quota -s",
}
_MAKE = "sudo mkdir -p {folders} && sudo chown {owner} {folders}"


class Place(NamedTuple):
    """A folder to be written, which need not exist, and the variable that selects another one, if any."""

    folder: Path
    variable: str = ""


def existing_part(path: Path) -> Path:
    """Return `path` if it exists, else its closest existing parent; a link to a missing folder exists."""
    return next(part for part in (path, *path.parents) if os.path.lexists(part))


def write_error(folder: Path) -> OSError | None:
    """Return the error of creating a file in the folder; None if it succeeds."""
    try:
        with tempfile.NamedTemporaryFile(prefix=PREFIX, dir=folder) as file:
            file.write(_BLOCK)
            file.flush()
    except OSError as error:
        return error
    return None


def access_errors(
    places: Iterable[Place],
    owner: str = '"$USER"',
    try_folder: Callable[[Path], OSError | None] = write_error,
) -> list[EnvironmentMissing]:
    """Return one error for each cause that prevents writing.

    Args:
        owner: user who has to write, for chown.
        try_folder: as `write_error`.
    """
    wanted: dict[Path, list[Place]] = {}
    for place in places:
        wanted.setdefault(Path(os.path.realpath(existing_part(place.folder))), []).append(place)
    causes: dict[tuple[int, str], list[Place]] = {}
    for part, inside in wanted.items():
        if error := try_folder(part):
            causes.setdefault((error.errno or 0, str(error.strerror)), []).extend(inside)
    return [_explain(number, cause, _outermost(found), owner) for (number, cause), found in causes.items()]


def _outermost(places: Sequence[Place]) -> list[Place]:
    """Return the places without those inside of others, which have the same cause."""
    real = {Path(os.path.realpath(place.folder)): place for place in reversed(places)}
    return [place for folder, place in reversed(real.items()) if real.keys().isdisjoint(folder.parents)]


def _explain(number: int, cause: str, places: Sequence[Place], owner: str) -> EnvironmentMissing:
    folders = [place.folder for place in places]
    others = [f"set {place.variable} to another folder" for place in places if place.variable]
    return EnvironmentMissing(
        "no write access",
        where=", ".join(map(str, folders)),
        found=cause,
        hint=", or ".join([*_hints(number, folders, owner), *others]),
    )


def _hints(number: int, folders: Sequence[Path], owner: str) -> Iterator[str]:
    missing = [folder for folder in folders if number == errno.EACCES and not os.path.lexists(folder)]
    existing = [existing_part(folder) for folder in folders if folder not in missing]
    for hint, concerned in ((_HINTS.get(number, ""), existing), (_MAKE, missing)):
        if hint and concerned:
            yield hint.format(owner=owner, folders=shlex.join(map(os.path.realpath, concerned)))
