"""The source that a run stores: its files, its archive, and archives that were changed."""

import io
import tarfile
from pathlib import Path

import pytest
from packages import DEMO, make_workspace
from runs import short_source

from harness_llm.errors import ConfigError
from harness_llm.paths import CHECKOUT, Workspace
from harness_llm.runs.stored_source import (
    STORED,
    SourceFile,
    different_files,
    pack,
    present_source,
    read_stored,
    remember_source,
    source_at_start,
    source_of,
    write_source,
)


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workspace:
    return make_workspace(tmp_path, monkeypatch)


def test_source_has_program_settings_and_targets() -> None:
    found = present_source(Workspace(CHECKOUT))
    assert {"pyproject.toml", "harness_llm/runs/record.py", "harness_llm/config/rules/v6.1.yaml"} <= found.keys()
    assert {"setup/Dockerfile", "models/gpus.yaml", "models/demo/benchmark.yaml", "code/user_cpu.conf"} <= found.keys()
    assert not [name for name in found if "__pycache__" in name or "/." in name or ".egg-info" in name]


def test_caches_hidden_files_and_weights_are_no_source(workspace: Workspace) -> None:
    before = short_source(workspace)
    for litter in ("demo/.cpu.yaml", ".ipynb_checkpoints/gpus.yaml", "__pycache__/a.yaml", "demo/model.safetensors"):
        file = workspace.benchmarks / litter
        file.parent.mkdir(exist_ok=True)
        file.touch()
    assert short_source(workspace) == before


def test_settings_of_other_benchmarks_are_left_out() -> None:
    names = source_of(DEMO, present_source(Workspace(CHECKOUT))).keys()
    assert {"models/gpus.yaml", "models/demo/benchmark.yaml", "code/user_cpu.conf", "Makefile"} <= names
    folders = {name.split("/")[1] for name in names if name.startswith("models/") and name.count("/") > 1}
    assert folders == {DEMO.name, DEMO.settings}


def test_stored_source_is_read_back(workspace: Workspace) -> None:
    script = workspace.user_confs / "user_run.conf"
    script.write_text("#!/bin/sh\n")
    script.chmod(0o755)
    source = short_source(workspace)
    (workspace.root / STORED).write_bytes(pack(source))
    assert read_stored(workspace.root) == source
    write_source(source, workspace.root / "copy")
    copied = workspace.root / "copy/code/user_run.conf"
    assert copied.read_text() == "#!/bin/sh\n"
    assert copied.stat().st_mode & 0o111 == 0o111
    assert not (workspace.root / "copy/pyproject.toml").stat().st_mode & 0o111


def test_equal_sources_have_equal_archives(workspace: Workspace) -> None:
    first = pack(short_source(workspace))
    (workspace.user_confs / "user_cpu.conf").touch()
    assert pack(dict(reversed(short_source(workspace).items()))) == first


def test_source_is_that_of_the_start_of_the_command(workspace: Workspace) -> None:
    remember_source(workspace)
    first = source_at_start(workspace)
    (workspace.user_confs / "user_cpu.conf").write_text("*.Offline.target_qps = 300\n")
    assert source_at_start(workspace) == first
    remember_source(workspace)
    assert source_at_start(workspace) != first


def test_different_files_are_those_that_changed_and_those_of_one_source() -> None:
    one = {name: SourceFile(name.encode()) for name in ("a", "b", "c")}
    other = {"a": SourceFile(b"a"), "b": SourceFile(b"b", executable=True), "d": SourceFile(b"d")}
    assert different_files(one, other) == ["b", "c", "d"]


def test_run_of_an_earlier_version_has_no_source(tmp_path: Path) -> None:
    assert read_stored(tmp_path) is None


@pytest.mark.parametrize("name", ["../evil", "/evil", "a/../../evil"])
def test_files_outside_the_source_are_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / STORED).write_bytes(pack({name: SourceFile(b"evil")}))
    with pytest.raises(ConfigError, match="damaged source of a run"):
        read_stored(tmp_path)


def test_links_are_refused(tmp_path: Path) -> None:
    link = tarfile.TarInfo("models")
    link.type, link.linkname = tarfile.SYMTYPE, "/etc"
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w:gz") as tar:
        tar.addfile(link)
    (tmp_path / STORED).write_bytes(target.getvalue())
    with pytest.raises(ConfigError, match="models is no file of a source"):
        read_stored(tmp_path)


@pytest.mark.parametrize("keep", [0, 10, -5])
def test_damaged_archive_is_named(tmp_path: Path, keep: int) -> None:
    (tmp_path / STORED).write_bytes(pack({"a": SourceFile(b"a" * 10_000)})[:keep])
    with pytest.raises(ConfigError, match="damaged source of a run"):
        read_stored(tmp_path)
