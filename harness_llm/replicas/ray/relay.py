"""Relay: the child process of the replica pool that represents a replica on a Ray node.

Run as `python -m harness_llm.replicas.ray.relay ORDER.json`. It starts the replica with Ray, forwards its messages and
log, and exits with it. When the relay exits, it stops the replica; when the relay is killed, Ray kills the replica and
its guard, and the next replica pool on that node removes the folder.
"""

import os
import sys
import time
import uuid
from pathlib import Path
from typing import Any

import msgspec

from harness_llm.errors import EnvironmentMissing, HarnessError, ProcessFailed
from harness_llm.protocol.child_processes import Parent, before_exit
from harness_llm.replicas.ray.connection import alive_nodes, join
from harness_llm.replicas.ray.node import Host, HostSpec

_ROOM_S = 120  # until a failed replica has released its devices
_STATUS_S = 1.0
_STOP_S = 3.0  # less than the 5 s that Child.stop waits for this process


def main() -> None:
    """Start the replica, forward its messages, and exit with it."""
    spec = msgspec.json.decode(Path(sys.argv[1]).read_bytes(), type=HostSpec)
    parent = Parent(clean_up=Path(sys.argv[1]).parent)
    try:
        ray = join(spec.cluster)
        host = _start(ray, spec)
        before_exit(lambda: ray.get(host.stop.remote(), timeout=_STOP_S))
        code = _forward(ray, host, spec, parent)
    except HarnessError as error:
        parent.send(event="failed", **error.facts())
        code = error.exit_code
    sys.stdout.flush()
    os._exit(code if code >= 0 else 128 - code)  # Ray's exit handlers take a second


def _start(ray: Any, spec: HostSpec) -> Any:
    """Start an actor in its own placement group; both exit with this process.

    Raises:
        EnvironmentMissing: a node has left the cluster, or has too few free resources.
    """
    group = f"{spec.name}-{uuid.uuid4().hex}"
    placement = ray.util.placement_group(spec.slot.bundles, strategy="PACK", name=group)
    deadline = time.monotonic() + _ROOM_S
    while not placement.wait(_STATUS_S):
        if missing := spec.slot.nodes - alive_nodes(ray).keys():
            raise EnvironmentMissing(
                f"a node of {spec.name} has left the Ray cluster", where=spec.cluster, found=", ".join(sorted(missing))
            )
        if time.monotonic() > deadline:
            raise EnvironmentMissing(
                f"no free resources for {spec.name}",
                where=spec.slot.node,
                expected=str(spec.slot.bundles[0]),
                hint="ray status shows the use of resources",
            )
    own = {} if spec.slot.workers else spec.slot.bundles[0]
    strategy = ray.util.scheduling_strategies.PlacementGroupSchedulingStrategy(placement, 0)
    options = {"num_cpus": own.get("CPU", 0), "num_gpus": own.get("GPU", 0), "scheduling_strategy": strategy}
    return ray.remote(Host).options(**options).remote(spec, group if spec.slot.workers else "")


def _forward(ray: Any, host: Any, spec: HostSpec, parent: Parent) -> int:
    """Forward messages and log of the replica until it exits; return its exit code, negative for a signal.

    Raises:
        ProcessFailed: its node or its Ray worker has failed.
    """
    while True:
        try:
            status = ray.get(host.status.remote(_STATUS_S))
        except ray.exceptions.RayError as error:
            sys.stdout.write(f"{error}\n")
            raise ProcessFailed(
                f"{spec.name} failed with its node or its Ray worker",
                where=spec.slot.node,
                found=" ".join(str(error).split())[:400],
            ) from error
        sys.stdout.buffer.write(status.log)
        sys.stdout.flush()
        for message in status.messages:
            parent.send(**message)
        if status.code is not None:
            return int(status.code)


if __name__ == "__main__":
    main()
