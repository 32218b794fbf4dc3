"""Relay: the child process of the replica pool that represents a replica on a Ray node.

Run as `python -m harness_llm.replicas.ray.relay ORDER.json`. It starts the replica by Ray, repeats the status lines and
log of the replica, and exits with it. On a regular exit it ends the replica in order. When the relay is killed, Ray
kills the replica and its guard; the next replica pool on that node removes the folder.
"""

import os
import sys
import time
import uuid
from pathlib import Path
from typing import Any

import msgspec

from harness_llm.errors import EnvironmentMissing, HarnessError, RunFailed
from harness_llm.protocol.child_processes import Parent, at_leave
from harness_llm.replicas.ray.connection import join, living
from harness_llm.replicas.ray.node import Host, Order

_ROOM_S = 120  # until a replica that was lost has let go of its devices
_NEWS_S = 1.0
_STOP_S = 3.0  # less than a child is waited for


def main() -> None:
    """Place, follow, leave."""
    order = msgspec.json.decode(Path(sys.argv[1]).read_bytes(), type=Order)
    parent = Parent(clean_up=Path(sys.argv[1]).parent)
    try:
        ray = join(order.cluster)
        host = _place(ray, order)
        at_leave(lambda: ray.get(host.stop.remote(), timeout=_STOP_S))
        code = _follow(ray, host, order, parent)
    except HarnessError as error:
        parent.say(event="failed", **error.facts())
        code = error.exit_code
    sys.stdout.flush()
    os._exit(code)  # Ray's own way out takes a second


def _place(ray: Any, order: Order) -> Any:
    """An actor in a placement group of its own; both end with this process.

    Raises:
        EnvironmentMissing: a node has left the cluster, or has no room.
    """
    group = f"{order.name}-{uuid.uuid4().hex}"
    placement = ray.util.placement_group(order.slot.bundles, strategy="PACK", name=group)
    deadline = time.monotonic() + _ROOM_S
    while not placement.wait(_NEWS_S):
        if gone := order.slot.nodes - living(ray).keys():
            raise EnvironmentMissing(
                f"a node of {order.name} has left the Ray cluster", where=order.cluster, found=", ".join(sorted(gone))
            )
        if time.monotonic() > deadline:
            raise EnvironmentMissing(
                f"there is no room for {order.name}",
                where=order.slot.node,
                expected=str(order.slot.bundles[0]),
                hint="ray status shows who has it",
            )
    own = {} if order.slot.workers else order.slot.bundles[0]
    strategy = ray.util.scheduling_strategies.PlacementGroupSchedulingStrategy(placement, 0)
    options = {"num_cpus": own.get("CPU", 0), "num_gpus": own.get("GPU", 0), "scheduling_strategy": strategy}
    return ray.remote(Host).options(**options).remote(order, group if order.slot.workers else "")


def _follow(ray: Any, host: Any, order: Order, parent: Parent) -> int:
    """Repeat what the replica says, until it has ended; its exit code.

    Raises:
        RunFailed: its node or its Ray worker is gone.
    """
    while True:
        try:
            news = ray.get(host.news.remote(_NEWS_S))
        except ray.exceptions.RayError as error:
            sys.stdout.write(f"{error}\n")
            raise RunFailed(
                f"{order.name} is lost with its node or its Ray worker",
                where=order.slot.node,
                found=" ".join(str(error).split())[:400],
            ) from error
        sys.stdout.buffer.write(news.log)
        sys.stdout.flush()
        for line in news.lines:
            parent.say(**line)
        if news.code is not None:
            return int(news.code)


if __name__ == "__main__":
    main()
