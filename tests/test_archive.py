"""The archive is reproducible and its checksum is true."""

import os
import subprocess
import tarfile
import time
from pathlib import Path

import pytest

from harness_llm.submission.archive import archive


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    tree = tmp_path / "inference_results_6.1"
    for name in ("open/Acme/b.txt", "open/Acme/a.txt", "closed/Acme/c.txt", "closed/Boost/c.txt", "README.md"):
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_text(name)
    return tree


def test_equal_trees_have_equal_archives(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = archive(tree, "Acme").read_bytes()
    monkeypatch.setattr(time, "time", lambda: 2e9)
    os.utime(tree / "open/Acme/a.txt", (1, 1))
    (tree / "open/Acme/a.txt").chmod(0o600)
    assert archive(tree, "Acme").read_bytes() == first


def test_archive_has_sorted_submitter_folders_without_owner(tree: Path) -> None:
    with tarfile.open(archive(tree, "Acme")) as tar:
        members = tar.getmembers()
    assert [m.name.removeprefix(tree.name) for m in members] == [
        "",
        "/closed",
        "/closed/Acme",
        "/closed/Acme/c.txt",
        "/open",
        "/open/Acme",
        "/open/Acme/a.txt",
        "/open/Acme/b.txt",
    ]
    assert {(m.uid, m.gid, m.uname, m.gname) for m in members} == {(0, 0, "", "")}


def test_checksum_is_accepted_by_sha256sum(tree: Path) -> None:
    target = archive(tree, "Acme")
    checksum = f"{target.name}.sha256"
    subprocess.run(["sha256sum", "-c", checksum], cwd=tree.parent, check=True, capture_output=True)
    assert {p.name for p in tree.parent.iterdir()} == {tree.name, target.name, checksum}


def test_failed_packing_keeps_the_old_archive(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = archive(tree, "Acme")
    before = {p: p.read_bytes() for p in tree.parent.glob("*.tar.gz*")}
    (tree / "open/Acme/a.txt").write_text("new")

    def refuse(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(tarfile.TarFile, "add", refuse)
    with pytest.raises(OSError, match="No space"):
        archive(tree, "Acme")
    assert {p: p.read_bytes() for p in tree.parent.glob("*.tar.gz*")} == before
    assert target in before
