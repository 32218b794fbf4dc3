"""Choose the build of vLLM for this machine's accelerators, and set up its environments.

Standard library only: this runs before any package is installed.

Usage: python -m setup.builds LAYER ...   (engine, loadgen, quantize, ray, optuna); prints the environment's bin folder.
"""

import os
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from harness_llm.errors import ConfigError, EnvironmentMissing, exit_code_of
from harness_llm.hardware.pci import NO_ACCELERATOR, PLATFORMS, accelerators
from setup.environments import ensure
from setup.layers import LAYERS

CUDA, ROCM = "cuda", "rocm"
_ENGINE = "engine"
_GPUS = Path("models/gpus.yaml")
_KIND = re.compile(r'^(\w[\w.-]*):(?: *#.*)?\n(?:[ #].*\n)*?  pci: \["([0-9a-f]{4}):', re.MULTILINE)
_SEVERAL_NODES = re.compile(r"x\d+$")  # h100x16: a replica on 16 GPUs of several nodes


def gpu_name(environ: Mapping[str, str]) -> str:
    """Return GPU_NAME; empty: detect it. Stand-ins run without an accelerator."""
    return environ.get("GPU_NAME") or (NO_ACCELERATOR if environ.get("STAND_IN") == "1" else "")


def vendors(table: str) -> dict[str, str]:
    """Return the PCI vendor by GPU_NAME from the text of models/gpus.yaml."""
    return dict(_KIND.findall(table))


def platform(gpu: str, on_bus: Sequence[str], table: str) -> str:
    """Return `cpu`, `cuda` or `rocm`.

    Args:
        gpu: from `gpu_name`.
        on_bus: accelerators of this machine, `vendor:device`; used if `gpu` is empty or not in `table`.
        table: text of models/gpus.yaml.

    Raises:
        ConfigError: accelerators of two vendors, and `gpu` does not select one.
    """
    if gpu == NO_ACCELERATOR:
        return NO_ACCELERATOR
    known = vendors(table)
    vendor = known.get(gpu) or known.get(_SEVERAL_NODES.sub("", gpu))
    found = {vendor} if vendor else {pci.partition(":")[0] for pci in on_bus}
    if len(found) > 1:
        raise ConfigError(
            "accelerators of several vendors",
            where="GPU_NAME",
            expected=f"one of {', '.join(known)}, or {NO_ACCELERATOR}",
            found=gpu or "not set",
            hint="make GPU_NAME=NAME ...",
        )
    return PLATFORMS[found.pop()] if found else NO_ACCELERATOR


def layers(names: Sequence[str], build: str) -> list[str]:
    """Return the keys in setup/layers.py of `engine`, `loadgen`, `quantize`, `ray` and `optuna` for a build.

    Raises:
        EnvironmentMissing: ROCm; the package index has no vLLM for it.
    """
    if build == ROCM:
        raise EnvironmentMissing(
            "AMD GPUs need a container: the package index has no vLLM for ROCm",
            where="setup/requirements",
            expected="a container with a base image that has vLLM for ROCm (docs/containers.md)",
            found="set-up without containers",
            hint="install Docker, then `make submission ENVIRONMENT=container ...`,"
            "\n      or bash setup/build_submission_env.sh and bash setup/start_submission_env.sh;"
            "\n      Slurm with pyxis and Kubernetes: docs/containers.md;"
            "\n      GPU_NAME=cpu sets up the CPU build and does not use the GPUs",
        )
    own = {name: f"{name}-{build}" for name in names if f"{name}-{build}" in LAYERS}
    return [build if name == _ENGINE else own.get(name, name) for name in names]


def set_up(names: Sequence[str], environ: Mapping[str, str]) -> Path:
    """Update the layers of this machine's build; return the bin folder of its environment.

    A container image has its own layers, in the folder of the CPU build.

    Raises:
        HarnessError: from `platform`, `layers` and `environments.ensure`.
    """
    if image := environ.get("HARNESS_LLM_LAYERS"):
        build, keys = NO_ACCELERATOR, image.split()
    else:
        build = platform(gpu_name(environ), list(accelerators()), _GPUS.read_text())
        keys = layers(names, build)
    ensure(keys)
    return LAYERS[build].folder / "bin"


def main() -> None:
    """Print the bin folder."""
    sys.stdout.write(f"{set_up(sys.argv[1:], os.environ)}\n")


if __name__ == "__main__":
    sys.exit(exit_code_of(main))
