"""CPU and memory binding of replicas: the cores and NUMA nodes near a replica's accelerators, disjoint by replica.

`read_topology` reads a sysfs tree and nvidia-smi, `bind` binds this process, all others compute.
"""

import ctypes
import itertools
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness_llm.hardware.accelerators import ask_nvidia, kernel_address
from harness_llm.hardware.pci import NVIDIA, functions_on_bus
from harness_llm.hardware.sysfs import read

_CPUS = "sys/devices/system/cpu"
_NODES = "sys/devices/system/node"
_PCI = "sys/bus/pci/devices"
_KFD = "sys/class/kfd/kfd/topology/nodes"
_MPOL_BIND = 2  # linux/mempolicy.h
_SET_MEMPOLICY = {"x86_64": 238, "aarch64": 237}  # system call numbers; glibc has no wrapper


@dataclass(frozen=True)
class Topology:
    """Topology of a machine from its kernel.

    Attributes:
        nodes: NUMA node by CPU.
        cores: physical core by CPU; equal for hyperthreads of one core.
        memory: NUMA nodes with memory.
        devices: NUMA node of each accelerator, in the engines' numbering; None: unknown. Empty for unknown numbering.
    """

    nodes: Mapping[int, int]
    cores: Mapping[int, tuple[int, int]]
    memory: frozenset[int]
    devices: tuple[int | None, ...]


@dataclass(frozen=True)
class Binding:
    """CPUs and NUMA nodes of a process; `memory` is empty for no memory binding."""

    cpus: tuple[int, ...]
    memory: tuple[int, ...]


def read_topology(root: Path = Path("/")) -> Topology:
    """Read the topology of a machine from sys/ below `root`."""
    folders = sorted((root / _NODES).glob("node[0-9]*"))
    members = {_number(folder): cpu_list(read(folder / "cpulist")) for folder in folders}
    return Topology(
        nodes={cpu: node for node, cpus in members.items() for cpu in cpus},
        cores={_number(folder.parent): _core(folder) for folder in (root / _CPUS).glob("cpu[0-9]*/topology")},
        memory=frozenset(cpu_list(read(root / _NODES / "has_memory"))),
        devices=tuple(_numa_node(root, address) for address in _accelerators(root)),
    )


def cpu_list(text: str) -> list[int]:
    """Parse a CPU list: `0-3,8` is 0, 1, 2, 3 and 8."""
    ends = (part.partition("-") for part in text.split(",") if part)
    return [number for first, _, last in ends for number in range(int(first), int(last or first) + 1)]


def _number(folder: Path) -> int:
    return int(re.sub(r"\D", "", folder.name))


def _core(topology: Path) -> tuple[int, int]:
    package, core = (read(topology / name) for name in ("physical_package_id", "core_id"))
    return int(package or 0), int(core or _number(topology.parent))


def _accelerators(root: Path) -> list[str]:
    """Return PCI addresses in the engines' numbering: HIP's is KFD's; CUDA's is nvidia-smi's (PCI_BUS_ID).

    The bus has all GPUs of the machine; nvidia-smi and CUDA have those of the container.
    """
    functions = functions_on_bus(root)
    if NVIDIA in {read(function / "vendor") for function in functions}:
        return [kernel_address(bus_id) for (bus_id,) in ask_nvidia(["pci.bus_id"])]
    return list(_on_kfd(root)) or [function.name for function in functions]


def _on_kfd(root: Path) -> Iterator[str]:
    """Yield the PCI addresses of KFD's nodes with SIMD units (others are CPUs); location_id: bus, device, function."""
    for node in sorted((root / _KFD).glob("*"), key=_number):
        facts = dict(line.split() for line in read(node / "properties").splitlines())
        if int(facts.get("simd_count", 0)):
            domain, place = int(facts["domain"]), int(facts["location_id"])
            yield f"{domain:04x}:{place >> 8:02x}:{place >> 3 & 31:02x}.{place & 7}"


def _numa_node(root: Path, address: str) -> int | None:
    """Return the NUMA node; the kernel reports -1 if it is unknown."""
    node = read(root / _PCI / address / "numa_node")
    return int(node) if node.isdigit() else None


