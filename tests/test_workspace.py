from pathlib import Path

import pytest

from harness_llm.paths import CHECKOUT, IMAGE_VARIABLE, Workspace, installed_by


def test_workspace_is_the_checkout_unless_another_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HARNESS_LLM_WORKSPACE", raising=False)
    assert Workspace().root == CHECKOUT
    assert (CHECKOUT / "pyproject.toml").is_file()
    monkeypatch.setenv("HARNESS_LLM_WORKSPACE", str(tmp_path / "x" / ".."))
    assert Workspace().root == tmp_path.resolve()


def test_written_files_are_below_build_and_submission(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path)
    for folder in (workspace.logs, workspace.models, workspace.data, workspace.cache):
        assert folder.parent == tmp_path / "build"
    assert workspace.systems.parent == workspace.submission == tmp_path / "submission"
    assert (CHECKOUT / workspace.benchmarks.name).is_dir()
    assert (CHECKOUT / workspace.user_confs.name).is_dir()


def test_packages_of_an_image_are_installed_by_its_build(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(IMAGE_VARIABLE, raising=False)
    assert installed_by("setup") == "make setup"
    monkeypatch.setenv(IMAGE_VARIABLE, "submission")
    command = installed_by("setup").removeprefix("on the host: bash ")
    assert (CHECKOUT / command).is_file()
