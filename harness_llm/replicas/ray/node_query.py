"""Query of all nodes of a Ray cluster: `python -m harness_llm.replicas.ray.node_query ADDRESS [PATH …]`.

It is a process of its own, because importing Ray and disconnecting from a cluster are slow.
"""

import os
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from harness_llm.errors import EnvironmentMissing, HarnessError
from harness_llm.paths import CHECKOUT
from harness_llm.protocol.child_processes import Parent
from harness_llm.replicas.ray.cluster import HINT, Node
from harness_llm.replicas.ray.connection import alive_nodes, join
from harness_llm.replicas.ray.node import read_node_info

_POLL_S = 1.0
_HEALTH_CHECK_S = 60.0  # Ray removes a failed node after five checks, one every three seconds, and their timeouts


def main() -> None:
    """Report each node to the parent, the head first."""
    parent = Parent()
    address, *paths = sys.argv[1:]
    try:
        _query(parent, address, paths)
    except HarnessError as error:
        parent.send(event="failed", **error.facts())
        code = error.exit_code
    else:
        code = 0
    os._exit(code)  # Ray's exit handlers take a second


def _query(parent: Parent, address: str, paths: Sequence[str]) -> None:
    ray = join(address)
    for node in _answers(ray, paths):
        parent.send(event="node", node=msgspec.to_builtins(node))


def _answers(ray: Any, paths: Sequence[str]) -> list[Node]:
    """Return all nodes; ask again while Ray lists a failed node as alive, also after a restart of Ray on it.

    Raises:
        EnvironmentMissing: no answer from a node.
    """
    deadline = time.monotonic() + _HEALTH_CHECK_S
    while True:
        nodes = alive_nodes(ray)
        requests = {where: _request(ray, facts["NodeID"], paths) for where, facts in nodes.items()}
        try:
            return [_node(ray, where, facts["Resources"], requests[where]) for where, facts in nodes.items()]
        except EnvironmentMissing as error:
            failed_on_node = isinstance(error.__cause__, ray.exceptions.RayTaskError)
            if failed_on_node or time.monotonic() > deadline:
                raise
        time.sleep(_POLL_S)


def _request(ray: Any, node: str, paths: Sequence[str]) -> Any:
    affinity = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(node, soft=False)
    return ray.remote(read_node_info).options(num_cpus=0, scheduling_strategy=affinity, max_retries=0).remote(paths)


def _node(ray: Any, where: str, resources: Mapping[str, float], request: Any) -> Node:
    try:
        info = ray.get(request)
    except (ray.exceptions.RayError, ImportError, RuntimeError) as error:
        raise EnvironmentMissing(
            f"no answer from {where}, or another harness_llm there",
            where=f"{where}: {CHECKOUT}",
            found=(str(error).strip().splitlines() or [""])[-1],
            hint=HINT,
        ) from error
    return Node(address=where, cpus=int(resources.get("CPU", 0)), gpus=int(resources.get("GPU", 0)), info=info)


if __name__ == "__main__":
    main()
