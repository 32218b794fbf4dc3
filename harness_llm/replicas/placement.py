"""Placement: accelerators, cores and memory of each replica on this machine, and the cores of LoadGen's process."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from harness_llm.config.commands import engine_setting, typed
from harness_llm.errors import ConfigError
from harness_llm.hardware.gpus import NO_ACCELERATOR, Gpu
from harness_llm.hardware.numa import Binding, bindings, read_topology

_UNKNOWN = -1  # the number of a device outside every topology
# Of AMD's devices: one renumbers them for HIP_VISIBLE_DEVICES; vLLM requires that the other one equals it
# (vllm/platforms/rocm.py, _sync_hip_cuda_env_vars), but each replica has its own devices.
_REFUSED = {
    "ROCR_VISIBLE_DEVICES": "renumbers the devices of HIP_VISIBLE_DEVICES",
    "CUDA_VISIBLE_DEVICES": "contradicts HIP_VISIBLE_DEVICES",
}


@dataclass(frozen=True)
class Resources:
    """Resources of one replica; `environment` contains the variables that select its accelerators."""

    environment: Mapping[str, str]
    binding: Binding


@dataclass(frozen=True)
class Placement:
    """Resources of each replica, and the cores of LoadGen's process."""

    replicas: Sequence[Resources]
    loadgen_cpus: list[int]


def placement(devices: Sequence[Mapping[str, str]], loadgen_cpus: int) -> Placement:
    """Divide this machine among replicas with `devices`, the result of `device_environments`."""
    cpus, numbers = sorted(os.sched_getaffinity(0)), [_numbers(variables) for variables in devices]
    bound, loadgen = bindings(read_topology(), cpus, numbers, loadgen=loadgen_cpus)
    return Placement([Resources(*pair) for pair in zip(devices, bound, strict=True)], loadgen)


def _numbers(variables: Mapping[str, str]) -> list[int]:
    """Return accelerator indices; _UNKNOWN for a device that the environment selects otherwise, such as by UUID."""
    names = [name for value in variables.values() for name in value.split(",")]
    return [int(name) if name.isdigit() else _UNKNOWN for name in names]


def refuse_invalid_selection(gpu: Gpu, environment: Mapping[str, str]) -> None:
    """Refuse an empty selection of devices, and variables that select AMD's devices beside HIP_VISIBLE_DEVICES.

    Raises:
        ConfigError: `gpu.visible` is set and empty; or another variable is set, and `gpu` is AMD's.
    """
    if environment.get(gpu.visible) == "":
        raise ConfigError(
            f"{gpu.visible} hides all GPUs",
            where="environment",
            expected="device numbers separated by commas",
            found=f"{gpu.visible}=",
            hint=f"unset {gpu.visible}; {typed(gpu=NO_ACCELERATOR)} ignores the GPUs",
        )
    for name, reason in _REFUSED.items() if gpu.platform == "rocm" else ():
        if name in environment:
            selected = environment[name]
            raise ConfigError(
                f"{name} is not supported on AMD GPUs, because it {reason}",
                where="environment",
                found=f"{name}={selected}",
                hint=f"unset {name}" + (f"; export {gpu.visible}={selected}" if selected else ""),
            )


def device_environments(
    gpu: Gpu | None, found: int, inherited: Mapping[str, str], *, replicas: int, size: int
) -> list[dict[str, str]]:
    """Return the environment variables that select the devices of each replica, `size` consecutive ones.

    Args:
        gpu: the kind of GPU; None without GPUs, or if Ray places the replicas.
        found: number of GPUs of this machine.
        inherited: the environment, which may select some of them.
        replicas: number of replicas.
        size: devices per replica, tensor parallel times pipeline parallel.

    Raises:
        ConfigError: too few accelerators, or from `refuse_invalid_selection`.
    """
    if gpu is None:
        return [{} for _ in range(replicas)]
    refuse_invalid_selection(gpu, inherited)
    devices = [name for name in inherited.get(gpu.visible, "").split(",") if name] or [str(i) for i in range(found)]
    if replicas * size > len(devices):
        raise ConfigError(
            f"not enough accelerators for {replicas} replicas of {size}",
            where="harness_config.replicas",
            expected=f"{replicas * size} of {gpu.name}",
            found=f"{len(devices)}{f', in {gpu.visible}' if gpu.visible in inherited else ''}",
            hint=f"{typed(gpu_count=len(devices))}, "
            f"or {engine_setting('harness_config.replicas', len(devices) // size)}",
        )
    return [{gpu.visible: ",".join(devices[i * size : (i + 1) * size])} for i in range(replicas)]
