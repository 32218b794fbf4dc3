"""A fleet on this machine: one child process per replica, started side by side."""

import itertools
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from harness_llm.config import EngineConfig
from harness_llm.engines import ENGINES, ServerSpec
from harness_llm.fleet.fleet import Fleet, Start
from harness_llm.fleet.folder import FleetFolder
from harness_llm.fleet.replica import ReplicaSpec
from harness_llm.fleet.wire import Endpoint
from harness_llm.processes import Child, start

UNBOUND = Endpoint("", "")  # until a place is filled


def split_cpus(cpus: Sequence[int], replicas: int, loadgen: int) -> tuple[list[list[int]], list[int]]:
    """Cores of each replica, and those of LoadGen's process: apart where there are enough, else shared."""
    own = len(cpus) - loadgen
    if own < replicas:
        return [list(cpus) for _ in range(replicas)], list(cpus)
    bounds = [own * i // replicas for i in range(replicas + 1)]
    return [list(cpus[a:b]) for a, b in itertools.pairwise(bounds)], list(cpus[own:])


def replica_environment(config: EngineConfig, cpus: Sequence[int], *, folder: Path, cache: Path) -> dict[str, str]:
    """Environment variables of an engine on `cpus`; what it leaves in `folder` goes with the fleet."""
    return {
        "VLLM_CPU_OMP_THREADS_BIND": ",".join(map(str, cpus)),
        "TMPDIR": str(folder),
        "VLLM_CACHE_ROOT": str(cache / "vllm"),
        "TORCHINDUCTOR_CACHE_DIR": str(cache / "torchinductor"),
        "VLLM_NO_USAGE_STATS": "1",
        "HF_HUB_OFFLINE": "1",
        **config.env_config,
    }


Launcher = Callable[[str, Sequence[ReplicaSpec], Mapping[str, str], Path], Child]
"""Starts the process of a place: its name, the specs of the replicas in it, environment variables, its log."""


def launch(name: str, specs: Sequence[ReplicaSpec], environment: Mapping[str, str], log: Path) -> Child:
    """A process of this machine; its spec lies in the folder where it may leave what goes with the fleet."""
    [spec] = specs
    file = Path(environment["TMPDIR"]) / f"{name}.json"
    file.write_bytes(msgspec.json.encode(spec))
    return start("harness_llm.fleet.replica", [str(file)], name=name, log=log, environment=environment)


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


def start_fleet(
    config: EngineConfig,
    *,
    engine: str,
    checkpoint: Path,
    calibration: Path,
    logs: Path,
    cache: Path,
    tell: Callable[[str], None],
    devices: Sequence[Mapping[str, str]] = (),
    launcher: Launcher = launch,
) -> Fleet:
    """Start all replicas and wait until each has warmed up.

    Args:
        devices: environment variables by which each replica sees its own accelerators (`placement.place`).

    Raises:
        RunFailed: a replica ended or was not ready in time; with its last log lines.
        HarnessError: what a replica says of its engine that cannot be loaded.
    """
    harness = config.harness_config
    logs.mkdir(parents=True, exist_ok=True)
    cpus, loadgen_cpus = split_cpus(sorted(os.sched_getaffinity(0)), config.replicas, harness.loadgen_cpus)
    folder = FleetFolder()
    fleet = Fleet(folder, loadgen_cpus, harness.startup_timeout_s)
    places: dict[str, Start] = {}
    for index in range(config.replicas):
        name = f"replica-{index}"
        spec = ReplicaSpec(
            engine=engine,
            checkpoint=str(checkpoint),
            llm_config=config.llm_config,
            server=_server(config, engine, index, logs),
            endpoint=UNBOUND,
            cpus=cpus[index],
            warm_up_store=str(calibration),
            warm_up_samples=harness.warm_up_samples,
            warm_up_max_tokens=config.sampling.max_tokens,
        )
        environment = replica_environment(config, spec.cpus, folder=folder.path, cache=cache)
        environment |= devices[index] if devices else {}
        places[name] = _Site(launcher, name, [spec], environment, logs / f"{name}.log").begin
    try:
        fleet.start(places, tell)
    except BaseException:  # Ctrl-C too: no engine may outlive a start that did not succeed
        fleet.stop()
        raise
    return fleet


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
