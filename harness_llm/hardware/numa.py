"""Which cores and which memory of a machine a replica uses: those near its accelerators, and nobody else's.

Pure over what a sysfs tree says, but for `bind`, which acts on this process.
"""

import ctypes
import itertools
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness_llm.hardware.pci import functions_on_bus
from harness_llm.hardware.sysfs import read

_CPUS = "sys/devices/system/cpu"
_NODES = "sys/devices/system/node"
_PCI = "sys/bus/pci/devices"
_KFD = "sys/class/kfd/kfd/topology/nodes"
_MPOL_BIND = 2  # linux/mempolicy.h
_SET_MEMPOLICY = {"x86_64": 238, "aarch64": 237}  # system calls: no library that every machine has wraps this one


@dataclass(frozen=True)
class Topology:
    """A machine as its kernel describes it.

    Attributes:
        nodes: NUMA node by CPU.
        cores: physical core by CPU; hyperthreads of one core share it.
        memory: the NUMA nodes that have memory.
        devices: NUMA node of each accelerator, in the order in which engines number them; None is not known.
    """

    nodes: Mapping[int, int]
    cores: Mapping[int, tuple[int, int]]
    memory: frozenset[int]
    devices: tuple[int | None, ...]


@dataclass(frozen=True)
class Binding:
    """What a process may use; `memory` holds NUMA nodes, none where there is no choice."""

    cpus: tuple[int, ...]
    memory: tuple[int, ...]


def read_topology(root: Path = Path("/")) -> Topology:
    """The topology of the machine whose /sys lies below `root`."""
    folders = sorted((root / _NODES).glob("node[0-9]*"))
    members = {_number(folder): cpu_list(read(folder / "cpulist")) for folder in folders}
    return Topology(
        nodes={cpu: node for node, cpus in members.items() for cpu in cpus},
        cores={_number(folder.parent): _core(folder) for folder in (root / _CPUS).glob("cpu[0-9]*/topology")},
        memory=frozenset(cpu_list(read(root / _NODES / "has_memory"))),
        devices=tuple(_home(root, address) for address in _accelerators(root)),
    )


def cpu_list(text: str) -> list[int]:
    """`0-3,8` is 0, 1, 2, 3 and 8."""
    ends = (part.partition("-") for part in text.split(",") if part)
    return [number for first, _, last in ends for number in range(int(first), int(last or first) + 1)]


def _number(folder: Path) -> int:
    return int(re.sub(r"\D", "", folder.name))


def _core(topology: Path) -> tuple[int, int]:
    package, core = (read(topology / name) for name in ("physical_package_id", "core_id"))
    return int(package or 0), int(core or _number(topology.parent))


def _accelerators(root: Path) -> list[str]:
    """PCI addresses: HIP numbers as the KFD driver does, CUDA by address with CUDA_DEVICE_ORDER=PCI_BUS_ID."""
    return list(_on_kfd(root)) or [function.name for function in functions_on_bus(root)]


def _on_kfd(root: Path) -> Iterator[str]:
    """Nodes without SIMD units are CPUs; a location is a bus, a device and a function."""
    for node in sorted((root / _KFD).glob("*"), key=_number):
        facts = dict(line.split() for line in read(node / "properties").splitlines())
        if int(facts.get("simd_count", 0)):
            domain, place = int(facts["domain"]), int(facts["location_id"])
            yield f"{domain:04x}:{place >> 8:02x}:{place >> 3 & 31:02x}.{place & 7}"


def _home(root: Path, address: str) -> int | None:
    """The kernel says -1 where it does not know."""
    node = read(root / _PCI / address / "numa_node")
    return int(node) if node.isdigit() else None


