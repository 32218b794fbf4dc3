"""What runs on a node of a Ray cluster: a look at it, and the host of a replica."""

import importlib
import importlib.metadata
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

import harness_llm
from harness_llm.config.checkpoint import checkpoint_digest
from harness_llm.hardware.ecc import read_ecc
from harness_llm.hardware.host_settings import read_host
from harness_llm.hardware.machine import detect
from harness_llm.hardware.numa import Binding, bindings, read_topology
from harness_llm.protocol.child_processes import Exit, Message, start, watch
from harness_llm.protocol.messages import Endpoint
from harness_llm.protocol.token_store import is_store, open_store
from harness_llm.replicas.local import place_environment, program
from harness_llm.replicas.pool_folder import PoolFolder
from harness_llm.replicas.ray.assignment import Slot
from harness_llm.replicas.ray.cluster import Look
from harness_llm.replicas.replica import ReplicaSpec
from harness_llm.runs.fingerprint import inherited, source_digest, versions

_LOG_BYTES = 1 << 20  # of one message; the rest comes with the next


def look(paths: Sequence[str] = ()) -> Look:
    """This node; `paths` are checkpoints and stores that it should have."""
    return Look(
        folder=str(Path(harness_llm.__file__).parent),
        source=source_digest(),
        packages={**versions(), "ray": importlib.metadata.version("ray")},
        inherited=inherited(),
        machine=detect(),
        host=read_host(),
        ecc=read_ecc(),
        digests={path: _digest(Path(path)) for path in paths},
    )


def _digest(path: Path) -> str:
    if not path.is_dir():
        return ""
    return open_store(path).digest if is_store(path) else checkpoint_digest(path)


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """The replicas of a place to be hosted.

    Attributes:
        cluster: the address of the Ray cluster.
        environment: variables of the replica, but for those that follow from its node.
        loadgen_cpus: cores of its node that are kept for LoadGen's process.
    """

    name: str
    cluster: str
    slot: Slot
    specs: list[ReplicaSpec]
    environment: dict[str, str]
    loadgen_cpus: int


class News(msgspec.Struct, frozen=True, kw_only=True):
    """What a replica has said since the last look; `code` once it has ended."""

    lines: list[dict[str, Any]]
    log: bytes
    code: int | None


class Host:
    """Holds one replica; a Ray actor, and what it holds ends with it."""

    def __init__(self, order: Order, group: str) -> None:
        """Start the replica; `group` names the placement group of its workers, if it has some elsewhere."""
        ray = importlib.import_module("ray")
        address = ray.util.get_node_ip_address()
        devices = [int(device) for device in ray.get_gpu_ids() if str(device).isdigit()]
        for name in _of_ray(os.environ):
            del os.environ[name]
        self._folder = PoolFolder()
        folder, binding = self._folder.path, _binding(order, devices)
        specs = [_settled(spec, binding, address=address, folder=folder, group=group) for spec in order.specs]
        module, file = program(specs, folder / "replica.json")
        self._read: dict[Path, int] = {}
        own = {"PYTHONPATH": str(Path(harness_llm.__file__).parents[1])}
        if group:
            own |= {"RAY_ADDRESS": ray.get_runtime_context().gcs_address, "VLLM_HOST_IP": address}
        self._child = start(
            "harness_llm.replicas.ray.guard",
            [module, str(file)],
            name=order.name,
            log=folder / "replica.log",
            environment={**place_environment(binding.cpus, folder), **own, **order.environment},
        )

    def news(self, timeout_s: float) -> News:
        """What the replica says within `timeout_s`."""
        events = list(watch([self._child], timeout_s))
        code = next((event.code for event in events if isinstance(event, Exit)), None)
        logs = [self._grown(log, whole=code is not None) for log in sorted(self._folder.path.glob("*.log"))]
        if code is not None:
            self._folder.remove()
        lines = [event.body for event in events if isinstance(event, Message)]
        return News(lines=lines, log=b"".join(logs), code=code)

    def stop(self) -> None:
        """End the replica, and take its folder away."""
        self._child.stop()
        self._folder.remove()

    def _grown(self, log: Path, *, whole: bool) -> bytes:
        """What is new in a log, the replica's or its server's."""
        with log.open("rb") as file:
            file.seek(self._read.get(log, 0))
            grown = file.read(-1 if whole else _LOG_BYTES)
            self._read[log] = file.tell()
        return grown


def _of_ray(environment: Any) -> list[str]:
    """What Ray sets for its workers, and engines would take for ours: a single thread, and no accelerator at all."""
    hidden = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")
    return [
        name for name, value in environment.items() if name == "OMP_NUM_THREADS" or (name in hidden and value == "")
    ]


def _binding(order: Order, devices: Sequence[int]) -> Binding:
    """By the accelerators that Ray gave; without any, the replica's part of the node."""
    parts: list[Sequence[int]] = [devices] if devices else [()] * order.slot.of
    found, _ = bindings(read_topology(), sorted(os.sched_getaffinity(0)), parts, loadgen=order.loadgen_cpus)
    return found[0 if devices else order.slot.number]


def _settled(spec: ReplicaSpec, binding: Binding, *, address: str, folder: Path, group: str) -> ReplicaSpec:
    """`spec` with what follows from the node: only its own address is listened at, at ports that are free."""
    own = f"tcp://{address}:*"
    return msgspec.structs.replace(
        spec,
        endpoint=Endpoint(own, own),
        cpus=list(binding.cpus),
        memory=list(binding.memory),
        server=msgspec.structs.replace(spec.server, log=str(folder / "server.log")),
        workers=group,
    )
