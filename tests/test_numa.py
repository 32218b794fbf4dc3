"""Binding of replicas to cores and memory, on machines made of files and on this one."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from fake_node import nvidia_gpu, nvidia_smi, use_path
from machines import PCI, hide_tools, write_root

from harness_llm.hardware.numa import Binding, Topology, bindings, cpu_list, read_topology

NODES = "sys/devices/system/node"


def machine(root: Path, nodes: list[str], homes: list[str], *, cores: int, memory: str = "") -> Topology:
    """A machine of NUMA `nodes` (their CPU lists), each a package of `cores`, with accelerators at `homes`."""
    files = {f"{NODES}/node{n}/cpulist": cpus for n, cpus in enumerate(nodes)}
    files[f"{NODES}/has_memory"] = memory or f"0-{len(nodes) - 1}"
    for node, cpus in enumerate(nodes):
        for place, cpu in enumerate(cpu_list(cpus)):
            files[f"sys/devices/system/cpu/cpu{cpu}/topology/physical_package_id"] = str(node)
            files[f"sys/devices/system/cpu/cpu{cpu}/topology/core_id"] = str(place % cores)
    for number, home in enumerate(homes):
        files[f"{PCI}/0000:{number + 16:02x}:00.0/class"] = "0x030200"
        files[f"{PCI}/0000:{number + 16:02x}:00.0/numa_node"] = home
    return read_topology(write_root(root, files))


def cpus_of(found: tuple[list[Binding], list[int]]) -> list[list[int]]:
    return [list(binding.cpus) for binding in found[0]]


def test_cpu_lists_are_parsed() -> None:
    assert cpu_list("0-3,8,10-11") == [0, 1, 2, 3, 8, 10, 11]
    assert cpu_list("") == []


# Two sockets of 4 cores with two threads each, and four accelerators at each socket
@pytest.fixture
def node_of_8(tmp_path: Path) -> Topology:
    return machine(tmp_path, ["0-3,8-11", "4-7,12-15"], ["0"] * 4 + ["1"] * 4, cores=4)


def test_replicas_are_bound_to_the_numa_node_of_their_accelerators(node_of_8: Topology) -> None:
    found = bindings(node_of_8, range(16), [[i] for i in range(8)])
    assert cpus_of(found) == [[i, i + 8] for i in range(8)]
    assert [binding.memory for binding in found[0]] == [(0,)] * 4 + [(1,)] * 4
    assert found[1] == list(range(16))


def test_replica_of_four_accelerators_has_one_socket(node_of_8: Topology) -> None:
    found = bindings(node_of_8, range(16), [[0, 1, 2, 3], [4, 5, 6, 7]], loadgen=1)
    assert cpus_of(found) == [[0, 1, 2, 3, 8, 9, 10, 11], [4, 5, 6, 12, 13, 14]]
    assert found[1] == [7, 15]


def test_binding_depends_on_the_own_accelerators_only(node_of_8: Topology) -> None:
    """A node of a cluster does not know the replicas of others."""
    together = bindings(node_of_8, range(16), [[5], [6]])[0]
    alone = [bindings(node_of_8, range(16), [[device]])[0][0] for device in (5, 6)]
    assert together == alone


def test_loadgen_gets_complete_cores(node_of_8: Topology) -> None:
    found, kept = bindings(node_of_8, range(16), [[0, 1, 2, 3]], loadgen=2)
    assert kept == [6, 7, 14, 15]
    assert found[0].cpus == (0, 1, 2, 3, 8, 9, 10, 11)


def test_replica_over_both_sockets_has_no_memory_binding(node_of_8: Topology) -> None:
    (binding,), _ = bindings(node_of_8, range(16), [list(range(8))])
    assert binding == Binding(tuple(range(16)), ())


def test_without_accelerators_the_cores_are_split_socket_by_socket(tmp_path: Path) -> None:
    topology = machine(tmp_path, ["0-3,8-11", "4-7,12-15"], [], cores=4)
    found = bindings(topology, range(16), [[], []])
    assert cpus_of(found) == [[0, 1, 2, 3, 8, 9, 10, 11], [4, 5, 6, 7, 12, 13, 14, 15]]
    assert [binding.memory for binding in found[0]] == [(0,), (1,)]


@pytest.mark.parametrize("homes", [["-1", "-1"], ["0", "-1"]])
def test_unknown_numa_nodes_split_the_cores(tmp_path: Path, homes: list[str]) -> None:
    topology = machine(tmp_path, ["0-3"], homes, cores=4)
    found = bindings(topology, range(4), [[0], [1]])
    assert cpus_of(found) == [[0, 1], [2, 3]]
    assert [binding.memory for binding in found[0]] == [(), ()]


def test_numa_node_without_cores_is_ignored(tmp_path: Path) -> None:
    """As where accelerators show their own memory as a NUMA node."""
    topology = machine(tmp_path, ["0-3", ""], ["1", "0"], cores=4)
    found = bindings(topology, range(4), [[0], [1]])
    assert cpus_of(found) == [[0, 1], [2, 3]]
    assert [binding.memory for binding in found[0]] == [(1,), (0,)]


@pytest.mark.parametrize("replicas", [[[8], [9]], [[-1], [-1]], [[0], [8]]])
def test_replicas_with_unknown_accelerators_are_not_bound(node_of_8: Topology, replicas: list[list[int]]) -> None:
    found = bindings(node_of_8, range(16), replicas, loadgen=1)
    assert found == ([Binding((*range(7), *range(8, 15)), ())] * 2, [7, 15])


@pytest.fixture
def nvidia_node(tmp_path: Path) -> Path:
    """Two sockets with four NVIDIA GPUs each, at the addresses of `nvidia_gpu`."""
    machine(tmp_path, ["0-3,8-11", "4-7,12-15"], [], cores=4)
    for number in range(8):
        files = {"class": "0x030200", "vendor": "0x10de", "numa_node": str(number // 4)}
        write_root(tmp_path / PCI / f"0000:{0x18 + number:02x}:00.0", files)
    return tmp_path


def test_gpus_of_a_container_are_those_of_nvidia_smi(nvidia_node: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The bus has eight, NVIDIA_VISIBLE_DEVICES=3,4,5,6 gives the container four of them as 0 to 3."""
    use_path(monkeypatch, nvidia_node / "bin")
    nvidia_smi(nvidia_node / "bin", [nvidia_gpu(number, index=place) for place, number in enumerate((3, 4, 5, 6))])
    topology = read_topology(nvidia_node)
    assert topology.devices == (0, 1, 1, 1)
    found, _ = bindings(topology, range(16), [[number] for number in range(4)])
    assert [binding.memory for binding in found] == [(0,), (1,), (1,), (1,)]


