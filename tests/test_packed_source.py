"""The packed source is called the program of the runs only where their fingerprints say so."""

from pathlib import Path

import pytest
from packages import pack
from runs import BENCHMARK, SUBJECT, write_all

from harness_llm.paths import Workspace
from harness_llm.runs.fingerprint import source_digest
from harness_llm.submission import tree as tree_module

OTHER = "0" * 64


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workspace:
    monkeypatch.setenv("HARNESS_LLM_WORKSPACE", str(tmp_path))
    monkeypatch.setattr(tree_module, "_PROGRAM", ("pyproject.toml",))
    return Workspace(tmp_path)


def packed(workspace: Workspace, *scenarios: str) -> tuple[list[str], str]:
    """Notices on the source, and its README.md."""
    made = pack(workspace, *scenarios)
    notices = [notice for notice in made.notices if "packed source" in notice]
    return notices, (made.tree / f"open/Acme/src/{BENCHMARK}/harness-llm/README.md").read_text()


def test_runs_of_another_source_are_named(workspace: Workspace) -> None:
    write_all(workspace.logs, "Offline", fingerprint=SUBJECT | {"harness_llm": source_digest()})
    write_all(workspace.logs, "Server", fingerprint=SUBJECT | {"harness_llm": OTHER})
    (notice,), readme = packed(workspace, "Offline", "Server")
    assert notice.startswith(
        "the packed source is not the program that made Server performance, Server accuracy, Server TEST06;"
    )
    assert f"has the same digest, `harness_llm: {source_digest()}`." in readme
    assert f"- Server accuracy, `harness_llm: {OTHER}`\n" in readme
    assert "- Offline" not in readme


def test_source_of_all_runs_has_no_notice(workspace: Workspace) -> None:
    write_all(workspace.logs, fingerprint=SUBJECT | {"harness_llm": source_digest()})
    notices, readme = packed(workspace)
    assert not notices
    assert "Another state" not in readme
