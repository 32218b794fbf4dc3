"""Which accelerators, cores and memory of this machine each replica gets, and which cores LoadGen's process keeps."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from harness_llm.errors import ConfigError
from harness_llm.hardware.gpus import Gpu
from harness_llm.hardware.numa import Binding, bindings, read_topology


@dataclass(frozen=True)
class Place:
    """What one replica gets; `environment` are the variables by which it sees its own accelerators alone."""

    environment: Mapping[str, str]
    binding: Binding


@dataclass(frozen=True)
class Placement:
    """A place for each replica, and the cores of LoadGen's process."""

    places: Sequence[Place]
    loadgen_cpus: list[int]


def placement(devices: Sequence[Mapping[str, str]], loadgen_cpus: int) -> Placement:
    """This machine shared out among replicas that see `devices`, from `place`."""
    cpus, numbers = sorted(os.sched_getaffinity(0)), [_numbers(variables) for variables in devices]
    found, kept = bindings(read_topology(), cpus, numbers, loadgen=loadgen_cpus)
    return Placement([Place(*pair) for pair in zip(devices, found, strict=True)], kept)


def _numbers(variables: Mapping[str, str]) -> list[int]:
    """Accelerators by number; those that the environment names otherwise (by UUID, say) are near nothing known."""
    names = [name for value in variables.values() for name in value.split(",")]
    return [int(name) for name in names] if all(name.isdigit() for name in names) else []


def place(
    gpu: Gpu | None, found: int, inherited: Mapping[str, str], *, replicas: int, size: int
) -> list[dict[str, str]]:
    """Environment variables by which each replica sees its own devices alone, the next `size` of them.

    Args:
        gpu: the kind; None where there is none, or something else places the replicas.
        found: how many the machine has.
        inherited: the environment, which may leave us a part of them.
        replicas: how many there are.
        size: devices of a replica, tensor parallel times pipeline parallel.

    Raises:
        ConfigError: there are not enough.
    """
    if gpu is None:
        return [{} for _ in range(replicas)]
    devices = [name for name in inherited.get(gpu.visible, "").split(",") if name] or [str(i) for i in range(found)]
    if replicas * size > len(devices):
        raise ConfigError(
            f"there are not enough accelerators for {replicas} replicas of {size}",
            where="harness_config.replicas",
            expected=f"{replicas * size} of {gpu.name}",
            found=f"{len(devices)}{f', in {gpu.visible}' if gpu.visible in inherited else ''}",
            hint=f"--gpu-count {len(devices)}, or --set harness_config.replicas={len(devices) // size}",
        )
    return [{gpu.visible: ",".join(devices[i * size : (i + 1) * size])} for i in range(replicas)]