def test_gpus_without_nvidia_smi_are_not_bound(nvidia_node: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hide_tools(monkeypatch)
    found, _ = bindings(read_topology(nvidia_node), range(16), [[0], [1]])
    assert found == [Binding(tuple(range(16)), ())] * 2


def test_only_allowed_cpus_are_used(node_of_8: Topology) -> None:
    """Two cores for four accelerators are shared."""
    found = bindings(node_of_8, [1, 2, 9, 10], [[0], [1]])
    assert cpus_of(found) == [[1, 2, 9, 10], [1, 2, 9, 10]]


@pytest.mark.parametrize(
    ("cpus", "replicas", "own", "loadgen"),
    [
        (2, 1, [[0]], [1]),
        (2, 2, [[0], [1]], [0, 1]),
        (5, 2, [[0, 1], [2, 3]], [4]),
        (4, 8, [[0, 1, 2, 3]] * 8, [0, 1, 2, 3]),
        (1, 1, [[0]], [0]),
    ],
)
def test_replicas_have_disjoint_cores(
    tmp_path: Path, cpus: int, replicas: int, own: list[list[int]], loadgen: list[int]
) -> None:
    topology = machine(tmp_path, [f"0-{cpus - 1}"], [], cores=cpus)
    found = bindings(topology, range(cpus), [[]] * replicas, loadgen=1)
    assert (cpus_of(found), found[1]) == (own, loadgen)


def test_hip_device_numbers_follow_kfd(tmp_path: Path) -> None:
    kfd = "sys/class/kfd/kfd/topology/nodes"
    write_root(
        tmp_path,
        {
            f"{kfd}/0/properties": "cpu_cores_count 64\nsimd_count 0\nlocation_id 0\ndomain 0",
            f"{kfd}/2/properties": f"simd_count 1216\nlocation_id {0x10 << 8}\ndomain 0",
            f"{kfd}/10/properties": f"simd_count 1216\nlocation_id {0x11 << 8}\ndomain 0",
            f"{kfd}/1/properties": f"simd_count 1216\nlocation_id {0x12 << 8 | 1 << 3}\ndomain 1",
            f"{PCI}/0001:12:01.0/numa_node": "1",
        },
    )
    topology = machine(tmp_path, ["0-1", "2-3"], ["0", "1"], cores=2)
    assert topology.devices == (1, 0, 1)


# This machine

BOUND = """
import json, os, sys
from harness_llm.hardware.numa import Binding, bind
said = bind(Binding(tuple(json.loads(sys.argv[1])), tuple(json.loads(sys.argv[2]))))
policies = {line.split()[1] for line in open("/proc/self/numa_maps")}
print(json.dumps([said, sorted(os.sched_getaffinity(0)), sorted(policies)]))
"""


def bound(cpus: list[int], memory: list[int]) -> tuple[str, list[int], list[str]]:
    words = [sys.executable, "-c", BOUND, json.dumps(cpus), json.dumps(memory)]
    said, affinity, policies = json.loads(subprocess.check_output(words))
    return said, affinity, policies


def test_binding_works_on_this_machine() -> None:
    cpu, topology = min(os.sched_getaffinity(0)), read_topology()
    assert set(topology.nodes) >= os.sched_getaffinity(0)
    node = min(topology.memory)
    said, affinity, policies = bound([cpu], [node])
    assert affinity == [cpu]
    if "could not be bound" in said:
        pytest.skip(said)
    assert said == f"1 CPUs, memory of NUMA node {node}"
    assert f"bind:{node}" in policies


def test_process_without_memory_binding_reports_it() -> None:
    cpu = min(os.sched_getaffinity(0))
    said, affinity, _ = bound([cpu], [])
    assert (said, affinity) == ("1 CPUs, memory of all NUMA nodes", [cpu])


def test_missing_memory_node_is_no_error() -> None:
    cpu = min(os.sched_getaffinity(0))
    said, affinity, _ = bound([cpu], [63])
    assert affinity == [cpu]
    assert said.startswith("1 CPUs; memory of NUMA node 63 could not be bound: ")
