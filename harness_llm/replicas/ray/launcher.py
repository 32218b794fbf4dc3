"""Launcher of replicas on the nodes of a Ray cluster. Ray itself runs in child processes."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from harness_llm.config.engine_config import EngineConfig
from harness_llm.hardware.numa import Binding
from harness_llm.protocol.child_processes import Child, start
from harness_llm.replicas.local import node_environment, process_names
from harness_llm.replicas.placement import Placement, Resources, placement
from harness_llm.replicas.ray.assignment import Slot, assign
from harness_llm.replicas.ray.cluster import Cluster
from harness_llm.replicas.ray.node import HostSpec
from harness_llm.replicas.replica import ReplicaSpec


@dataclass(frozen=True)
class RayLauncher:
    """Starts a relay for each replica.

    Attributes:
        slots: assignment of each process, by name.
        loadgen_cpus: cores of the head that are reserved for LoadGen's process.
    """

    cluster: Cluster
    slots: Mapping[str, Slot]
    loadgen_cpus: int

    @property
    def placed(self) -> Placement:
        """Placement on the head; resources on other nodes are assigned there."""
        on_head = sum(slot.node == self.cluster.head for slot in self.slots.values())
        here = placement([{}] * on_head, self.loadgen_cpus)
        cpus = here.loadgen_cpus if on_head else sorted(os.sched_getaffinity(0))
        return Placement([Resources({}, Binding((), ()))] * len(self.slots), cpus)

    def __call__(self, name: str, specs: Sequence[ReplicaSpec], environment: Mapping[str, str], log: Path) -> Child:
        """Start the relay, a child on this machine that represents the replica."""
        folder, slot = Path(environment["TMPDIR"]), self.slots[name]
        of_this_node = node_environment(specs[0].cpus, folder).items()
        spec = HostSpec(
            name=name,
            cluster=self.cluster.address,
            slot=slot,
            specs=list(specs),
            environment={key: value for key, value in environment.items() if (key, value) not in of_this_node},
            loadgen_cpus=self.loadgen_cpus if slot.node == self.cluster.head else 0,
        )
        file = folder / f"{name}.json"
        file.write_bytes(msgspec.json.encode(spec))
        return start(
            "harness_llm.replicas.ray.relay", [str(file)], name=name, log=log, environment={"TMPDIR": str(folder)}
        )


def ray_launcher(cluster: Cluster, config: EngineConfig, engine: str, *, accelerated: bool) -> RayLauncher:
    """Return the launcher for the replicas of `config`.

    Raises:
        ConfigError: too few resources in the cluster.
    """
    loadgen_cpus, names = config.harness_config.loadgen_cpus, process_names(config, engine)
    slots = assign(
        cluster.capacities(loadgen_cpus),
        replicas=len(names),
        size=config.group,
        accelerated=accelerated,
        workers=config.over_nodes,
    )
    return RayLauncher(cluster, dict(zip(names, slots, strict=True)), loadgen_cpus)
