"""Compilers that the CUDA build's kernels need at run time. The images contain them; a bare node may not."""

import os
import shutil
import sys
import sysconfig
from pathlib import Path

_SAMPLER = "VLLM_USE_FLASHINFER_SAMPLER"
_CUDA_HOMES = ("CUDA_HOME", "CUDA_PATH")
_DEFAULT_CUDA_HOME = Path("/usr/local/cuda")


def missing_for_triton() -> list[str]:
    """Return the missing packages for Triton's kernel launchers (triton 3.7, runtime/build.py)."""
    python = f"python{sys.version_info.major}.{sys.version_info.minor}"
    compiler = os.environ.get("CC") or shutil.which("gcc") or shutil.which("clang")
    header = Path(sysconfig.get_paths()["include"], "Python.h")
    return [*([] if compiler else ["gcc"]), *([] if header.is_file() else [f"{python}-dev"])]


def has_nvcc() -> bool:
    """Return whether FlashInfer finds nvcc (flashinfer 0.6.18, jit/cpp_ext.py)."""
    homes = [Path(home) for name in _CUDA_HOMES if (home := os.environ.get(name))]
    found = any((home / "bin" / "nvcc").is_file() for home in (*homes, _DEFAULT_CUDA_HOME))
    return found or shutil.which("nvcc") is not None


def avoid_nvcc() -> str:
    """Select vLLM's own sampler if nvcc is missing; return a log line, empty if unchanged.

    If FlashInfer is installed, vLLM 0.30 samples with it (v1/sample/ops/topk_topp_sampler.py), also in the dummy run at
    its start, and FlashInfer compiles its kernels with nvcc.
    """
    if has_nvcc() or _SAMPLER in os.environ:
        return ""
    os.environ[_SAMPLER] = "0"
    return f"nvcc is not installed: {_SAMPLER}=0"
