"""--gpu-count: number of replicas and LoadGen targets for a number of devices."""

from pathlib import Path

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
            where="--gpu-count, or GPU_COUNT",
            expected=f"a multiple of {config.group}, the devices of one replica (tensor_parallel_size, "
            "pipeline_parallel_size)",
            found=str(count),
        )
    harness = config.harness_config.model_copy(update={"replicas": count // config.group})
    return config.model_copy(update={"harness_config": harness})


def targets_file(gpu: str, count: int | None, workspace: Workspace) -> Path:
    """The user.conf for `count` devices; `user_<gpu>.conf` is for the number in models/gpus.yaml.

    Raises:
        ConfigError: there is no file for another number.
    """
    whole = workspace.user_confs / f"user_{gpu}.conf"
    node = load_gpus(workspace).get(gpu)
    if count is None or node is None or count == node.count:
        return whole
    own = whole.with_name(f"{whole.stem}_{count}gpu.conf")
    if not own.is_file():
        raise ConfigError(
            f"missing LoadGen targets for {count} {gpu}",
            where=str(own),
            expected=f"targets for {count} devices; {whole.name} is for {node.count}",
            hint=f"cp {whole} {own}, and scale target_qps by {count}/{node.count}; or set --user-conf",
        )
    return own
