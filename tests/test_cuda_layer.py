"""Installation of the CUDA build: the calls of uv, and the refusal of a wrong PyTorch."""

from pathlib import Path

import pytest

from harness_llm.errors import EnvironmentMissing
from setup import environments, layers
from setup.layers import LAYERS, LOCKED, CudaLayer

CHECKOUT = Path(__file__).resolve().parents[1]
CUDA = [layer for layer in LOCKED if isinstance(layer, CudaLayer)]


class RecordedUv:
    """Records the calls and runs no command."""

    no_index = False

    def __init__(self) -> None:
        self.calls: list[tuple[tuple[str, ...], bool]] = []

    def __call__(self, *arguments: str, find_links: bool = True) -> None:
        self.calls.append((arguments, find_links))

    def offers(self, python: str, package: str) -> bool:
        return True


@pytest.fixture
def recorded_uv(monkeypatch: pytest.MonkeyPatch) -> RecordedUv:
    recorded = RecordedUv()
    monkeypatch.setattr(environments, "Uv", lambda *_: recorded)
    monkeypatch.chdir(CHECKOUT)
    return recorded


def test_cuda_layers_are_locked_without_constraints_and_wheel_folders(recorded_uv: RecordedUv) -> None:
    environments.lock(())
    calls = {Path(call[call.index("--output-file") + 1]).stem: (call, links) for call, links in recorded_uv.calls}
    for name in ("cuda", "quantize-cuda"):
        call, links = calls[name]
        assert not links
        assert not {"--constraints", "--torch-backend"} & {*call}
    for name in ("cpu", "quantize", "quark"):
        call, links = calls[name]
        assert links
        assert call[call.index("--constraints") + 1].endswith("/constraints.txt")


@pytest.mark.parametrize("layer", CUDA, ids=lambda layer: layer.name)
def test_installation_excludes_the_cpu_build_and_checks_the_result(
    layer: CudaLayer, recorded_uv: RecordedUv, monkeypatch: pytest.MonkeyPatch
) -> None:
    checked: list[Path] = []
    monkeypatch.setattr(layers, "check_cuda_build", checked.append)
    layer.install(recorded_uv)
    assert checked == [layer.python]
    install = recorded_uv.calls[1][0]
    assert f"torch==={layers.pinned(layer.packages, 'torch').partition('==')[2]}" in install
    assert install[install.index("--requirement") + 1] == f"setup/requirements/{layer.name}.txt"


def interpreter(folder: Path, output: str, code: int = 0) -> Path:
    """A program that prints what an interpreter with some build of PyTorch would print."""
    program = folder / "python"
    program.write_text(f"#!/bin/sh\necho '{output}'\nexit {code}\n")
    program.chmod(0o755)
    return program


def test_cuda_build_is_accepted(tmp_path: Path) -> None:
    layers.check_cuda_build(interpreter(tmp_path, "2.13.0+cu130 13.0"))


@pytest.mark.parametrize(("output", "code"), [("2.13.0+cpu None", 0), ("2.13.0 None", 0), ("", 1)])
def test_other_builds_of_pytorch_are_refused(tmp_path: Path, output: str, code: int) -> None:
    with pytest.raises(EnvironmentMissing, match="not a CUDA build") as caught:
        layers.check_cuda_build(interpreter(tmp_path, output, code))
    assert caught.value.where == str(tmp_path / "python")


def test_check_after_the_installation_refuses_the_cpu_build(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentMissing, match=r"found: 2\.13\.0\+cpu"):
        layers.check_cuda_build(LAYERS["cpu"].python.absolute())
