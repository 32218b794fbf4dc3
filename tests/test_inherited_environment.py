"""Environment variables that steer engines: which ones, and that every way to start a command passes the same ones."""

import importlib.metadata
import os
import subprocess
from pathlib import Path

import pytest
from makefile import make, stub_checkout

from harness_llm.containers.container_spec import load_spec
from harness_llm.paths import CHECKOUT
from harness_llm.replicas.ray import node
from harness_llm.runs.inherited_environment import FAMILIES, inherited, names_path, steers


# One variable of each family that vendors document for tuning.
@pytest.mark.parametrize(
    "name",
    [
        *("AITER_ONLINE_TUNE", "HSA_NO_SCRATCH_RECLAIM", "GPU_MAX_HW_QUEUES", "HIP_FORCE_DEV_KERNARG"),
        *("HIPBLASLT_TUNING_OVERRIDE_FILE", "ROCBLAS_LAYER", "TENSILE_SOLUTION_SELECTION_METHOD", "MIOPEN_FIND_MODE"),
        *("AMD_DIRECT_DISPATCH", "AMDGCN_USE_BUFFER_OPS", "TRITON_HIP_USE_ASYNC_COPY", "PYTORCH_TUNABLEOP_ENABLED"),
        *(
            "PYTORCH_CUDA_ALLOC_CONF",
            "TORCH_BLAS_PREFER_HIPBLASLT",
            "TORCHINDUCTOR_MAX_AUTOTUNE",
            "CUBLAS_WORKSPACE_CONFIG",
        ),
        *("FLASHINFER_CUDA_ARCH_LIST", "FLASH_ATTENTION_TRITON_AMD_ENABLE", "RCCL_MSCCL_ENABLE", "NCCL_MIN_NCHANNELS"),
        *("UCX_TLS", "GLOO_SOCKET_IFNAME", "FI_PROVIDER", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "KMP_BLOCKTIME"),
        *("GOMP_SPINCOUNT", "ONEDNN_MAX_CPU_ISA", "MALLOC_ARENA_MAX", "LD_PRELOAD", "LD_LIBRARY_PATH"),
        *("SAFETENSORS_FAST_GPU", "TOKENIZERS_PARALLELISM", "VLLM_ROCM_USE_AITER", "NVIDIA_TF32_OVERRIDE"),
    ],
)
def test_tuning_variables_steer(name: str) -> None:
    assert inherited({name: ""}) == {name: ""}


@pytest.mark.parametrize(
    "name",
    [
        *("NVIDIA_API_KEY", "VLLM_API_KEY", "TORCH_TOKEN", "VLLM_S3_SECRET", "CUDA_PASSWORD"),
        *("TRITON_CACHE_DIR", "TRITON_HOME", "TORCHINDUCTOR_CACHE_DIR", "VLLM_CACHE_ROOT", "CUDA_CACHE_PATH"),
        *("GPU_NAME", "GPU_COUNT", "RAY_ADDRESS", "RAY_JOB_ID", "HF_HOME", "HOME", "PATH"),
    ],
)
def test_secrets_caches_and_settings_do_not_steer(name: str) -> None:
    assert not steers(name)


def test_no_family_contains_another_one() -> None:
    prefixes = [prefix for own in FAMILIES.values() for prefix in own]
    assert [(a, b) for a in prefixes for b in prefixes if a != b and a.startswith(b)] == []


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        *(("/opt/lib", True), ("lib:/opt/lib", True), (":/opt/lib", True), ("1", False), ("", False)),
        *(("tcp://10.0.0.1:80", False), ("expandable_segments:True", False), ("libjemalloc.so.2", False)),
    ],
)
def test_paths_are_recognized(value: str, expected: bool) -> None:
    assert names_path(value) == expected


# What harness-llm inherits from a user's shell, started in each way.


def started(folder: Path, way: str, **environ: str) -> dict[str, str]:
    stub_checkout(folder, "env")
    if way == "make":
        text = make("submission", folder=folder, **environ).stdout
    else:
        own = {"PATH": os.environ["PATH"]} | environ
        command = ["sh", folder / way]
        text = subprocess.run(command, cwd="/", env=own, capture_output=True, text=True, check=True).stdout
    return dict(line.split("=", 1) for line in text.splitlines())


WAYS = ("make", "setup/harness_llm.sh", "submission/llama2_70b.sh")


@pytest.mark.parametrize("way", WAYS)
def test_no_way_adds_a_variable_that_steers(way: str, tmp_path: Path) -> None:
    assert inherited(started(tmp_path, way)) == {}


@pytest.mark.parametrize("way", WAYS)
def test_every_way_keeps_an_empty_variable(way: str, tmp_path: Path) -> None:
    environ = {"HIP_VISIBLE_DEVICES": "", "CUDA_VISIBLE_DEVICES": "", "HSA_NO_SCRATCH_RECLAIM": "1"}
    assert inherited(started(tmp_path, way, **environ)) == environ


def test_make_exports_only_given_settings(tmp_path: Path) -> None:
    stub_checkout(tmp_path, "env")
    names = {"COMPANY", "HIP_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "PROFILE", "RUN_AS"}
    done = make("submission", "NVIDIA_VISIBLE_DEVICES=", folder=tmp_path, COMPANY="Acme")
    shown = dict(line.split("=", 1) for line in done.stdout.splitlines())
    assert {name: shown[name] for name in names & shown.keys()} == {"COMPANY": "Acme", "NVIDIA_VISIBLE_DEVICES": ""}


def test_variables_that_containers_set_do_not_steer() -> None:
    own = {name for accelerator in load_spec().accelerators.values() for name in accelerator.environment}
    assert {name for name in own if steers(name)} == {"NVIDIA_DRIVER_CAPABILITIES"}


def test_node_of_a_cluster_reports_the_variables_of_its_engines(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in inherited(os.environ):
        monkeypatch.delenv(name)
    monkeypatch.setattr(importlib.metadata, "version", lambda _: "0")
    # Ray sets these for its workers; the host of a replica removes them.
    for name, value in {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", "RAY_JOB_ID": "01"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("RCCL_MSCCL_ENABLE", "0")
    assert node.read_node_info().inherited == {"RCCL_MSCCL_ENABLE": "0"}


def test_families_are_documented() -> None:
    text = (CHECKOUT / "docs/configuration.md").read_text()
    assert all(f"`{prefix}`" in text for own in FAMILIES.values() for prefix in own)
