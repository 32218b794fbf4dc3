"""How many devices of a machine are used: the replicas that fit on them, and the targets that go with them."""

from pathlib import Path

from harness_llm.config.engine_config import EngineConfig
from harness_llm.errors import ConfigError
from harness_llm.hardware.gpus import load_gpus
from harness_llm.paths import Workspace


def spread(config: EngineConfig, count: int) -> EngineConfig:
    """`config` with a replica for each group of `count` devices.

    Raises:
        ConfigError: a device would be left over.
    """
    if count % config.group:
        raise ConfigError(
            "the devices cannot all be used",
            where="--gpu-count, or GPU_COUNT",
            expected=f"a multiple of {config.group}, which is what one replica takes (tensor_parallel_size, "
            "pipeline_parallel_size)",
            found=str(count),
        )
    harness = config.harness_config.model_copy(update={"replicas": count // config.group})
    return config.model_copy(update={"harness_config": harness})


def targets_file(gpu: str, count: int | None, workspace: Workspace) -> Path:
    """The user.conf for `count` devices; `user_<gpu>.conf` is that of a usual node.

    Raises:
        ConfigError: it is another number, and there is no file for it.
    """
    whole = workspace.user_confs / f"user_{gpu}.conf"
    node = load_gpus(workspace).get(gpu)
    if count is None or node is None or count == node.count:
        return whole
    own = whole.with_name(f"{whole.stem}_{count}gpu.conf")
    if not own.is_file():
        raise ConfigError(
            f"there are no LoadGen targets for {count} {gpu}",
            where=str(own),
            expected=f"targets of {count}; those of {whole.name} are of {node.count}",
            hint=f"cp {whole} {own}, and scale its target_qps by {count}/{node.count}; or name a file with --user-conf",
        )
    return own
