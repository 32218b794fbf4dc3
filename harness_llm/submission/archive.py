"""The archive that is uploaded; reproducible: the same tree gives the same bytes."""

from pathlib import Path

from harness_llm.config.checkpoint import file_digest
from harness_llm.fileio import anonymous, reproducible_archive, write_atomically


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
    with target.open("wb") as file, reproducible_archive(file) as tar:
        homes = list(tree.glob(f"*/{submitter}"))
        inside = (path for home in homes for path in (home.parent, home, *home.rglob("*")))
        for path in [tree, *sorted(inside)]:
            tar.add(path, path.relative_to(tree.parent).as_posix(), recursive=False, filter=anonymous)
