"""Replicas on the nodes of a Ray cluster: what `replica pool.local` is to one machine. Ray itself runs in children."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from harness_llm.config.engine_config import EngineConfig
from harness_llm.hardware.numa import Binding
from harness_llm.protocol.child_processes import Child, start
from harness_llm.replicas.local import place_environment, place_names
from harness_llm.replicas.placement import Place, Placement, placement
from harness_llm.replicas.ray.assignment import Slot, spread
from harness_llm.replicas.ray.cluster import Cluster
from harness_llm.replicas.ray.node import Order
from harness_llm.replicas.replica import ReplicaSpec


@dataclass(frozen=True)
class RayLauncher:
    """Starts a relay for each replica.

    Attributes:
        slots: where each goes, by its name.
        loadgen_cpus: cores of the head that are kept for LoadGen's process.
    """

    cluster: Cluster
    slots: Mapping[str, Slot]
    loadgen_cpus: int

    @property
    def placed(self) -> Placement:
        """What follows on the head; of the replicas' own nodes nothing is known here."""
        on_head = sum(slot.node == self.cluster.head for slot in self.slots.values())
        here = placement([{}] * on_head, self.loadgen_cpus)
        cpus = here.loadgen_cpus if on_head else sorted(os.sched_getaffinity(0))
        return Placement([Place({}, Binding((), ()))] * len(self.slots), cpus)

    def __call__(self, name: str, specs: Sequence[ReplicaSpec], environment: Mapping[str, str], log: Path) -> Child:
        """A child on this machine that stands for the replica."""
        folder, slot = Path(environment["TMPDIR"]), self.slots[name]
        of_here = place_environment(specs[0].cpus, folder).items()
        order = Order(
            name=name,
            cluster=self.cluster.address,
            slot=slot,
            specs=list(specs),
            environment={key: value for key, value in environment.items() if (key, value) not in of_here},
            loadgen_cpus=self.loadgen_cpus if slot.node == self.cluster.head else 0,
        )
        file = folder / f"{name}.json"
        file.write_bytes(msgspec.json.encode(order))
        return start(
            "harness_llm.replicas.ray.relay", [str(file)], name=name, log=log, environment={"TMPDIR": str(folder)}
        )


def ray_launcher(cluster: Cluster, config: EngineConfig, engine: str, *, accelerated: bool) -> RayLauncher:
    """What starts the replicas of `config`.

    Raises:
        ConfigError: the cluster has no room for them.
    """
    kept, names = config.harness_config.loadgen_cpus, place_names(config, engine)
    slots = spread(
        cluster.capacities(kept),
        replicas=len(names),
        size=config.group,
        accelerated=accelerated,
        workers=config.over_nodes,
    )
    return RayLauncher(cluster, dict(zip(names, slots, strict=True)), kept)
