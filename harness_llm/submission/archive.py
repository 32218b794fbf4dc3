"""The archive that is uploaded; reproducible: the same tree gives the same bytes."""

import gzip
import tarfile
from pathlib import Path

from harness_llm.config.checkpoint import file_digest
from harness_llm.fileio import write_atomically

_TIME = 315532800  # 1980-01-01, the oldest date that every archive format can store


def archive(tree: Path, submitter: str) -> Path:
    """Pack the folders of `submitter` in `tree` into `<tree>.tar.gz`, and write `<tree>.tar.gz.sha256` for sha256sum.

    Content outside the submitter's folder is not packed, because submission_rules:410 forbids it.
    """
    target = tree.with_name(f"{tree.name}.tar.gz")
    checksum = tree.with_name(f"{target.name}.sha256")
    with write_atomically(checksum) as new_checksum, write_atomically(target) as new_archive:
        _pack(tree, submitter, new_archive)
        new_checksum.write_text(f"{file_digest(new_archive)}  {target.name}\n")
        checksum.unlink(missing_ok=True)  # better no checksum than one that does not fit the new archive
    return target


def remove_archive(tree: Path) -> None:
    """Remove the archive of an earlier state of `tree`, and its checksum."""
    target = tree.with_name(f"{tree.name}.tar.gz")
    for file in (target, target.with_name(f"{target.name}.sha256")):
        file.unlink(missing_ok=True)


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
