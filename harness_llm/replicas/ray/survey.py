"""Asks every node of a Ray cluster what it is: `python -m harness_llm.replicas.ray.survey ADDRESS [PATH …]`.

A process of its own, as Ray is slow to import and hard to leave.
"""

import os
import sys
from collections.abc import Sequence
from typing import Any

import msgspec

from harness_llm.errors import EnvironmentMissing, HarnessError
from harness_llm.paths import CHECKOUT
from harness_llm.protocol.child_processes import Parent
from harness_llm.replicas.ray.cluster import ALIKE, Node
from harness_llm.replicas.ray.connection import join, living
from harness_llm.replicas.ray.node import look


def main() -> None:
    """Tell the parent of each node in turn, the head first."""
    parent = Parent()
    address, *paths = sys.argv[1:]
    try:
        _survey(parent, address, paths)
    except HarnessError as error:
        parent.say(event="failed", **error.facts())
        code = error.exit_code
    else:
        code = 0
    os._exit(code)  # Ray's own way out takes a second


def _survey(parent: Parent, address: str, paths: Sequence[str]) -> None:
    ray = join(address)
    nodes = living(ray)
    asked = {where: _ask(ray, facts["NodeID"], paths) for where, facts in nodes.items()}
    for where, facts in nodes.items():
        resources = facts["Resources"]
        node = Node(
            address=where,
            cpus=int(resources.get("CPU", 0)),
            gpus=int(resources.get("GPU", 0)),
            look=_answer(ray, where, asked[where]),
        )
        parent.say(event="node", node=msgspec.to_builtins(node))


def _ask(ray: Any, node: str, paths: Sequence[str]) -> Any:
    affinity = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(node, soft=False)
    return ray.remote(look).options(num_cpus=0, scheduling_strategy=affinity, max_retries=0).remote(paths)


def _answer(ray: Any, where: str, asked: Any) -> Any:
    try:
        return ray.get(asked)
    except (ray.exceptions.RayError, ImportError, RuntimeError) as error:
        raise EnvironmentMissing(
            f"{where} has no harness_llm like ours, or does not answer",
            where=f"{where}: {CHECKOUT}",
            found=(str(error).strip().splitlines() or [""])[-1],
            hint=ALIKE,
        ) from error


if __name__ == "__main__":
    main()
