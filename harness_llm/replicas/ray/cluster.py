"""The nodes of a Ray cluster: what each is, and what must be the same on all of them."""

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

_PATIENCE_S = 300  # of checkpoints that a node hashes for the first time, in seconds without a word
ALIKE = "docs/cluster.md says what must be the same on every node"


class Look(msgspec.Struct, frozen=True, kw_only=True):
    """What a node tells of itself.

    Attributes:
        folder: where its harness_llm lies; `source` is the digest of that.
        packages: versions of what engines are made of.
        inherited: variables in its environment that steer engines.
        machine: from `detect`; `host` from `read_host`.
        digests: of the checkpoints and stores that were asked for, by path; empty where there is none.
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
    """A living node of the cluster; `cpus` and `gpus` as Ray counts them."""

    address: str
    cpus: int
    gpus: int
    look: Look


@dataclass(frozen=True)
class Cluster:
    """The living nodes; the first is the head, where LoadGen runs."""

    address: str
    nodes: tuple[Node, ...]

    @property
    def head(self) -> str:
        """The address of the node where LoadGen runs."""
        return self.nodes[0].address

    def capacities(self, loadgen: int) -> list[Capacity]:
        """What the nodes have for replicas once `loadgen` cores of the head are kept for LoadGen's process."""
        return [Capacity(n.address, max(n.cpus - loadgen * (n.address == self.head), 0), n.gpus) for n in self.nodes]

    def facts(self) -> list[dict[str, Any]]:
        """What the nodes add to the fingerprint of a run."""
        return [node_facts(n.look.machine, n.look.inherited, n.look.packages) for n in self.nodes]

    def records(self) -> dict[str, NodeRecord]:
        """What run.json keeps of the nodes."""
        looks = {node.address: node.look for node in self.nodes}
        return {
            address: NodeRecord(machine=look.machine, host=look.host, ecc=look.ecc) for address, look in looks.items()
        }


def survey(address: str, log: Path, paths: Sequence[Path] = ()) -> Cluster:
    """Ask every node of the cluster at `address`; takes some seconds.

    Args:
        log: where the program that asks writes.
        paths: checkpoints and stores that every node must have as the head has them.

    Raises:
        EnvironmentMissing: there is no such cluster, or a node is not like the head.
        RunFailed: a node does not answer.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    child = start(
        "harness_llm.replicas.ray.survey", [address, *map(str, paths)], name="survey", log=log, environment={}
    )
    try:
        nodes = _told(child, log)
    finally:
        child.stop(patience_s=1)
    require_alike(nodes, paths)
    return Cluster(address, tuple(nodes))


def _told(child: Child, log: Path) -> list[Node]:
    """What the survey says until its good end."""
    nodes: list[Node] = []
    failure: HarnessError | None = None
    deadline = time.monotonic() + _PATIENCE_S
    while time.monotonic() < deadline:
        for event in watch([child], 1):
            if isinstance(event, Exit):
                if event.code or not nodes:
                    raise failure or RunFailed("the survey failed", where=str(log), found=child.last_lines())
                return nodes
            if event.body["event"] == "failed":
                failure = rebuild(event.body)
            else:
                nodes.append(msgspec.convert(event.body["node"], Node))
                deadline = time.monotonic() + _PATIENCE_S
    raise RunFailed("the nodes of the Ray cluster do not answer", where=str(log))


def require_alike(nodes: Sequence[Node], paths: Sequence[Path] = ()) -> None:
    """Raise where a node runs other software than the head, or lacks one of `paths`."""
    head = nodes[0]
    for node in nodes:
        for what, where, expected, found in _differences(head.look, node.look, paths):
            if expected != found:
                raise EnvironmentMissing(
                    f"{node.address} has {what}",
                    where=f"{node.address}: {where}",
                    expected=expected or "what is there on the head",
                    found=found or "nothing",
                    hint=ALIKE,
                )


def _differences(head: Look, node: Look, paths: Sequence[Path]) -> Iterator[tuple[str, str, str, str]]:
    yield "another harness_llm than the head", node.folder, head.source, node.source
    for name in sorted({*head.packages, *node.packages}):
        expected, found = (look.packages.get(name, "none") for look in (head, node))
        yield f"another {name} than the head", name, expected, found
    for path in map(str, paths):
        yield "not what the replicas read", path, head.digests[path] or "the same on every node", node.digests[path]
