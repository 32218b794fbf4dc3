"""What is uploaded, as one file: the same tree always gives the same bytes."""

import gzip
import hashlib
import os
import tarfile
from pathlib import Path

_TIME = 315532800  # 1980-01-01, the oldest date that every archive format knows


def archive(tree: Path, submitter: str) -> Path:
    """Pack the folders of `submitter` in `tree` into `<tree>.tar.gz`, and write `<tree>.tar.gz.sha256` for sha256sum.

    Content outside of a submitter's folder is not allowed (submission_rules:410), so none of it is packed.
    """
    target = tree.with_name(f"{tree.name}.tar.gz")
    checksum = tree.with_name(f"{target.name}.sha256")
    packed = _aside(target)
    try:
        _pack(tree, submitter, packed)
        with packed.open("rb") as file:
            sha256 = hashlib.file_digest(file, "sha256").hexdigest()
        _aside(checksum).write_text(f"{sha256}  {target.name}\n")
        checksum.unlink(missing_ok=True)  # an archive without a checksum is better than one with another's
        packed.replace(target)
        _aside(checksum).replace(checksum)
    finally:
        packed.unlink(missing_ok=True)
        _aside(checksum).unlink(missing_ok=True)
    return target


def remove_archive(tree: Path) -> None:
    """Remove the archive of an earlier state of `tree`, and its checksum."""
    target = tree.with_name(f"{tree.name}.tar.gz")
    for file in (target, target.with_name(f"{target.name}.sha256")):
        file.unlink(missing_ok=True)


def _aside(path: Path) -> Path:
    return path.with_name(f"{path.name}.tmp-{os.getpid()}")


def _pack(tree: Path, submitter: str, target: Path) -> None:
    with (
        target.open("wb") as file,
        gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=_TIME) as compressed,
        tarfile.open(fileobj=compressed, mode="w", format=tarfile.PAX_FORMAT) as tar,
    ):
        homes = list(tree.glob(f"*/{submitter}"))
        inside = (path for home in homes for path in (home.parent, home, *home.rglob("*")))
        for path in [tree, *sorted(inside)]:
            name = path.relative_to(tree.parent).as_posix()
            tar.add(path, name, recursive=False, filter=_anonymous)


def _anonymous(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    member.mtime = _TIME
    member.mode = 0o755 if member.isdir() or member.mode & 0o100 else 0o644
    return member
