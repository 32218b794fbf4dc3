"""Code that Ray runs on a node: reading information about the node, and hosting a replica."""

import importlib
import importlib.metadata
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

import harness_llm
from harness_llm.config.checkpoint import checkpoint_digest
from harness_llm.hardware.ecc import read_ecc
from harness_llm.hardware.host_settings import read_host_settings
from harness_llm.hardware.machine import detect
from harness_llm.hardware.numa import Binding, bindings, read_topology
from harness_llm.protocol.child_processes import Exit, Message, start, watch
from harness_llm.protocol.messages import Endpoint
from harness_llm.protocol.token_store import is_store, open_store
from harness_llm.replicas.local import node_environment, program
from harness_llm.replicas.pool_folder import PoolFolder
from harness_llm.replicas.ray.assignment import Slot
from harness_llm.replicas.ray.cluster import NodeInfo
from harness_llm.replicas.replica import ReplicaSpec
from harness_llm.runs.fingerprint import versions
from harness_llm.runs.inherited_environment import inherited
from harness_llm.runs.program_source import MEASURING

_LOG_BYTES = 1 << 20  # per status; the rest follows with the next


def read_node_info(paths: Sequence[str] = ()) -> NodeInfo:
    """Read information about this node, with the digests of the checkpoints and stores at `paths`."""
    return NodeInfo(
        folder=str(Path(harness_llm.__file__).parent),
        source=MEASURING.digest(),
        packages={**versions(), "ray": importlib.metadata.version("ray")},
        inherited=inherited(_without_ray_variables(os.environ)),
        machine=detect(),
        host=read_host_settings(),
        ecc=read_ecc(),
        digests={path: _digest(Path(path)) for path in paths},
    )


def _digest(path: Path) -> str:
    if not path.is_dir():
        return ""
    return open_store(path).digest if is_store(path) else checkpoint_digest(path)


class HostSpec(msgspec.Struct, frozen=True, kw_only=True):
    """Specification of a replica process on a node.

    Attributes:
        cluster: address of the Ray cluster.
        environment: variables of the replica, without those that depend on its node.
        loadgen_cpus: cores of its node that are reserved for LoadGen's process.
    """

    name: str
    cluster: str
    slot: Slot
    specs: list[ReplicaSpec]
    environment: dict[str, str]
    loadgen_cpus: int


class ReplicaStatus(msgspec.Struct, frozen=True, kw_only=True):
    """Messages and log of a replica since the last status, and its exit code, None while it runs."""

    messages: list[dict[str, Any]]
    log: bytes
    code: int | None


class Host:
    """Ray actor that runs one replica process, which exits with it."""

    def __init__(self, host_spec: HostSpec, group: str) -> None:
        """Start the replica; `group` is the placement group of its workers, if they are in other processes."""
        ray = importlib.import_module("ray")
        address = ray.util.get_node_ip_address()
        devices = [int(device) for device in ray.get_gpu_ids() if str(device).isdigit()]
        for name in os.environ.keys() - _without_ray_variables(os.environ).keys():
            del os.environ[name]
        self._folder = PoolFolder()
        folder, binding = self._folder.path, _binding(host_spec, devices)
        specs = [_bound(spec, binding, address=address, folder=folder, group=group) for spec in host_spec.specs]
        module, file = program(specs, folder / "replica.json")
        self._read: dict[Path, int] = {}
        own = {"PYTHONPATH": str(Path(harness_llm.__file__).parents[1])}
        if group:
            own |= {"RAY_ADDRESS": ray.get_runtime_context().gcs_address, "VLLM_HOST_IP": address}
        self._child = start(
            "harness_llm.protocol.guard",
            [str(folder), sys.executable, "-m", module, str(file)],
            name=host_spec.name,
            log=folder / "replica.log",
            environment={**node_environment(binding.cpus, folder), **own, **host_spec.environment},
        )

    def status(self, timeout_s: float) -> ReplicaStatus:
        """Wait up to `timeout_s` for messages of the replica and return its status."""
        events = list(watch([self._child], timeout_s))
        code = next((event.code for event in events if isinstance(event, Exit)), None)
        logs = [self._new_bytes(log, whole=code is not None) for log in sorted(self._folder.path.glob("*.log"))]
        if code is not None:
            self._folder.remove()
        messages = [event.body for event in events if isinstance(event, Message)]
        return ReplicaStatus(messages=messages, log=b"".join(logs), code=code)

    def stop(self) -> None:
        """Stop the replica and remove its folder."""
        self._child.stop()
        self._folder.remove()

    def _new_bytes(self, log: Path, *, whole: bool) -> bytes:
        """Return new bytes of a log, the replica's or its server's."""
        with log.open("rb") as file:
            file.seek(self._read.get(log, 0))
            new = file.read(-1 if whole else _LOG_BYTES)
            self._read[log] = file.tell()
        return new


def _without_ray_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """Return `environment` without what Ray sets for workers and engines must not see: one thread, no accelerator."""
    hidden = {name for name, value in environment.items() if name.endswith("_VISIBLE_DEVICES") and not value}
    return {name: value for name, value in environment.items() if name not in hidden | {"OMP_NUM_THREADS"}}


def _binding(host_spec: HostSpec, devices: Sequence[int]) -> Binding:
    """Bind to the NUMA nodes of the accelerators from Ray; without accelerators, to the replica's part of the node."""
    parts: list[Sequence[int]] = [devices] if devices else [()] * host_spec.slot.of
    bound, _ = bindings(read_topology(), sorted(os.sched_getaffinity(0)), parts, loadgen=host_spec.loadgen_cpus)
    return bound[0 if devices else host_spec.slot.number]


def _bound(spec: ReplicaSpec, binding: Binding, *, address: str, folder: Path, group: str) -> ReplicaSpec:
    """Complete `spec` with the values of this node: its own address with wildcard ports, cores, memory, log."""
    own = f"tcp://{address}:*"
    return msgspec.structs.replace(
        spec,
        endpoint=Endpoint(own, own),
        cpus=list(binding.cpus),
        memory=list(binding.memory),
        server=msgspec.structs.replace(spec.server, log=str(folder / "server.log")),
        workers=group,
    )
