"""--gpu-count: number of replicas and LoadGen targets for a number of devices."""

from pathlib import Path

from harness_llm.config.commands import name_of
from harness_llm.config.engine_config import EngineConfig
from harness_llm.errors import ConfigError
from harness_llm.hardware.gpus import load_gpus
from harness_llm.paths import Workspace


def spread(config: EngineConfig, count: int) -> EngineConfig:
    """`config` with a replica on each group of `count` devices.

    Raises:
        ConfigError: a device would be unused.
    """
    if count % config.group:
        raise ConfigError(
            "the replicas cannot use all devices",
            where=name_of("gpu_count"),
            expected=f"a multiple of {config.group}, the devices of one replica (tensor_parallel_size, "
            "pipeline_parallel_size)",
            found=str(count),
        )
    harness = config.harness_config.model_copy(update={"replicas": count // config.group})
    return config.model_copy(update={"harness_config": harness})


def targets_name(gpu: str, count: int | None, workspace: Workspace) -> str:
    """The name of the user.conf for `count` devices; `user_<gpu>.conf` is for the number in models/gpus.yaml."""
    node = load_gpus(workspace).get(gpu) if count else None
    return f"user_{gpu}.conf" if node is None or count == node.count else f"user_{gpu}_{count}gpu.conf"


def targets_file(gpu: str, count: int | None, workspace: Workspace) -> Path:
    """The user.conf for `count` devices.

    Raises:
        ConfigError: there is no file for another number than that in models/gpus.yaml.
    """
    whole = workspace.user_confs / f"user_{gpu}.conf"
    own = workspace.user_confs / targets_name(gpu, count, workspace)
    if own == whole or own.is_file():
        return own
    usual = load_gpus(workspace)[gpu].count
    raise ConfigError(
        f"missing LoadGen targets for {count} {gpu}",
        where=str(own),
        expected=f"targets for {count} devices; {whole.name} is for {usual}",
        hint=f"cp {whole} {own}, and scale target_qps by {count}/{usual}",
    )
