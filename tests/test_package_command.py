"""The tree is checked and archived; an archive is always that of the present tree."""

import fcntl
import io
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from asked import options
from rich.console import Console
from runs import BENCHMARK, short_program
from submissions import submission_of

from harness_llm.checker import final_report
from harness_llm.checker.official import OfficialVerdict
from harness_llm.cli import package_command
from harness_llm.cli.package_command import check_and_archive
from harness_llm.config.benchmark import load_benchmark
from harness_llm.config.request import Request, load_request
from harness_llm.errors import GateFailed
from harness_llm.paths import CHECKOUT, Workspace
from harness_llm.pipeline.panel import Panel
from harness_llm.submission import tree as tree_module
from harness_llm.submission.archive import archive
from harness_llm.submission.calibration import Quantization
from harness_llm.submission.documents import Documents
from harness_llm.submission.package import Package
from harness_llm.submission.tree import build_tree, write_calibration

SUMMARY = "Organization,Division\nAcme,open\n"


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workspace:
    monkeypatch.setenv("HARNESS_LLM_WORKSPACE", str(tmp_path))
    short_program(monkeypatch)
    return Workspace(tmp_path)


@pytest.fixture
def submit_request() -> Request:
    return load_request(options(model="demo", gpu="cpu", company="Acme", system_name="box"), Workspace(CHECKOUT))


def build(workspace: Workspace) -> Path:
    submission = submission_of(load_benchmark(BENCHMARK, Workspace(CHECKOUT)))
    return build_tree(submission, {}, Documents({}), workspace)


def archives(tree: Path) -> set[str]:
    return {path.name.removeprefix(tree.name) for path in tree.parent.glob(f"{tree.name}.*")}


def finish(request: Request, tree: Path) -> str:
    """What `check_and_archive` prints on the panel."""
    said = io.StringIO()
    check_and_archive(request, Panel(Console(file=said, width=200)), Package(tree, tree / "manifest.json", [], []))
    return said.getvalue()


def test_tree_that_fails_its_check_has_no_archive(
    workspace: Workspace, submit_request: Request, capsys: pytest.CaptureFixture[str]
) -> None:
    tree = build(workspace)
    (tree / "open" / "Acme" / "results" / "box").mkdir(parents=True)
    with pytest.raises(GateFailed, match="so no archive was made") as caught:
        finish(submit_request, tree)
    assert caught.value.exit_code == 1
    assert capsys.readouterr().out == f"{tree}\n"
    assert tree.is_dir()
    assert archives(tree) == set()


def test_failed_final_report_does_not_prevent_the_archive(
    workspace: Workspace, submit_request: Request, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    script = workspace.root / "inference" / "tools/submission/generate_final_report.py"
    script.parent.mkdir(parents=True)
    script.write_text("raise KeyError('a new benchmark')\n")
    monkeypatch.setattr(final_report, "PYTHON", Path(sys.executable))
    monkeypatch.setattr(package_command, "check_tree", lambda *_: ([], [OfficialVerdict((), 0, [], [], SUMMARY)]))
    monkeypatch.setattr(package_command, "checkout", lambda _: workspace.root / "inference")
    tree = build(workspace)
    assert "no final report: script of the final report failed: KeyError: 'a new benchmark'" in finish(
        submit_request, tree
    )
    assert archives(tree) == {".tar.gz", ".tar.gz.sha256"}
    assert capsys.readouterr().out == f"{tree}\n{tree}.tar.gz\n"


def test_archive_of_a_replaced_tree_is_removed(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    tree = build(workspace)
    archive(tree, "Acme")
    with monkeypatch.context() as patch:
        patch.setattr(tree_module, "write_home_readme", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            build(workspace)
    assert archives(tree) == {".tar.gz", ".tar.gz.sha256"}  # the tree was not replaced
    build(workspace)
    assert archives(tree) == set()
    archive(tree, "Acme")
    write_calibration(submission_of(load_benchmark(BENCHMARK, Workspace(CHECKOUT))), Quantization(), workspace)
    assert archives(tree) == set()


def is_locked(folder: Path) -> bool:
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(handle)
    return False


def test_tree_cannot_be_replaced_between_its_check_and_its_archive(
    workspace: Workspace, submit_request: Request, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree = build(workspace)
    locked: dict[str, bool] = {}

    def watch(name: str, result: Any) -> None:
        def step(*_: object) -> Any:
            locked[name] = is_locked(tree.parent)
            return result

        monkeypatch.setattr(package_command, name, step)

    watch("check_tree", ([], []))
    watch("archive", Path("archive"))
    finish(submit_request, tree)
    assert locked == {"check_tree": True, "archive": True}
    assert not is_locked(tree.parent)
