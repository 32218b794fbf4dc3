"""A replica pool on this machine: one child process per replica, started side by side."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from harness_llm.config.engine_config import EngineConfig
from harness_llm.config.engines import ENGINES, REPLAY
from harness_llm.protocol.child_processes import Child, start
from harness_llm.protocol.curve import Pair, new_pair, write_pair
from harness_llm.protocol.messages import Endpoint
from harness_llm.replicas.engines.engine import ServerSpec
from harness_llm.replicas.engines.replay import ReplaySpec
from harness_llm.replicas.placement import Place, Placement, placement
from harness_llm.replicas.pool import ReplicaPool, Start
from harness_llm.replicas.pool_folder import PoolFolder
from harness_llm.replicas.replica import ReplicaSpec

UNBOUND = Endpoint("", "")  # until a place is filled


def place_names(config: EngineConfig, engine: str) -> list[str]:
    """What the processes of a replica pool are called: one for each replica, but for those that replay."""
    count = min(config.replay_config.processes, config.replicas) if engine == REPLAY else config.replicas
    return [f"replica-{place}" for place in range(count)]


def place_environment(cpus: Sequence[int], folder: Path) -> dict[str, str]:
    """What an engine is told of where it runs."""
    return {"VLLM_CPU_OMP_THREADS_BIND": ",".join(map(str, cpus)), "TMPDIR": str(folder)}


def replica_environment(config: EngineConfig, cpus: Sequence[int], *, folder: Path, cache: Path) -> dict[str, str]:
    """Environment variables of an engine on `cpus`; what it leaves in `folder` goes with the replica pool."""
    return {
        **place_environment(cpus, folder),
        # The order of PCI addresses, in which hardware/numa.py, nvidia-smi and Ray number GPUs; CUDA's own is by speed.
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "VLLM_CACHE_ROOT": str(cache / "vllm"),
        "TORCHINDUCTOR_CACHE_DIR": str(cache / "torchinductor"),
        "VLLM_NO_USAGE_STATS": "1",
        "HF_HUB_OFFLINE": "1",
        **config.env_config,
    }


Launcher = Callable[[str, Sequence[ReplicaSpec], Mapping[str, str], Path], Child]
"""Starts the process of a place: its name, the specs of the replicas in it, environment variables, its log."""


def launch(name: str, specs: Sequence[ReplicaSpec], environment: Mapping[str, str], log: Path) -> Child:
    """A process of this machine; its spec lies in the folder where it may leave what goes with the replica pool."""
    module, file = program(specs, Path(environment["TMPDIR"]) / f"{name}.json")
    return start(module, [str(file)], name=name, log=log, environment=environment)


def program(specs: Sequence[ReplicaSpec], file: Path) -> tuple[str, Path]:
    """The module that runs the replicas of a place, and its argument, which is written."""
    file.write_bytes(msgspec.json.encode(specs if specs[0].replay else specs[0]))
    return ("harness_llm.replicas.replay_host" if specs[0].replay else "harness_llm.replicas.replica"), file


@dataclass(frozen=True)
class _Site:
    """All that is needed to fill a place, again and again."""

    launcher: Launcher
    name: str
    specs: Sequence[ReplicaSpec]
    environment: Mapping[str, str]
    log: Path

    def begin(self, life: int) -> Child:
        """Each life has sockets of its own, so that nothing meant for one reaches another."""
        stem = f"ipc://{self.environment['TMPDIR']}/{self.name}.{life}"
        specs = [
            msgspec.structs.replace(spec, endpoint=Endpoint(f"{stem}.{number}", f"{stem}.{number}.heart"))
            for number, spec in enumerate(self.specs)
        ]
        return self.launcher(self.name, specs, self.environment, self.log)


def start_pool(
    config: EngineConfig,
    *,
    engine: str,
    checkpoint: Path,
    calibration: Path,
    logs: Path,
    cache: Path,
    tell: Callable[[str], None],
    placed: Placement | None = None,
    launcher: Launcher = launch,
) -> ReplicaPool:
    """Start all replicas and wait until each has warmed up.

    Args:
        placed: what each replica gets of the machine; by default a part of its cores.

    Raises:
        RunFailed: a replica ended or was not ready in time; with its last log lines.
        HarnessError: what a replica says of its engine that cannot be loaded.
    """
    harness = config.harness_config
    logs.mkdir(parents=True, exist_ok=True)
    names = place_names(config, engine)
    placed = placed or placement([{}] * len(names), harness.loadgen_cpus)
    folder, keys = PoolFolder(), new_pair()
    pool = ReplicaPool(folder, placed.loadgen_cpus, harness.startup_timeout_s)
    write_pair(keys, pool.keys)
    places: dict[str, Start] = {}
    for place, (name, own) in enumerate(zip(names, placed.places, strict=True)):
        specs = [
            _spec(config, engine, own, replica, checkpoint=checkpoint, calibration=calibration, logs=logs, keys=keys)
            for replica in range(place, config.replicas, len(names))
        ]
        environment = replica_environment(config, own.binding.cpus, folder=folder.path, cache=cache)
        environment |= own.environment
        places[name] = _Site(launcher, name, specs, environment, logs / f"{name}.log").begin
    try:
        pool.start(places, tell)
    except BaseException:  # Ctrl-C too: no engine may outlive a start that did not succeed
        pool.stop()
        raise
    return pool


def _spec(
    config: EngineConfig,
    engine: str,
    own: Place,
    replica: int,
    *,
    checkpoint: Path,
    calibration: Path,
    logs: Path,
    keys: Pair,
) -> ReplicaSpec:
    return ReplicaSpec(
        engine=engine,
        checkpoint=str(checkpoint),
        llm_config=config.llm_config,
        server=_server(config, engine, replica, logs),
        replay=_replay(config, replica) if engine == REPLAY else None,
        endpoint=UNBOUND,
        client=keys.public,
        cpus=list(own.binding.cpus),
        memory=list(own.binding.memory),
        warm_up_store=str(calibration),
        warm_up_batch=config.in_flight_limit.batch,
        warm_up_tokens=config.warm_up_tokens,
    )


def _server(config: EngineConfig, engine: str, index: int, logs: Path) -> ServerSpec:
    server = config.server_config
    return ServerSpec(
        kind=ENGINES[engine].kind or server.kind,
        url=server.url[index] if server.url else "",
        command=server.command,
        connections=server.connections,
        attempts=server.attempts,
        timeout_s=config.harness_config.stall_timeout_s,
        log=str(logs / f"server-{index}.log"),
    )


def _replay(config: EngineConfig, replica: int) -> ReplaySpec:
    replay = config.replay_config
    return ReplaySpec(
        prefill_tokens_per_s=replay.prefill_tokens_per_s,
        step_s=replay.step_s,
        step_s_per_sequence=replay.step_s_per_sequence,
        output_tokens=replay.output_tokens,
        output_spread=replay.output_spread,
        recorded=replay.recorded,
        speed=replay.speed(replica),
    )
