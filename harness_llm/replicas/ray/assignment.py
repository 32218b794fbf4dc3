"""Assignment of replicas to the nodes of a Ray cluster. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from harness_llm.config.commands import engine_setting, typed
from harness_llm.errors import ConfigError

_NODE = "node:"  # plus the address: the resource that Ray defines for each node

Bundle = dict[str, float]
"""Resources on one node, as in Ray's placement groups."""


@dataclass(frozen=True)
class Capacity:
    """Resources of a node for replicas."""

    address: str
    cpus: int
    gpus: int


class Slot(msgspec.Struct, frozen=True, kw_only=True):
    """Assignment of one replica.

    Attributes:
        node: address of the node of its process.
        bundles: its resources, each on a certain node.
        number: index among the `of` replicas on its node.
        workers: whether each worker of its engine has a bundle, for vLLM's ray executor.
    """

    node: str
    bundles: list[Bundle]
    number: int
    of: int
    workers: bool = False

    @property
    def nodes(self) -> set[str]:
        """Addresses of all its nodes."""
        return {name.removeprefix(_NODE) for bundle in self.bundles for name in bundle if name.startswith(_NODE)}


def assign(nodes: Sequence[Capacity], *, replicas: int, size: int, accelerated: bool, workers: bool) -> list[Slot]:
    """Assign `replicas` of `size` devices each to nodes.

    Unequal nodes get unequal numbers of replicas; the scheduler adapts to the speed of each.

    Args:
        accelerated: whether the devices are accelerators; CPU cores are shared out as widely as they go.
        workers: whether vLLM's ray executor places the workers of an engine, which then may span nodes.

    Raises:
        ConfigError: there are not enough devices, or none of the nodes has enough for a replica that spans none.
    """
    if not accelerated:
        return _on_cores(nodes, replicas)
    if not workers and size > max(node.gpus for node in nodes):
        raise ConfigError(
            f"no node has the {size} accelerators of a replica",
            where="llm_config.tensor_parallel_size, pipeline_parallel_size",
            found=_listed(nodes),
            hint=f"{engine_setting('llm_config.distributed_executor_backend', 'ray')} lets a replica span nodes",
        )
    slots = _with_workers(nodes, replicas, size) if workers else _whole(nodes, replicas, {"GPU": size})
    if len(slots) < replicas:
        raise ConfigError(
            f"not enough accelerators for {replicas} replicas of {size}",
            where="harness_config.replicas",
            expected=f"{replicas * size} on nodes of the Ray cluster",
            found=_listed(nodes),
            hint=typed(gpu_count=len(slots) * size) if slots else "",
        )
    return slots


def _listed(nodes: Sequence[Capacity]) -> str:
    return ", ".join(f"{node.gpus} on {node.address}" for node in nodes)


def _whole(nodes: Sequence[Capacity], replicas: int, bundle: Bundle) -> list[Slot]:
    [(kind, size)] = bundle.items()
    rooms = [int((node.gpus if kind == "GPU" else node.cpus) // size) for node in nodes]
    chosen = _choose(rooms, replicas)
    return [
        Slot(
            node=nodes[node].address,
            bundles=[_pinned(bundle, nodes[node])],
            number=chosen[:replica].count(node),
            of=chosen.count(node),
        )
        for replica, node in enumerate(chosen)
    ]


def _on_cores(nodes: Sequence[Capacity], replicas: int) -> list[Slot]:
    for cores in range(max(node.cpus for node in nodes), 0, -1):
        slots = _whole(nodes, replicas, {"CPU": cores})
        if len(slots) == replicas:
            return slots
    raise ConfigError(
        f"not enough CPUs for {replicas} replicas",
        where="harness_config.replicas",
        found=", ".join(f"{node.cpus} on {node.address}" for node in nodes),
        hint=engine_setting("harness_config.replicas", sum(node.cpus for node in nodes)),
    )


def _with_workers(nodes: Sequence[Capacity], replicas: int, size: int) -> list[Slot]:
    """Assign a bundle to each worker; a replica has equal parts on as few nodes as possible.

    Tensor parallel within a node, pipeline parallel across nodes: vLLM ranks the workers node by node.
    """
    for count in range(1, len(nodes) + 1):
        part, rest = divmod(size, count)
        able = [] if rest else [node for node in nodes for _ in range(node.gpus // part)]
        if count > 1:
            able = [node for node in nodes if able.count(node)]
        if len(able) >= count:
            groups = [able[start : start + count] for start in range(0, len(able) - count + 1, count)]
            return [_over(group, part) for group in groups[:replicas]]
    return []


def _over(group: Sequence[Capacity], part: int) -> Slot:
    bundles = [_pinned({"GPU": 1}, node) for node in group for _ in range(part)]
    return Slot(node=group[0].address, bundles=bundles, number=0, of=1, workers=True)


def _choose(rooms: Sequence[int], replicas: int) -> list[int]:
    """Choose the node with the most room for each replica; fewer than `replicas` if there is no room."""
    left = list(rooms)
    chosen: list[int] = []
    while len(chosen) < replicas and max(left) > 0:
        node = max(range(len(left)), key=lambda n: (left[n], -n))
        left[node] -= 1
        chosen.append(node)
    return chosen


def _pinned(bundle: Bundle, node: Capacity) -> Bundle:
    return {**bundle, f"{_NODE}{node.address}": 0.001}
