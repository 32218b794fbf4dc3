"""Local replica pool: one child process per replica on this machine, started at once."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from harness_llm.config.engine_config import EngineConfig
from harness_llm.config.engines import ENGINES, REPLAY
from harness_llm.protocol.child_processes import Child, start
from harness_llm.protocol.curve import KeyPair, new_key_pair, write_key_pair
from harness_llm.protocol.messages import Endpoint
from harness_llm.replicas.engines.engine import ServerSpec
from harness_llm.replicas.engines.replay import ReplaySpec
from harness_llm.replicas.placement import Placement, Resources, placement
from harness_llm.replicas.pool import ReplicaPool, Report, Start
from harness_llm.replicas.pool_folder import PoolFolder
from harness_llm.replicas.replica import ReplicaSpec

UNBOUND = Endpoint("", "")  # before the start


def process_names(config: EngineConfig, engine: str) -> list[str]:
    """Return the names of the processes of a replica pool: one per replica, except for the replay engine."""
    count = min(config.replay_config.processes, config.replicas) if engine == REPLAY else config.replicas
    return [f"replica-{index}" for index in range(count)]


def node_environment(cpus: Sequence[int], folder: Path) -> dict[str, str]:
    """Return the variables of an engine that depend on its node."""
    return {"VLLM_CPU_OMP_THREADS_BIND": ",".join(map(str, cpus)), "TMPDIR": str(folder)}


def engine_caches(cache: Path) -> dict[str, Path]:
    """Return the variables of the folders for compiled kernels; the default home folder is lost with each container."""
    return {
        "VLLM_CACHE_ROOT": cache / "vllm",
        "TORCHINDUCTOR_CACHE_DIR": cache / "torchinductor",
        "FLASHINFER_WORKSPACE_BASE": cache / "flashinfer",
    }


def replica_environment(config: EngineConfig, cpus: Sequence[int], *, folder: Path, cache: Path) -> dict[str, str]:
    """Return the environment variables of an engine on `cpus`; `folder` is removed with the replica pool."""
    return {
        **node_environment(cpus, folder),
        # Order by PCI address, as in hardware/numa.py, nvidia-smi and Ray; CUDA's default is by speed.
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        **{name: str(folder) for name, folder in engine_caches(cache).items()},
        "VLLM_NO_USAGE_STATS": "1",
        "HF_HUB_OFFLINE": "1",
        **config.env_config,
    }


Launcher = Callable[[str, Sequence[ReplicaSpec], Mapping[str, str], Path], Child]
"""Starts a process: its name, the specs of its replicas, environment variables, its log."""


def launch(name: str, specs: Sequence[ReplicaSpec], environment: Mapping[str, str], log: Path) -> Child:
    """Start a process on this machine; its specification is written to its temporary folder."""
    module, file = program(specs, Path(environment["TMPDIR"]) / f"{name}.json")
    return start(module, [str(file)], name=name, log=log, environment=environment)


def program(specs: Sequence[ReplicaSpec], file: Path) -> tuple[str, Path]:
    """Write the specification of a process to `file`; return its module and this argument."""
    file.write_bytes(msgspec.json.encode(specs if specs[0].replay else specs[0]))
    return ("harness_llm.replicas.replay_host" if specs[0].replay else "harness_llm.replicas.replica"), file


@dataclass(frozen=True)
class _Launch:
    """Parameters of the starts of a process."""

    launcher: Launcher
    name: str
    specs: Sequence[ReplicaSpec]
    environment: Mapping[str, str]
    log: Path

    def __call__(self, number: int) -> Child:
        """Start the process with addresses that no earlier start used, so that late messages are not delivered."""
        stem = f"ipc://{self.environment['TMPDIR']}/{self.name}.{number}"
        specs = [
            msgspec.structs.replace(spec, endpoint=Endpoint(f"{stem}.{index}", f"{stem}.{index}.heartbeat"))
            for index, spec in enumerate(self.specs)
        ]
        return self.launcher(self.name, specs, self.environment, self.log)


@dataclass(frozen=True)
class _Replicas:
    """What the replicas of a pool have in common."""

    config: EngineConfig
    engine: str
    checkpoint: Path
    calibration: Path
    logs: Path
    keys: KeyPair
    traces: Path | None

    def spec(self, own: Resources, replica: int) -> ReplicaSpec:
        """Return the specification of a replica, without its addresses."""
        config = self.config
        return ReplicaSpec(
            name=f"replica-{replica}",
            engine=self.engine,
            checkpoint=str(self.checkpoint),
            llm_config=config.llm_config,
            server=_server(config, self.engine, replica, self.logs),
            replay=_replay(config, replica) if self.engine == REPLAY else None,
            endpoint=UNBOUND,
            client=self.keys.public,
            cpus=list(own.binding.cpus),
            memory=list(own.binding.memory),
            traces=str(self.traces / f"replica-{replica}") if self.traces else "",
            warm_up_store=str(self.calibration),
            warm_up_batch=config.in_flight_limit.batch,
            warm_up_tokens=min(config.harness_config.warm_up_tokens, config.sampling.max_tokens),
        )


def start_pool(
    config: EngineConfig,
    *,
    engine: str,
    checkpoint: Path,
    calibration: Path,
    logs: Path,
    cache: Path,
    report: Report,
    placed: Placement | None = None,
    launcher: Launcher = launch,
    traces: Path | None = None,
) -> ReplicaPool:
    """Start all replicas and wait until each has warmed up.

    Args:
        report: takes the phases of the start.
        placed: resources of each replica; by default a part of this machine's cores.
        traces: folder for traces of the engines' profilers; None for engines without one.

    Raises:
        ProcessFailed: a process exited or was not ready in time.
        HarnessError: that a replica reported.
    """
    harness = config.harness_config
    logs.mkdir(parents=True, exist_ok=True)
    names = process_names(config, engine)
    placed = placed or placement([{}] * len(names), harness.loadgen_cpus)
    folder, keys = PoolFolder(), new_key_pair()
    pool = ReplicaPool(folder, placed.loadgen_cpus, harness.startup_timeout_s)
    write_key_pair(keys, pool.keys)
    replicas = _Replicas(config, engine, checkpoint, calibration, logs, keys, traces)
    launchers: dict[str, Start] = {}
    read: dict[str, list[Path]] = {}
    for index, (name, own) in enumerate(zip(names, placed.replicas, strict=True)):
        specs = [replicas.spec(own, replica) for replica in range(index, config.replicas, len(names))]
        environment = replica_environment(config, own.binding.cpus, folder=folder.path, cache=cache)
        environment |= own.environment
        launchers[name] = _Launch(launcher, name, specs, environment, logs / f"{name}.log")
        read[name] = [logs / f"{name}.log", *(Path(spec.server.log) for spec in specs if spec.server)]
    try:
        pool.start(launchers, report, read)
    except BaseException:  # Ctrl-C too: no engine may outlive a failed start
        pool.stop()
        raise
    return pool


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
