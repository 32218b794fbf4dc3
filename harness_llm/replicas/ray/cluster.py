"""Nodes of a Ray cluster: information about each, and the check that all are alike."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from harness_llm.errors import EnvironmentMissing, HarnessError, RunFailed, rebuild
from harness_llm.hardware.ecc import Ecc
from harness_llm.protocol.child_processes import Child, Exit, start, watch
from harness_llm.replicas.ray.assignment import Capacity
from harness_llm.runs.fingerprint import node_facts
from harness_llm.runs.record import NodeRecord

# Seconds without a message.
_PATIENCE_S = 300
_HASHING_S = 7200  # a node may hash checkpoints for the first time: 700 GB at 100 MB/s
HINT = "docs/cluster.md lists what must be equal on all nodes"


class NodeInfo(msgspec.Struct, frozen=True, kw_only=True):
    """Software and hardware of a node.

    Attributes:
        folder: path of its harness_llm; `source` is the digest of its measuring part.
        packages: versions of the packages that engines consist of.
        inherited: environment variables that affect engines.
        machine: from `detect`; `host` from `read_host_settings`.
        digests: of the requested checkpoints and stores, by path; empty for a missing one.
    """

    folder: str
    source: str
    packages: dict[str, str]
    inherited: dict[str, str]
    machine: dict[str, str]
    host: dict[str, str]
    ecc: Ecc
    digests: dict[str, str]


class Node(msgspec.Struct, frozen=True, kw_only=True):
    """A node of the cluster that is alive; `cpus` and `gpus` as counted by Ray."""

    address: str
    cpus: int
    gpus: int
    info: NodeInfo


@dataclass(frozen=True)
class Cluster:
    """The nodes that are alive; the first is the head, where LoadGen runs."""

    address: str
    nodes: tuple[Node, ...]

    @property
    def head(self) -> str:
        """Address of the node where LoadGen runs."""
        return self.nodes[0].address

    def capacities(self, loadgen: int) -> list[Capacity]:
        """Return the resources for replicas; `loadgen` cores of the head are reserved for LoadGen's process."""
        return [Capacity(n.address, max(n.cpus - loadgen * (n.address == self.head), 0), n.gpus) for n in self.nodes]

    def facts(self) -> list[dict[str, Any]]:
        """Return the nodes' part of the fingerprint of a run."""
        return [node_facts(n.info.machine, n.info.inherited, n.info.packages) for n in self.nodes]

    def records(self) -> dict[str, NodeRecord]:
        """Return the nodes' part of run.json."""
        infos = {node.address: node.info for node in self.nodes}
        return {
            address: NodeRecord(machine=info.machine, host=info.host, ecc=info.ecc) for address, info in infos.items()
        }


def query_cluster(address: str, log: Path, paths: Sequence[Path] = ()) -> Cluster:
    """Query all nodes of the cluster at `address`, and check that they are alike; takes some seconds.

    Args:
        log: of the child process that queries.
        paths: checkpoints and stores that must be equal on all nodes.

    Raises:
        EnvironmentMissing: no cluster at `address`, or a node differs from the head.
        RunFailed: no answer from a node.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    arguments = [address, *map(str, paths)]
    child = start("harness_llm.replicas.ray.node_query", arguments, name="node-query", log=log, environment={})
    try:
        nodes = _receive(child, log, _HASHING_S if paths else _PATIENCE_S)
    finally:
        child.stop(patience_s=1)
    require_alike(nodes, paths)
    return Cluster(address, tuple(nodes))


def _receive(child: Child, log: Path, timeout_s: float) -> list[Node]:
    """Return the nodes that the query reports until it succeeds; wait up to `timeout_s` for each message."""
    nodes: list[Node] = []
    failure: HarnessError | None = None
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        for event in watch([child], 1):
            if isinstance(event, Exit):
                if event.code or not nodes:
                    raise failure or RunFailed(
                        "query of the Ray nodes failed", where=str(log), found=child.last_lines()
                    )
                return nodes
            if event.body["event"] == "failed":
                failure = rebuild(event.body)
            else:
                nodes.append(msgspec.convert(event.body["node"], Node))
                deadline = time.monotonic() + timeout_s
    raise RunFailed(f"no answer from the nodes of the Ray cluster within {timeout_s:g} s", where=str(log))


def require_alike(nodes: Sequence[Node], paths: Sequence[Path] = ()) -> None:
    """Raise EnvironmentMissing if a node has other software than the head, or lacks one of `paths`."""
    head = nodes[0]
    for node in nodes:
        for what, where, expected, found in _differences(head.info, node.info, paths):
            if expected != found:
                raise EnvironmentMissing(
                    f"{node.address} has {what}",
                    where=f"{node.address}: {where}",
                    expected=expected or "as on the head",
                    found=found or "nothing",
                    hint=HINT,
                )


def _differences(head: NodeInfo, node: NodeInfo, paths: Sequence[Path]) -> Iterator[tuple[str, str, str, str]]:
    yield "another harness_llm than the head", node.folder, head.source, node.source
    for name in sorted({*head.packages, *node.packages}):
        expected, found = (info.packages.get(name, "none") for info in (head, node))
        yield f"another {name} than the head", name, expected, found
    for path in map(str, paths):
        yield (
            "another checkpoint or data set than the head",
            path,
            head.digests[path] or "equal on all nodes",
            node.digests[path],
        )
