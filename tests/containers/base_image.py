"""A base image where no registry answers: Debian by debootstrap, imported; the archive is kept in build/."""

import tempfile
from pathlib import Path

from dockerd import Dockerd, run

from harness_llm.paths import CHECKOUT

TAG = "harness-llm-test-base:bookworm"
_SUITE = "bookworm"
# What the spec's own base image has, python:3.11-slim, and the tools that the images add to it.
_PACKAGES = ("python3.11", "python3.11-venv", "python3-distutils", "ca-certificates", "git", "make")
_ARCHIVE = CHECKOUT / "build" / "containers" / f"base-{_SUITE}.tar"


def load(dockerd: Dockerd) -> str:
    """Give the image to a daemon; returns its name."""
    dockerd.docker("import", str(archive()), TAG)
    return TAG


def archive() -> Path:
    """The image's files, made when they are asked for the first time."""
    if not _ARCHIVE.is_file():
        _make(_ARCHIVE)
    return _ARCHIVE


def _make(archive: Path) -> None:
    archive.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=archive.parent) as folder:
        root, unfinished = Path(folder, "root"), Path(folder, "base.tar")
        run("debootstrap", "--variant=minbase", f"--include={','.join(_PACKAGES)}", _SUITE, root)
        run("chroot", root, "apt-get", "clean")
        run("tar", "--directory", root, "--create", "--file", unfinished, ".")
        unfinished.rename(archive)
