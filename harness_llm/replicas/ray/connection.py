"""Joining a Ray cluster from the machine where LoadGen runs; Ray is imported here and in what runs by it alone."""

import importlib
import os
import socket
from typing import Any

from harness_llm.errors import ConfigError, EnvironmentMissing

NAMESPACE = "harness-llm"
AUTO = "auto"
_PATIENCE_S = 10
_HELP = "docs/cluster.md says how Ray is started on the nodes"


def join(address: str) -> Any:
    """Ray, connected to the cluster at `address`, `host:port` or `auto` for the one that this machine is in.

    Raises:
        ConfigError: it is no address of a cluster.
        EnvironmentMissing: Ray is not installed, nobody answers, or this machine is no node of the cluster.
    """
    try:
        ray = importlib.import_module("ray")
    except ImportError as error:
        raise EnvironmentMissing("Ray is not installed here", found=str(error), hint="make ray") from error
    if address != AUTO:
        _require_listener(address)
    try:
        ray.init(address=address, namespace=NAMESPACE, log_to_driver=False, logging_level="ERROR")
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise EnvironmentMissing(
            "the Ray cluster cannot be joined", where=address, found=" ".join(str(error).split()), hint=_HELP
        ) from error
    return ray


def placement_group(name: str) -> Any:
    """The placement group called `name` of the cluster that RAY_ADDRESS names; this process joins that."""
    return join(os.environ["RAY_ADDRESS"]).util.get_placement_group(name)


def _require_listener(address: str) -> None:
    """Ray itself would try for minutes."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit():
        raise ConfigError(
            "this is no address of a Ray cluster",
            where="--ray, or RAY_ADDRESS",
            expected=f"host:port of its head, or {AUTO} on a node of it",
            found=address,
        )
    try:
        socket.create_connection((host.strip("[]"), int(port)), _PATIENCE_S).close()
    except OSError as error:
        raise EnvironmentMissing("no Ray cluster answers", where=address, found=str(error), hint=_HELP) from error


def living(ray: Any) -> dict[str, dict[str, Any]]:
    """What Ray says of its living nodes, by address; the one where this runs comes first."""
    here = ray.get_runtime_context().get_node_id()
    nodes = sorted((node for node in ray.nodes() if node["Alive"]), key=lambda n: (n["NodeID"] != here, n["NodeID"]))
    return {node["NodeManagerAddress"]: node for node in nodes}
