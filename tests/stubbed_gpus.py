"""The CUDA build of vLLM on GPUs that a stub of NVML describes."""

from collections.abc import Mapping
from pathlib import Path

from harness_llm.hardware.gpus import Gpu
from harness_llm.paths import ENVIRONMENTS

PYTHON = ENVIRONMENTS / ".venv-cuda" / "bin" / "python"


def environment(gpu: Gpu, libraries: Path) -> Mapping[str, str]:
    """Variables with which a process finds eight GPUs of one kind; `libraries` is the fixture of that name."""
    digits = gpu.architecture.removeprefix("sm_")
    return {
        "LD_LIBRARY_PATH": str(libraries),
        "STUB_NVML_COUNT": "8",
        "STUB_NVML_NAME": gpu.name,
        "STUB_NVML_MEMORY_MIB": str(gpu.memory_gb * 1024),
        "STUB_NVML_CAPABILITY": f"{digits[:-1]}.{digits[-1]}",
    }
