"""The CUDA build without a GPU: one message before anything is loaded."""

import ctypes
from pathlib import Path

import pytest

from harness_llm.errors import EnvironmentMissing
from harness_llm.replicas.engines import cuda as nvidia
from harness_llm.replicas.engines.engine import ServerSpec, build_engine


class Nvml:
    """NVML as a driver would answer."""

    def __init__(self, code: int = 0, count: int = 0) -> None:
        self.code, self.count = code, count
        self.nvmlErrorString = ErrorString()

    def nvmlInitWithFlags(self, flags: int) -> int:  # noqa: N802 - NVML's name
        return self.code

    def nvmlDeviceGetCount_v2(self, count: object) -> int:  # noqa: N802 - NVML's name
        count._obj.value = self.count  # type: ignore[attr-defined]
        return 0


class ErrorString:
    restype: type = ctypes.c_int

    def __call__(self, code: int) -> bytes:
        assert self.restype is ctypes.c_char_p
        return b"Driver Not Loaded"


@pytest.fixture
def cuda_build(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvidia, "torch_cuda", lambda: (13, 0))
    monkeypatch.setattr(nvidia, "avoid_nvcc", lambda: "")


def answer(monkeypatch: pytest.MonkeyPatch, nvml: Nvml) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda _: nvml)


@pytest.mark.parametrize(
    ("nvml", "problem"),
    [
        (Nvml(code=9), "NVML error 9: Driver Not Loaded"),
        (Nvml(count=0), "the NVIDIA driver reports 0 GPUs"),
        (Nvml(count=8), ""),
    ],
)
def test_gpus_are_counted_by_nvml(monkeypatch: pytest.MonkeyPatch, nvml: Nvml, problem: str) -> None:
    answer(monkeypatch, nvml)
    assert nvidia.gpu_problem() == problem


def test_missing_driver_is_named() -> None:
    assert nvidia.gpu_problem("libno-such-library.so.1") == "no NVIDIA driver is installed"


@pytest.mark.usefixtures("cuda_build")
@pytest.mark.parametrize("engine", ["vllm", "transformers"])
def test_cuda_build_without_a_gpu_is_refused(engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    answer(monkeypatch, Nvml(code=9))
    with pytest.raises(EnvironmentMissing, match="finds no NVIDIA GPU") as caught:
        build_engine(engine, "no-checkpoint", {})
    assert caught.value.expected == "an NVIDIA GPU, and driver 580.65.06 or newer for CUDA 13.0"
    assert caught.value.found == "NVML error 9: Driver Not Loaded"
    assert "nvidia-smi" in caught.value.hint


@pytest.mark.usefixtures("cuda_build")
def test_server_of_this_environment_without_a_gpu_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answer(monkeypatch, Nvml(code=9))
    log = tmp_path / "server.log"
    spec = ServerSpec(kind="vllm", url="", command="", connections=1, attempts=1, timeout_s=60, log=str(log))
    with pytest.raises(EnvironmentMissing, match="finds no NVIDIA GPU"):
        build_engine("openai", "no-checkpoint", {"max_num_seqs": 1}, spec)
    assert not log.exists()


def test_pytorch_build_is_read_without_importing_it() -> None:
    import torch  # noqa: PLC0415 - takes seconds

    assert nvidia.torch_cuda() == (torch.version.cuda and tuple(map(int, torch.version.cuda.split("."))))


@pytest.mark.usefixtures("cuda_build")
def test_process_with_a_gpu_is_prepared(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    answer(monkeypatch, Nvml(count=1))
    monkeypatch.setattr(nvidia, "avoid_nvcc", lambda: "without nvcc")
    nvidia.prepare_cuda()
    assert capsys.readouterr().out == "without nvcc\n"
