"""The compilers of the CUDA build on a node without them."""

import os
import sysconfig
from pathlib import Path

import pytest
from asked import options

from harness_llm.config.plan import resolve
from harness_llm.config.request import Request
from harness_llm.hardware import compilers
from harness_llm.paths import CHECKOUT, Workspace
from harness_llm.pipeline.doctor import examination as checks
from harness_llm.pipeline.doctor import software_checks as software
from harness_llm.pipeline.doctor.check_result import Level

SAMPLER = "VLLM_USE_FLASHINFER_SAMPLER"


@pytest.fixture
def bare_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A node without compilers; the folder is on PATH."""
    for name in ("CC", "CUDA_HOME", "CUDA_PATH", SAMPLER):
        monkeypatch.setenv(name, "")  # so that a variable which the test sets is removed at its end
        monkeypatch.delenv(name)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(compilers, "_DEFAULT_CUDA_HOME", tmp_path / "cuda")
    monkeypatch.setattr(sysconfig, "get_paths", lambda: {"include": str(tmp_path / "include")})
    return tmp_path


def program(file: Path) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("#!/bin/sh\n")
    file.chmod(0o755)


def request(engine: str = "vllm") -> Request:
    words = {"model": "llama2-70b", "gpu": "h100", "engine": engine, "scenarios": "Offline"}
    return resolve(options(**words), Workspace(CHECKOUT))


def test_triton_needs_a_c_compiler_and_the_header_of_python(bare_node: Path) -> None:
    [compiler, header] = compilers.missing_for_triton()
    assert (compiler, header[:6], header[-4:]) == ("gcc", "python", "-dev")
    program(bare_node / "clang")
    (bare_node / "include").mkdir()
    (bare_node / "include/Python.h").touch()
    assert compilers.missing_for_triton() == []


def test_without_nvcc_vllm_samples_by_itself(bare_node: Path) -> None:
    assert compilers.avoid_nvcc() == f"nvcc is not installed: {SAMPLER}=0"
    assert os.environ[SAMPLER] == "0"


def test_a_setting_of_the_user_stays(bare_node: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SAMPLER, "1")
    assert compilers.avoid_nvcc() == ""
    assert os.environ[SAMPLER] == "1"


@pytest.mark.parametrize("place", ["nvcc", "cuda/bin/nvcc", "toolkit/bin/nvcc"])
def test_nvcc_is_found_where_flashinfer_finds_it(place: str, bare_node: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(bare_node / place)
    monkeypatch.setenv("CUDA_HOME", str(bare_node / "toolkit"))
    assert compilers.avoid_nvcc() == ""
    assert SAMPLER not in os.environ


@pytest.mark.parametrize(
    ("programs", "level"),
    [((), Level.ERROR), (("gcc", "include/Python.h"), Level.WARNING), (("gcc", "include/Python.h", "nvcc"), Level.OK)],
)
def test_doctor_checks_the_compilers_of_the_cuda_build(
    programs: tuple[str, ...], level: Level, bare_node: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(software, "torch_cuda", lambda: (13, 0))
    for name in programs:
        program(bare_node / name)
    [result] = software.check_compilers(request())
    assert result.level is level
    assert result in checks._software(request(), usable=True)


def test_other_builds_and_engines_need_no_compilers(bare_node: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(software, "torch_cuda", lambda: None)
    assert not list(software.check_compilers(request()))
    monkeypatch.setattr(software, "torch_cuda", lambda: (13, 0))
    assert not list(software.check_compilers(request("replay")))
