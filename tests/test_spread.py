"""Which node of a cluster each replica goes to."""

import pytest

from harness_llm.errors import ConfigError
from harness_llm.replicas.ray.assignment import Capacity, Slot, assign


def gpus(*counts: int) -> list[Capacity]:
    return [Capacity(f"10.0.0.{n}", 64, count) for n, count in enumerate(counts, 1)]


def cpus(*counts: int) -> list[Capacity]:
    return [Capacity(f"10.0.0.{n}", count, 0) for n, count in enumerate(counts, 1)]


def on_accelerators(nodes: list[Capacity], replicas: int, size: int, *, workers: bool = False) -> list[Slot]:
    return assign(nodes, replicas=replicas, size=size, accelerated=True, workers=workers)


def on_cpus(nodes: list[Capacity], replicas: int) -> list[Slot]:
    return assign(nodes, replicas=replicas, size=1, accelerated=False, workers=False)


def hosts(slots: list[Slot]) -> str:
    return " ".join(slot.node[-1] for slot in slots)


def test_every_accelerator_of_two_nodes() -> None:
    slots = on_accelerators(gpus(8, 8), 16, 1)
    assert [slot.node for slot in slots].count("10.0.0.1") == 8
    assert slots[0].bundles == [{"GPU": 1, "node:10.0.0.1": 0.001}]
    assert slots[0].nodes == {"10.0.0.1"}
    assert not any(slot.workers for slot in slots)


def test_unequal_nodes_hold_what_fits_on_them() -> None:
    assert hosts(on_accelerators(gpus(8, 4), 3, 4)) == "1 1 2"
    assert hosts(on_accelerators(gpus(2, 8), 5, 2)) == "2 2 2 1 2"


def test_few_replicas_go_where_room_is() -> None:
    assert hosts(on_accelerators(gpus(8, 8), 2, 2)) == "1 2"


def test_cores_are_shared_out_as_widely_as_they_go() -> None:
    slots = on_cpus(cpus(64, 64), 4)
    assert hosts(slots) == "1 2 1 2"
    assert {slot.bundles[0]["CPU"] for slot in slots} == {32}
    assert [(slot.number, slot.of) for slot in slots] == [(0, 2), (0, 2), (1, 2), (1, 2)]
    assert hosts(on_cpus(cpus(1, 2), 2)) == "2 1"
    assert hosts(on_cpus(cpus(0, 2), 2)) == "2 2"


def test_a_replica_over_two_nodes_has_equal_parts_of_both() -> None:
    (slot,) = on_accelerators(gpus(8, 8), 1, 16, workers=True)
    assert slot.node == "10.0.0.1"
    assert slot.nodes == {"10.0.0.1", "10.0.0.2"}
    assert slot.bundles == [{"GPU": 1, f"node:10.0.0.{node}": 0.001} for node in (1, 2) for _ in range(8)]
    assert slot.workers


def test_several_replicas_over_nodes() -> None:
    slots = on_accelerators(gpus(8, 8, 8, 8), 2, 16, workers=True)
    assert [slot.nodes for slot in slots] == [{"10.0.0.1", "10.0.0.2"}, {"10.0.0.3", "10.0.0.4"}]


def test_workers_that_fit_on_a_node_stay_on_it() -> None:
    slots = on_accelerators(gpus(8, 8), 4, 4, workers=True)
    assert [(slot.node, len(slot.nodes), len(slot.bundles)) for slot in slots] == [
        ("10.0.0.1", 1, 4),
        ("10.0.0.1", 1, 4),
        ("10.0.0.2", 1, 4),
        ("10.0.0.2", 1, 4),
    ]


@pytest.mark.parametrize(
    ("replicas", "size", "workers", "what"),
    [
        (3, 8, False, "not enough accelerators for 3 replicas of 8"),
        (2, 16, True, "not enough accelerators for 2 replicas of 16"),
        (1, 24, True, "not enough accelerators for 1 replicas of 24"),
        (1, 16, False, "no node has the 16 accelerators of a replica"),
    ],
)
def test_what_does_not_fit(replicas: int, size: int, workers: bool, what: str) -> None:
    with pytest.raises(ConfigError) as raised:
        on_accelerators(gpus(8, 8), replicas, size, workers=workers)
    assert raised.value.what == what
    assert raised.value.found == "8 on 10.0.0.1, 8 on 10.0.0.2"


def test_more_replicas_than_cores() -> None:
    with pytest.raises(ConfigError, match="not enough CPUs for 4 replicas") as raised:
        on_cpus(cpus(1, 2), 4)
    assert raised.value.hint == "--set harness_config.replicas=3"
