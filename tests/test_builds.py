"""Which build of vLLM is set up, by GPU_NAME or by the PCI bus."""

import os
import subprocess
from pathlib import Path

import pytest

from harness_llm.errors import ConfigError, EnvironmentMissing
from harness_llm.hardware.gpus import load_gpus
from harness_llm.hardware.pci import PLATFORMS
from harness_llm.paths import CHECKOUT, Workspace
from setup import builds
from setup.layers import LAYERS

TABLE = (CHECKOUT / "models/gpus.yaml").read_text()
GPUS = load_gpus(Workspace(CHECKOUT))
H100, MI300X = GPUS["h100"].pci[0], GPUS["mi300x"].pci[0]


def test_gpu_table_is_read_as_by_the_yaml_reader() -> None:
    assert {name: PLATFORMS[vendor] for name, vendor in builds.vendors(TABLE).items()} == {
        name: gpu.platform for name, gpu in GPUS.items()
    }


@pytest.mark.parametrize(
    ("environ", "on_bus", "expected"),
    [
        ({}, [], "cpu"),
        ({}, [H100], "cuda"),
        ({}, [MI300X], "rocm"),
        ({"GPU_NAME": "h200"}, [], "cuda"),
        ({"GPU_NAME": "h100x16"}, [], "cuda"),
        ({"GPU_NAME": "mi325x"}, [H100], "rocm"),
        ({"GPU_NAME": "my-gpu"}, [H100], "cuda"),
        ({"GPU_NAME": "my-gpu"}, [], "cpu"),
        ({"GPU_NAME": "cpu"}, [H100], "cpu"),
        ({"GPU_NAME": "h100"}, [H100, MI300X], "cuda"),
        ({"STAND_IN": "1"}, [H100], "cpu"),
        ({"STAND_IN": "1", "GPU_NAME": "h100"}, [], "cuda"),
        ({"STAND_IN": "0"}, [H100], "cuda"),
    ],
)
def test_platform_follows_from_pci_devices(environ: dict[str, str], on_bus: list[str], expected: str) -> None:
    assert builds.platform(builds.gpu_name(environ), on_bus, TABLE) == expected


def test_accelerators_of_two_vendors_require_the_gpu_option() -> None:
    with pytest.raises(ConfigError, match="several vendors") as caught:
        builds.platform("", [H100, MI300X], TABLE)
    assert "h100" in caught.value.expected


def test_each_build_has_its_layers() -> None:
    names = ("engine", "loadgen", "quantize", "ray")
    assert builds.layers(names, "cpu") == ["cpu", "loadgen", "quantize", "ray"]
    assert builds.layers(names, "cuda") == ["cuda", "loadgen-cuda", "quantize-cuda", "ray-cuda"]
    assert {LAYERS[key].folder.name for key in builds.layers(names, "cuda")} == {".venv-cuda", ".venv-quantize-cuda"}


def test_rocm_setup_is_refused_with_the_container_commands() -> None:
    with pytest.raises(EnvironmentMissing) as caught:
        builds.layers(("engine",), "rocm")
    commands = ("ENVIRONMENT=container", "setup/build_submission_env.sh", "setup/start_submission_env.sh")
    assert all(command in caught.value.hint for command in commands)


@pytest.fixture
def ensured(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The layers that would have been set up."""
    calls: list[list[str]] = []
    monkeypatch.setattr(builds, "ensure", lambda names: calls.append(list(names)))
    monkeypatch.chdir(CHECKOUT)
    return calls


@pytest.mark.parametrize(
    ("environ", "layers", "folder"),
    [
        ({"GPU_NAME": "cpu"}, ["cpu", "loadgen"], ".venv/bin"),
        ({"GPU_NAME": "h100"}, ["cuda", "loadgen-cuda"], ".venv-cuda/bin"),
        ({"GPU_NAME": "h100", "HARNESS_LLM_LAYERS": "base-host base-ray"}, ["base-host", "base-ray"], ".venv/bin"),
    ],
)
def test_installed_layers_follow_from_the_platform(
    ensured: list[list[str]], environ: dict[str, str], layers: list[str], folder: str
) -> None:
    assert builds.set_up(("engine", "loadgen"), environ) == Path(folder)
    assert ensured == [layers]


@pytest.mark.parametrize("target", ["submission", "setup", "ray", "status", "run_harness"])
def test_make_refuses_rocm_before_the_installation(target: str, tmp_path: Path) -> None:
    environ = {"PATH": os.environ["PATH"], "GPU_NAME": "mi300x", "ENVIRONMENT": "local", "COMPANY": "Acme"}
    before = {path: path.stat().st_mtime_ns for path in CHECKOUT.glob(".venv*")}
    done = subprocess.run(
        ["make", target], cwd=CHECKOUT, env=environ, capture_output=True, text=True, check=False, timeout=60
    )
    assert "AMD GPUs need a container" in done.stderr
    assert "Error 3" in done.stderr
    assert "Traceback" not in done.stderr
    assert {path: path.stat().st_mtime_ns for path in CHECKOUT.glob(".venv*")} == before
