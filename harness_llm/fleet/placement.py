"""Which accelerators each replica of this machine gets."""

from collections.abc import Mapping

from harness_llm.errors import ConfigError
from harness_llm.gpus import Gpu


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
