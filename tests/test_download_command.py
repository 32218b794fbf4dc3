import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from command_line import CommandLine
from downloading import DATA, MODEL, left, publishing
from publisher import Publisher

from harness_llm.errors import EnvironmentMissing
from harness_llm.paths import CHECKOUT, Workspace


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Publisher]:
    with publishing(monkeypatch) as publisher:
        yield publisher


@pytest.fixture
def workspace(server: Publisher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workspace:
    """With one benchmark, whose parts the server has."""
    for name in ("LAB_MODEL", "LAB_DATASET"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HARNESS_LLM_WORKSPACE", str(tmp_path))
    text = (CHECKOUT / "models/demo/benchmark.yaml").read_text()
    data, weights = server.storage("d", {"d.pkl": DATA}, base="d"), server.storage("w", {"w.bin": MODEL}, base="w")
    downloads = (
        f"downloads:\n- {{part: dataset, folder: small, uri: '{data}'}}\n"
        f"- {{part: model, folder: small/orig, uri: '{weights}'}}\n"
    )
    for name, rest in (("small", downloads), ("demo", "")):
        (tmp_path / "models" / name).mkdir(parents=True)
        file = tmp_path / "models" / name / "benchmark.yaml"
        file.write_text(f"{text.replace('name: demo', f'name: {name}')}\n{rest}")
    return Workspace()


@pytest.fixture
def command_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> CommandLine:
    return CommandLine(monkeypatch, capsys)


def test_command_downloads_each_part_to_its_folder(
    workspace: Workspace, server: Publisher, command_line: CommandLine
) -> None:
    done = command_line("download", "--model", "small", "--part", "model")
    assert (done.code, done.out) == (0, f"model: {workspace.models / 'small/orig'}\n")
    assert "model: 300.0 kB of 300.0 kB (100%)" in done.err
    assert left(workspace.root / "build") == ["models/small/orig/w.bin"]
    done = command_line("download", "--model", "small")
    assert done.out == f"dataset: {workspace.data / 'small'}\nmodel: {workspace.models / 'small/orig'}\n"
    assert (workspace.data / "small/d.pkl").read_bytes() == DATA
    assert len(server.content_requests()) == 2


@pytest.mark.parametrize(
    ("words", "refused"),
    [
        ("--model nothing", (2, "unknown benchmark nothing")),
        ("--model small --part calibration", (2, "unknown part of small")),
        ("--model demo", (2, "no downloads for demo")),
        ("--model small --part dataset", (4, "wrong checksum of d.pkl; removed the file")),
    ],
)
def test_wrong_parts_and_models_are_refused(
    workspace: Workspace, server: Publisher, command_line: CommandLine, words: str, refused: tuple[int, str]
) -> None:
    server.contents["/d/d.pkl"] = DATA[::-1]
    done = command_line("download", *words.split())
    assert done.code == refused[0]
    assert f"error: {refused[1]}\n" in done.err
    assert not workspace.data.exists() or left(workspace.data) == []


SCRIPTS = sorted(CHECKOUT.glob("setup/download_*"))


@pytest.mark.parametrize("script", SCRIPTS, ids=[script.name for script in SCRIPTS])
def test_scripts_call_the_program_of_the_checkout_from_any_folder(tmp_path: Path, script: Path) -> None:
    """The program prints its arguments."""
    program = tmp_path / "check out/.venv/bin/harness-llm"
    program.parent.mkdir(parents=True)
    program.write_text('#!/bin/sh\necho "$LAB_MODEL" "$@"\n')
    program.chmod(0o755)
    shutil.copytree(CHECKOUT / "setup", tmp_path / "check out/setup", ignore=shutil.ignore_patterns("__pycache__"))
    copy = tmp_path / "check out/setup" / script.name
    options = ["--model_dir", "elsewhere"] if script.suffix == ".py" else []
    command = [sys.executable, copy, *options] if script.suffix == ".py" else ["sh", copy]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    model = script.stem.removeprefix("download_")
    words = done.stdout.split()
    if script.suffix == ".py":
        assert words == ["elsewhere", "download", "--model", "llama2-70b", "--part", "model"]
    else:
        assert words[:2] == ["download", "--model"]
        assert words[2].replace("-", "_").replace(".", "_") == model
        assert set(words[3:]) <= {"--part", "dataset", "calibration", "livecodebench"}


def test_scripts_without_the_program_name_make_setup(tmp_path: Path) -> None:
    shutil.copytree(CHECKOUT / "setup", tmp_path / "setup", ignore=shutil.ignore_patterns("__pycache__"))
    command = ["/bin/sh", tmp_path / "setup/download_gptj.sh"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={"PATH": "/usr/bin:/bin"})
    assert done.returncode == EnvironmentMissing.exit_code
    assert "hint: make -C" in done.stderr