def bindings(
    topology: Topology, cpus: Sequence[int], replicas: Sequence[Sequence[int]], *, loadgen: int = 0
) -> tuple[list[Binding], list[int]]:
    """What each of the replicas of a machine uses, and the CPUs left to LoadGen's process.

    The cores of a NUMA node are shared out among all accelerators at it, used or not, so that a replica's share
    depends on nothing but its own accelerators. Where there are too few cores, LoadGen's process shares those of the
    replicas; fewer cores than replicas are shared by all.

    Args:
        cpus: those that may be used.
        replicas: the accelerators of each, by number; none where engines compute on CPUs.
        loadgen: cores kept for LoadGen's process.
    """
    cores = _by_core(topology, cpus)
    if len(cores) < len(replicas):
        return [_binding(topology, cpus, ()) for _ in replicas], sorted(cpus)
    end = len(cores) - loadgen if len(cores) - loadgen >= len(replicas) else len(cores)
    own, kept = cores[:end], cores[end:]
    known = range(len(topology.devices))
    shares: list[tuple[list[list[int]], Sequence[int]]]
    if not all(devices and set(devices) <= set(known) for devices in replicas):
        shares = [(share, []) for share in _split(own, len(replicas))]
    else:
        near = _shares(topology, own)
        shares = [([core for device in devices for core in near[device]], devices) for devices in replicas]
    found = [_binding(topology, [*itertools.chain(*share)], devices) for share, devices in shares]
    return found, sorted(itertools.chain(*kept)) or sorted(cpus)


def _by_core(topology: Topology, cpus: Sequence[int]) -> list[list[int]]:
    """CPUs core by core, NUMA node by NUMA node, so that neighbours in this list are near each other."""

    def core(cpu: int) -> tuple[int, tuple[int, int]]:
        return topology.nodes.get(cpu, 0), topology.cores.get(cpu, (0, cpu))

    return [list(threads) for _, threads in itertools.groupby(sorted(cpus, key=lambda c: (core(c), c)), key=core)]


def _split(cores: list[list[int]], parts: int) -> list[list[list[int]]]:
    if len(cores) < parts:
        return [cores for _ in range(parts)]
    bounds = [len(cores) * part // parts for part in range(parts + 1)]
    return [cores[a:b] for a, b in itertools.pairwise(bounds)]


def _shares(topology: Topology, cores: list[list[int]]) -> list[list[list[int]]]:
    """The cores of each accelerator: a share of those at its NUMA node, of all where that is not known or has none."""
    homes = list(topology.devices)
    at_home = {home: [core for core in cores if topology.nodes.get(core[0]) == home] for home in homes}
    if None in homes or not all(at_home.values()):
        return _split(cores, len(homes))
    queues = {home: iter(_split(at_home[home], homes.count(home))) for home in set(homes)}
    return [next(queues[home]) for home in homes]


def _binding(topology: Topology, cpus: Sequence[int], devices: Sequence[int]) -> Binding:
    """Memory at the accelerators, through which weights pass, else at the cores."""
    homes = {topology.devices[device] for device in devices}
    used = homes if homes and None not in homes else {topology.nodes.get(cpu, 0) for cpu in cpus}
    memory = topology.memory & used
    return Binding(tuple(sorted(set(cpus))), () if memory == topology.memory else tuple(sorted(memory)))


def bind(binding: Binding) -> str:
    """Keep this process to `binding`, threads and processes to come included; says what is in force.

    Memory is bound, not preferred: with a preference the kernel takes memory from afar as soon as the page cache, which
    holds the checkpoint, fills what is near.
    """
    os.sched_setaffinity(0, binding.cpus)
    cores = f"{len(binding.cpus)} CPUs"
    if not binding.memory:
        return cores
    where = f"memory of NUMA node {', '.join(map(str, binding.memory))}"
    refusal = _bind_memory(binding.memory)
    return f"{cores}, {where}" if not refusal else f"{cores}; {where} could not be bound: {refusal}"


def _bind_memory(nodes: Sequence[int]) -> str:
    """Why it was refused, or nothing; containers without CAP_SYS_NICE refuse it."""
    number = _SET_MEMPOLICY.get(os.uname().machine)
    if number is None:
        return f"unknown system call on {os.uname().machine}"
    mask = ctypes.c_ulong(sum(1 << node for node in nodes))
    libc = ctypes.CDLL(None, use_errno=True)
    bits = 8 * ctypes.sizeof(mask) + 1  # the kernel takes one bit less than it is told
    refused = libc.syscall(number, _MPOL_BIND, ctypes.byref(mask), ctypes.c_ulong(bits))
    return os.strerror(ctypes.get_errno()) if refused else ""
