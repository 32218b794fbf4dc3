"""Variables of the environment that may change an engine's behavior: recorded with each run, passed to containers.

They are part of the fingerprint, on each node of a Ray cluster too. `docs.references` lists the families.
"""

import re
from collections.abc import Mapping

from harness_llm.config.options import declared_options

# Sources: envs.py of vLLM 0.30, PyTorch 2.13, knobs.py of Triton 3.9, "vLLM V1 performance optimization" of ROCm 7.2,
# NCCL's and UCX's user guides, "GNU libgomp". Not RAY_: Ray sets ids and addresses in each of its workers. Not CC and
# PYTHON*: they steer compilers and the interpreter.
FAMILIES: Mapping[str, tuple[str, ...]] = {
    "vLLM, SGLang, TensorRT-LLM": ("VLLM_", "SGLANG_", "SGL_", "TLLM_", "TRTLLM_"),
    "PyTorch, Triton": ("ATEN_", "INDUCTOR_", "PYTORCH_", "TORCH", "TRITON_", "AMDGCN_"),
    "kernel libraries": ("AITER_", "CUTE_DSL_", "CUTLASS_", "DG_", "FLA_", "FLASH", "NVTE_"),
    "CUDA": ("CUBLAS", "CUDA_", "CUDNN_", "NVIDIA_"),
    "ROCm": ("AMD_", "GPU_", "HIP", "HSA_", "MIOPEN_", "ROC", "TENSILE_"),
    "communication": ("FI_", "GLOO_", "MORI_", "MSCCL", "NCCL_", "NVSHMEM_", "OFI_", "RCCL_", "UCX_"),
    "threads and kernels on CPUs": ("DNNL_", "GOMP_", "KMP_", "MKL_", "OMP_", "ONEDNN_", "OPENBLAS_"),
    "memory allocation, dynamic linker": ("GLIBC_TUNABLES", "LD_", "MALLOC_"),
    "Hugging Face": ("RAYON_", "SAFETENSORS_", "TOKENIZERS_"),
}
"""Prefixes of the variables' names, by the software that reads them."""
_PREFIXES = tuple(prefix for prefixes in FAMILIES.values() for prefix in prefixes)
# Folders that hold no settings, and telemetry. The Makefile, containers and replicas set some of them.
_HOUSEKEEPING = {"FLASHINFER_WORKSPACE_BASE", "TORCH_HOME", "TRITON_HOME", "VLLM_CONFIG_ROOT", "VLLM_NO_USAGE_STATS"}
_CACHES = ("_CACHE_DIR", "_CACHE_PATH", "_CACHE_ROOT")
_SECRETS = ("KEY", "TOKEN", "SECRET", "PASSWORD")
# GPU_NAME and GPU_COUNT: the settings themselves are recorded.
_SETTINGS = {declared.variable for _, declared in declared_options().values()}
_PATH = re.compile(r"(?:^|:)/(?!/)")  # not the slashes of a URL


def steers(name: str) -> bool:
    """Return whether a variable may change an engine's behavior; never for a secret."""
    excluded = name in _HOUSEKEEPING or name in _SETTINGS or name.endswith((*_CACHES, *_SECRETS))
    return name.startswith(_PREFIXES) and not excluded


def names_path(value: str) -> bool:
    """Return whether the value of a variable is an absolute path or a list with one."""
    return bool(_PATH.search(value))


def inherited(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that may change an engine's behavior; an empty value differs from an absent variable."""
    return {name: value for name, value in sorted(environ.items()) if steers(name)}