def bindings(
    topology: Topology, cpus: Sequence[int], replicas: Sequence[Sequence[int]], *, loadgen: int = 0
) -> tuple[list[Binding], list[int]]:
    """Return the binding of each replica, and the CPUs of LoadGen's process.

    The cores of a NUMA node are divided among all its accelerators, used or not, so a replica's share depends only on
    its own accelerators. With too few cores, LoadGen's process shares the replicas' cores; with fewer cores than
    replicas, all share all cores. Replicas with an accelerator outside the topology share all cores, without memory
    binding.

    Args:
        cpus: allowed CPUs.
        replicas: accelerator numbers of each replica; empty for CPU engines.
        loadgen: number of cores reserved for LoadGen's process.
    """
    cores = _by_core(topology, cpus)
    if len(cores) < len(replicas):
        return [_binding(topology, cpus, ()) for _ in replicas], sorted(cpus)
    end = len(cores) - loadgen if len(cores) - loadgen >= len(replicas) else len(cores)
    own, reserved = cores[:end], cores[end:]
    known = range(len(topology.devices))
    rest = sorted(itertools.chain(*reserved)) or sorted(cpus)
    if any(set(devices) - set(known) for devices in replicas):
        return [Binding(tuple(sorted(itertools.chain(*own))), ()) for _ in replicas], rest
    shares: list[tuple[list[list[int]], Sequence[int]]]
    if not all(replicas):
        shares = [(share, []) for share in _split(own, len(replicas))]
    else:
        near = _shares(topology, own)
        shares = [([core for device in devices for core in near[device]], devices) for devices in replicas]
    found = [_binding(topology, [*itertools.chain(*share)], devices) for share, devices in shares]
    return found, rest


def _by_core(topology: Topology, cpus: Sequence[int]) -> list[list[int]]:
    """Return CPUs grouped by core, sorted by NUMA node."""

    def core(cpu: int) -> tuple[int, tuple[int, int]]:
        return topology.nodes.get(cpu, 0), topology.cores.get(cpu, (0, cpu))

    return [list(threads) for _, threads in itertools.groupby(sorted(cpus, key=lambda c: (core(c), c)), key=core)]


def _split(cores: list[list[int]], parts: int) -> list[list[list[int]]]:
    if len(cores) < parts:
        return [cores for _ in range(parts)]
    bounds = [len(cores) * part // parts for part in range(parts + 1)]
    return [cores[a:b] for a, b in itertools.pairwise(bounds)]


def _shares(topology: Topology, cores: list[list[int]]) -> list[list[list[int]]]:
    """Return each accelerator's share of the cores of its NUMA node; of all cores if a node is unknown or empty."""
    nodes = list(topology.devices)
    by_node = {node: [core for core in cores if topology.nodes.get(core[0]) == node] for node in nodes}
    if None in nodes or not all(by_node.values()):
        return _split(cores, len(nodes))
    shares = {node: iter(_split(by_node[node], nodes.count(node))) for node in set(nodes)}
    return [next(shares[node]) for node in nodes]


def _binding(topology: Topology, cpus: Sequence[int], devices: Sequence[int]) -> Binding:
    """Bind memory to the NUMA nodes of the accelerators (weights are copied through it), else of the cores."""
    nodes = {topology.devices[device] for device in devices}
    used = nodes if nodes and None not in nodes else {topology.nodes.get(cpu, 0) for cpu in cpus}
    memory = topology.memory & used
    return Binding(tuple(sorted(set(cpus))), () if memory == topology.memory else tuple(sorted(memory)))


def bind(binding: Binding) -> str:
    """Bind this process and its future threads and children; return a description of the binding.

    MPOL_BIND, not MPOL_PREFERRED: with a preference, the kernel uses remote memory as soon as the page cache of the
    checkpoint fills the local node.
    """
    os.sched_setaffinity(0, binding.cpus)
    cores = f"{len(binding.cpus)} CPUs"
    if not binding.memory:
        return f"{cores}, memory of all NUMA nodes"
    where = f"memory of NUMA node {', '.join(map(str, binding.memory))}"
    error = _bind_memory(binding.memory)
    return f"{cores}, {where}" if not error else f"{cores}; {where} could not be bound: {error}"


def _bind_memory(nodes: Sequence[int]) -> str:
    """Return the error, or an empty string; containers without CAP_SYS_NICE refuse the call."""
    number = _SET_MEMPOLICY.get(os.uname().machine)
    if number is None:
        return f"unknown system call on {os.uname().machine}"
    mask = ctypes.c_ulong(sum(1 << node for node in nodes))
    libc = ctypes.CDLL(None, use_errno=True)
    bits = 8 * ctypes.sizeof(mask) + 1  # the kernel reads one bit less
    refused = libc.syscall(number, _MPOL_BIND, ctypes.byref(mask), ctypes.c_ulong(bits))
    return os.strerror(ctypes.get_errno()) if refused else ""
