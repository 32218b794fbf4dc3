"""The sentence splitter is found in its folder; a missing one is reported before a run."""

import os
import sys
from pathlib import Path

import nltk
import punkt
import pytest

from harness_llm.errors import EnvironmentMissing
from harness_llm.evaluate import sentence_splitter
from harness_llm.evaluate.sentence_splitter import fetch_splitter, find_splitter, has_splitter, splitter_folder
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
