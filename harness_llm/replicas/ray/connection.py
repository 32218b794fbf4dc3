"""Connection to a Ray cluster from the machine where LoadGen runs; Ray is imported here and in Ray's workers only."""

import importlib
import os
import socket
from typing import Any

from harness_llm.config.commands import name_of
from harness_llm.errors import ConfigError, EnvironmentMissing
from harness_llm.paths import installed_by

NAMESPACE = "harness-llm"
AUTO = "auto"
_PATIENCE_S = 10
_HINT = "start Ray on the nodes as described in docs/cluster.md"


def join(address: str) -> Any:
    """Connect Ray to the cluster at `address`: `host:port`, or `auto` for the cluster of this machine.

    Raises:
        ConfigError: invalid address.
        EnvironmentMissing: Ray is not installed, no cluster answers, or this machine is not a node of it.
    """
    try:
        ray = importlib.import_module("ray")
    except ImportError as error:
        raise EnvironmentMissing("Ray is not installed", found=str(error), hint=installed_by("ray")) from error
    if address != AUTO:
        _require_listener(address)
    try:
        ray.init(address=address, namespace=NAMESPACE, log_to_driver=False, logging_level="ERROR")
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise EnvironmentMissing(
            "no connection to the Ray cluster", where=address, found=" ".join(str(error).split()), hint=_HINT
        ) from error
    return ray


def placement_group(name: str) -> Any:
    """Connect to the cluster at RAY_ADDRESS and return its placement group `name`."""
    return join(os.environ["RAY_ADDRESS"]).util.get_placement_group(name)


def _require_listener(address: str) -> None:
    """Raise EnvironmentMissing if no process listens at `address`; Ray itself would retry for minutes."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit():
        raise ConfigError(
            "invalid address of a Ray cluster",
            where=name_of("ray"),
            expected=f"host:port of the head node, or {AUTO} on a node of the cluster",
            found=address,
        )
    try:
        socket.create_connection((host.strip("[]"), int(port)), _PATIENCE_S).close()
    except OSError as error:
        raise EnvironmentMissing("no answer from a Ray cluster", where=address, found=str(error), hint=_HINT) from error


def alive_nodes(ray: Any) -> dict[str, dict[str, Any]]:
    """Return Ray's description of its nodes by address, this machine first.

    Ray regards a failed node as alive until its health check fails, also after a restart of Ray on that node.
    """
    here = ray.get_runtime_context().get_node_id()
    nodes = sorted((node for node in ray.nodes() if node["Alive"]), key=lambda n: (n["NodeID"] != here, n["NodeID"]))
    return {node["NodeManagerAddress"]: node for node in nodes}
