import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness_llm.replicas.pool_folder import LOCK, PREFIX, PoolFolder, sweep

pytestmark = pytest.mark.processes


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def abandoned(folder: Path) -> Path:
    """What a replica pool leaves that was killed with its parent."""
    folder.mkdir()
    (folder / LOCK).touch()
    (folder / "replica-0.0").touch()
    return folder


def test_folders_of_killed_pools_are_removed_by_the_next_pool(temporary: Path) -> None:
    gone = abandoned(temporary / f"{PREFIX}gone")
    foreign = abandoned(temporary / "harness-llm-something")
    folder = PoolFolder()
    assert not gone.exists()
    assert foreign.exists()
    assert folder.path.stat().st_mode & 0o777 == 0o700
    folder.remove()
    assert sorted(temporary.iterdir()) == [foreign]


def test_folder_of_a_running_pool_is_kept(temporary: Path) -> None:
    one = PoolFolder()
    unlocked = temporary / f"{PREFIX}beginning"  # made a moment ago, its lock to come
    unlocked.mkdir()
    other = PoolFolder()
    sweep()
    assert one.path.is_dir()
    assert other.path.is_dir()
    assert unlocked.is_dir()
    for folder in (one, other):
        folder.remove()
