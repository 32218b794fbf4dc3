"""A fleet on this machine: one child process per replica, started side by side."""

import itertools
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from harness_llm.config import EngineConfig
from harness_llm.engines import ENGINES, ServerSpec
from harness_llm.errors import RunFailed, rebuild
from harness_llm.fleet.replica import ReplicaSpec
from harness_llm.fleet.wire import Endpoint
from harness_llm.processes import Child, Exit, start, watch

OWNER_ONLY = 0o700


def split_cpus(cpus: Sequence[int], replicas: int, loadgen: int) -> tuple[list[list[int]], list[int]]:
    """Cores of each replica, and those of LoadGen's process: apart where there are enough, else shared."""
    own = len(cpus) - loadgen
    if own < replicas:
        return [list(cpus) for _ in range(replicas)], list(cpus)
    bounds = [own * i // replicas for i in range(replicas + 1)]
    return [list(cpus[a:b]) for a, b in itertools.pairwise(bounds)], list(cpus[own:])


@dataclass(frozen=True)
class Fleet:
    """Replicas that are ready to serve."""

    replicas: list[Child]
    endpoints: list[Endpoint]
    folder: Path
    loadgen_cpus: list[int]

    def stop(self) -> None:
        """End every replica; nothing is left running and no socket file is left behind."""
        for replica in self.replicas:
            replica.stop()
        shutil.rmtree(self.folder, ignore_errors=True)


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
) -> Fleet:
    """Start all replicas and wait until each has warmed up.

    Args:
        devices: environment variables by which each replica sees its own accelerators (`placement.place`).

    Raises:
        RunFailed: a replica ended or was not ready in time; with its last log lines.
        HarnessError: what a replica says of its engine that cannot be loaded.
    """
    harness = config.harness_config
    folder = Path(tempfile.mkdtemp(prefix="harness-llm-"))
    folder.chmod(OWNER_ONLY)
    replicas = config.replicas
    cpus, loadgen_cpus = split_cpus(sorted(os.sched_getaffinity(0)), replicas, harness.loadgen_cpus)
    logs.mkdir(parents=True, exist_ok=True)
    fleet = Fleet([], [], folder, loadgen_cpus)
    try:
        for index in range(replicas):
            spec = ReplicaSpec(
                engine=engine,
                checkpoint=str(checkpoint),
                llm_config=config.llm_config,
                server=_server(config, engine, index, logs),
                endpoint=Endpoint(f"ipc://{folder}/replica-{index}", f"ipc://{folder}/heart-{index}"),
                cpus=cpus[index],
                warm_up_store=str(calibration),
                warm_up_samples=harness.warm_up_samples,
                warm_up_max_tokens=config.sampling.max_tokens,
            )
            environment = replica_environment(config, spec.cpus, folder=folder, cache=cache)
            environment |= devices[index] if devices else {}
            replica = _start_replica(f"replica-{index}", spec, environment, logs=logs, folder=folder)
            fleet.replicas.append(replica)
        _await_ready(fleet, harness.startup_timeout_s, tell)
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


def _start_replica(name: str, spec: ReplicaSpec, environment: dict[str, str], *, logs: Path, folder: Path) -> Child:
    file = folder / f"{name}.json"
    file.write_bytes(msgspec.json.encode(spec))
    return start("harness_llm.fleet.replica", [str(file)], name=name, log=logs / f"{name}.log", environment=environment)


def _await_ready(fleet: Fleet, timeout_s: float, tell: Callable[[str], None]) -> None:
    deadline = time.monotonic() + timeout_s
    waiting = set(fleet.replicas)
    while waiting:
        if time.monotonic() > deadline:
            raise RunFailed(
                "a replica was not ready in time",
                where=str(next(iter(waiting)).log),
                expected=f"ready in {timeout_s:g} s (harness_config.startup_timeout_s)",
            )
        for event in watch(fleet.replicas, 1):
            if isinstance(event, Exit):
                raise replica_lost(event)
            if event.body["event"] == "failed":
                raise rebuild(event.body)
            tell(f"{event.child.name} {event.body['event']}")
            if event.body["event"] == "ready":
                waiting.discard(event.child)
                fleet.endpoints.extend(msgspec.convert(event.body["endpoints"], list[Endpoint]))


def replica_lost(event: Exit) -> RunFailed:
    """The error for a replica that has ended."""
    return RunFailed(
        f"{event.child.name} ended",
        where=str(event.child.log),
        found=f"exit code {event.code}, and the last lines of its log:\n{event.child.last_lines()}",
    )
