"""The sentence splitter is found in its folder; a missing one is reported before a run."""

import hashlib
import io
import os
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from urllib.request import urlopen

import nltk
import punkt
import pytest
from publisher import Publisher

from harness_llm.errors import EnvironmentMissing
from harness_llm.evaluate import sentence_splitter
from harness_llm.evaluate.sentence_splitter import (
    PACKAGE,
    fetch_splitter,
    find_splitter,
    has_splitter,
    require_own,
    splitter_folder,
)
from harness_llm.paths import Workspace


@pytest.fixture(autouse=True)
def nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """nltk searches no folder, and no proxy leads anywhere."""
    monkeypatch.setattr(nltk.data, "path", [])
    monkeypatch.setenv("NLTK_DATA", "")
    punkt.forget()


def test_splitter_folder_is_searched_in_this_process_and_its_children(tmp_path: Path) -> None:
    assert not has_splitter(tmp_path)
    punkt.train(tmp_path, ["This is one. This is two. Mr. Smith is three."])
    punkt.forget()
    assert has_splitter(tmp_path)
    assert os.environ["NLTK_DATA"] == str(tmp_path)
    assert nltk.data.path == [str(tmp_path)]


def test_missing_splitter_is_reported_with_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sentence_splitter, "INDEX", "http://127.0.0.1:9/index.xml")
    with pytest.raises(EnvironmentMissing, match="sentence splitter failed") as caught:
        fetch_splitter(tmp_path)
    assert "punkt_tab" in caught.value.expected
    assert caught.value.found
    assert caught.value.hint.startswith(
        f"{sys.executable} -m nltk.downloader -d {splitter_folder(Workspace())} punkt_tab"
    )


def test_command_for_a_missing_splitter_runs_in_the_container(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HARNESS_LLM_IMAGE", "submission")
    with pytest.raises(EnvironmentMissing) as caught:
        find_splitter()
    folder = splitter_folder(Workspace())
    command = f"bash setup/start_submission_env.sh python -m nltk.downloader -d {folder} punkt_tab"
    assert f"on the host: {command}" in caught.value.hint


TEXTS = ["This is one. This is two. Mr. Smith is three."]


@pytest.fixture
def umask() -> Iterator[None]:
    """The umask of users with a group of their own (Debian's pam_umask, RHEL)."""
    before = os.umask(0o002)
    yield
    os.umask(before)


@pytest.mark.filterwarnings("ignore:NLTK will not read data")
def test_data_that_a_group_may_write_is_made_private_because_nltk_does_not_read_it(tmp_path: Path) -> None:
    folder = tmp_path / "nltk"
    folder.mkdir()
    nltk.data.path.append(str(folder))
    punkt.train(folder, TEXTS)
    for path in (folder, *folder.rglob("*")):
        path.chmod(path.stat().st_mode | 0o020)
    punkt.forget()
    assert not has_splitter(folder)
    fetch_splitter(folder)
    assert has_splitter(folder)


@pytest.mark.processes
@pytest.mark.filterwarnings("ignore:NLTK will not")
def test_download_with_a_umask_for_groups_is_read_afterwards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, umask: None
) -> None:
    monkeypatch.setattr(nltk.data, "path", [str(tmp_path / "made")])
    before = os.umask(0o022)
    punkt.train(tmp_path / "made", TEXTS)
    os.umask(before)
    made = tmp_path / "made" / "tokenizers"
    data, unzipped = zipped(made), sum(file.stat().st_size for file in made.rglob("*") if file.is_file())
    folder = tmp_path / "cache" / "nltk"
    monkeypatch.setattr(nltk.data, "path", [])
    monkeypatch.setattr("nltk.downloader.urlopen", urlopen)  # nltk's own refuses the loopback
    punkt.forget()
    with Publisher() as publisher:
        package = f'id="{PACKAGE}" name="x" subdir="tokenizers" unzip="1" size="{len(data)}" unzipped_size="{unzipped}"'
        url, digest = f"{publisher.url}/{PACKAGE}.zip", hashlib.sha256(data).hexdigest()
        index = (
            f'<nltk_data><packages><package {package} sha256_checksum="{digest}" url="{url}"/></packages></nltk_data>'
        )
        publisher.contents |= {"/index.xml": index.encode(), f"/{PACKAGE}.zip": data}
        monkeypatch.setattr(sentence_splitter, "INDEX", f"{publisher.url}/index.xml")
        assert not has_splitter(folder)
        fetch_splitter(folder)
    assert has_splitter(folder)
    assert folder.stat().st_mode & 0o777 == 0o755


def zipped(folder: Path) -> bytes:
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as file:
        for path in sorted(folder.rglob("*")):
            file.write(path, path.relative_to(folder))
    return archive.getvalue()


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give files to another account")
def test_data_of_another_account_is_reported(tmp_path: Path) -> None:
    folder = tmp_path / "nltk"
    folder.mkdir()
    require_own(folder)
    os.chown(folder, 1234, 1234)
    with pytest.raises(EnvironmentMissing, match=r"found: uid 1234\n(.|\n)*sudo chown -R 0 ") as caught:
        fetch_splitter(folder)
    assert caught.value.where == str(folder)
    require_own(tmp_path / "none")
