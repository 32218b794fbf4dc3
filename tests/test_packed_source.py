"""The source in a tree is that of the packaged runs; differences from it are named."""

from pathlib import Path

import pytest
from packages import files, make_workspace, pack
from runs import BENCHMARK, SUBJECT, short_source, write_all

from harness_llm.errors import GateFailed
from harness_llm.paths import Workspace
from harness_llm.runs.fingerprint import SOURCE
from harness_llm.runs.stored_source import STORED, SourceFile
from harness_llm.runs.stored_source import pack as archive

TARGETS = "code/user_cpu.conf"
ONE, OTHER = SUBJECT | {SOURCE: "1" * 64}, SUBJECT | {SOURCE: "0" * 64}
EDITED = SourceFile(b"*.Offline.target_qps = 300\n")


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workspace:
    return make_workspace(tmp_path, monkeypatch)


def edit(workspace: Workspace) -> None:
    (workspace.root / TARGETS).write_bytes(EDITED.content)


def packed(workspace: Workspace, *scenarios: str) -> tuple[list[str], Path]:
    """Notices on the source, and its folder."""
    made = pack(workspace, *scenarios)
    notices = [notice for notice in made.notices if "packed source" in notice]
    return notices, made.tree / f"open/Acme/src/{BENCHMARK}/harness-llm"


def test_source_of_all_runs_and_of_the_present_has_no_notice(workspace: Workspace) -> None:
    write_all(workspace.logs, fingerprint=ONE)
    notices, folder = packed(workspace)
    assert notices == []
    assert files(folder) == {"README.md", *short_source(workspace)}
    readme = (folder / "README.md").read_text()
    assert f"has the same digest, `measuring_source: {ONE[SOURCE]}`." in readme
    assert "another source" not in readme


def test_source_of_the_runs_is_packed_and_not_the_present_one(workspace: Workspace) -> None:
    write_all(workspace.logs)
    before = (workspace.root / TARGETS).read_bytes()
    edit(workspace)
    (workspace.benchmarks / "new.yaml").write_text("new: 1\n")
    notices, folder = packed(workspace)
    assert (folder / TARGETS).read_bytes() == before
    assert not (folder / "models/new.yaml").exists()
    assert notices == ["the present files differ from the packed source: code/user_cpu.conf, models/new.yaml"]


def test_runs_of_another_source_are_named(workspace: Workspace) -> None:
    for run in write_all(workspace.logs, "Offline", hour=1, fingerprint=ONE)[1:]:
        (run.path / STORED).write_bytes(archive({**short_source(workspace), TARGETS: EDITED}))
    notices, folder = packed(workspace)
    assert notices == [f"the packed source is not that of Offline accuracy, Offline TEST06; different files: {TARGETS}"]
    assert (folder / TARGETS).read_bytes() != EDITED.content
    assert f"- Offline accuracy; different files:\n    - `{TARGETS}`\n" in (folder / "README.md").read_text()


def test_source_of_the_newest_performance_run_is_packed(workspace: Workspace) -> None:
    write_all(workspace.logs, "Server", hour=1)
    edit(workspace)
    write_all(workspace.logs, "Offline", hour=2)
    notices, folder = packed(workspace, "Offline", "Server")
    assert (folder / TARGETS).read_bytes() == EDITED.content
    assert [notice.partition(" is ")[2].partition(";")[0] for notice in notices] == [
        "not that of Server performance, Server accuracy, Server TEST06"
    ]


def test_results_that_remain_in_the_tree_with_another_source_are_named(workspace: Workspace) -> None:
    write_all(workspace.logs, "Offline", fingerprint=OTHER)
    write_all(workspace.logs, "Server", fingerprint=ONE)
    pack(workspace, "Offline")
    notices, _ = packed(workspace, "Server")
    assert notices == [
        "the packed source is not that of Offline, packaged before; package all scenarios together",
    ]


def test_run_without_stored_source_is_refused(workspace: Workspace) -> None:
    run = write_all(workspace.logs)[1]
    (run.path / STORED).unlink()
    with pytest.raises(GateFailed, match="lacks its source") as caught:
        pack(workspace)
    assert caught.value.where == str(run.path / STORED)
    assert caught.value.hint == f"remove {run.path}, then harness-llm submit makes demo/Offline/accuracy again"
    assert not list(workspace.submission.glob("inference_results_*"))


def test_long_lists_of_files_are_cut(workspace: Workspace) -> None:
    write_all(workspace.logs)
    for number in range(15):
        (workspace.benchmarks / f"{number:02}.yaml").touch()
    (notice,), _ = packed(workspace)
    assert notice.endswith("models/11.yaml and 3 more")
