"""Checks and preparation of the CUDA build in this process before the engine is loaded.

Without a GPU the CUDA build of vLLM fails late, with a traceback about its configuration.
"""

import ctypes
import importlib.util
import runpy
import sys
from pathlib import Path

from harness_llm.errors import EnvironmentMissing
from harness_llm.hardware.compilers import avoid_nvcc
from harness_llm.hardware.drivers import minimum_driver

_LIBRARY = "libnvidia-ml.so.1"  # NVML, which comes with the driver; vLLM detects GPUs by it
_HINT = "install or load NVIDIA's driver (nvidia-smi must list the GPUs); GPU_NAME=cpu selects the CPU build"


def prepare_cuda() -> None:
    """Prepare this process for the CUDA build, if installed.

    Raises:
        EnvironmentMissing: no driver is installed or loaded, or it finds no GPU.
    """
    cuda = torch_cuda()
    if cuda is None:
        return
    if problem := gpu_problem():
        raise EnvironmentMissing(
            "the CUDA build of vLLM finds no NVIDIA GPU",
            where=_LIBRARY,
            expected=f"an NVIDIA GPU, and driver {minimum_driver(cuda)} or newer for CUDA {cuda[0]}.{cuda[1]}",
            found=problem,
            hint=_HINT,
        )
    if line := avoid_nvcc():
        sys.stdout.write(f"{line}\n")


def torch_cuda() -> tuple[int, int] | None:
    """Return the CUDA version of the installed PyTorch as (major, minor); None for other builds.

    Read from the package's torch/version.py, because importing torch takes seconds.
    """
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        return None
    cuda: str | None = runpy.run_path(str(Path(spec.origin).with_name("version.py"))).get("cuda")
    if cuda is None:
        return None
    major, minor = cuda.split(".")[:2]
    return int(major), int(minor)


def gpu_problem(library: str = _LIBRARY) -> str:
    """Return why NVML reports no GPU; empty if it reports one."""
    try:
        nvml = ctypes.CDLL(library)
    except OSError:
        return "no NVIDIA driver is installed"
    count = ctypes.c_uint()
    if code := nvml.nvmlInitWithFlags(0) or nvml.nvmlDeviceGetCount_v2(ctypes.byref(count)):
        nvml.nvmlErrorString.restype = ctypes.c_char_p
        return f"NVML error {code}: {nvml.nvmlErrorString(code).decode()}"
    return "" if count.value else "the NVIDIA driver reports 0 GPUs"
