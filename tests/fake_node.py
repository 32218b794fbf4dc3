"""Nodes with GPUs, made of a sysfs tree and a program called nvidia-smi.

Values are those of real nodes as far as documents show them: NVIDIA's, `nvidia-smi --help-query-gpu` and
`--help-query-compute-apps`; AMD's, Documentation/gpu/amdgpu of the kernel.
"""

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from machines import PCI, write_root

MIB = 2**20
H200, MI300X = "10de:2335", "1002:74a1"
_PROGRAM = '''#!/bin/sh
# Fields that a driver does not have are an error of the whole query.
exec "{python}" -IS - "$@" <<'END'
import json, sys
tables = json.loads("""{tables}""")
if sys.argv[1:] == ["-L"]:
    for row in tables["gpu"]:
        print(f"GPU {{row['index']}}: {{row['name']}} (UUID: {{row['uuid']}})")
    sys.exit()
query = next(word for word in sys.argv[1:] if word.startswith("--query-"))
table, _, fields = query.removeprefix("--query-").partition("=")
for row in tables[table]:
    for field in fields.split(","):
        if field not in row:
            print(f'Field "{{field}}" is not a valid field to query.')
            sys.exit(2)
    print(", ".join(str(row[field]) for field in fields.split(",")))
END
'''


def nvidia_gpu(number: int, **changes: object) -> dict[str, object]:
    """What nvidia-smi reports of an idle H200 of an HGX node."""
    usual = {
        "index": number,
        "uuid": f"GPU-{number:08d}-5a4b-4c3d-9e8f-001122334455",
        "pci.bus_id": f"00000000:{0x18 + number:02X}:00.0",
        "pci.device_id": "0x233510DE",
        "name": "NVIDIA H200",
        "driver_version": "580.95.05",
        "memory.total": 143771,
        "memory.free": 143156,
        "ecc.mode.current": "Enabled",
        "mig.mode.current": "Disabled",
        "clocks.sm": 345,
        "clocks.max.sm": 1980,
        "power.limit": "700.00",
        "power.default_limit": "700.00",
        "persistence_mode": "Enabled",
        "fabric.state": "Completed",
        "fabric.status": "Success",
    }
    return usual | {name.replace("__", "."): value for name, value in changes.items()}


def nvidia_smi(
    folder: Path,
    gpus: Sequence[Mapping[str, object]],
    processes: Sequence[Mapping[str, object]] = (),
    *,
    python: str = sys.executable,
) -> None:
    """Write a program that answers as nvidia-smi does of these GPUs and compute processes; `python` runs it."""
    folder.mkdir(parents=True, exist_ok=True)
    tables = json.dumps({"gpu": list(gpus), "compute-apps": list(processes)})
    program = folder / "nvidia-smi"
    program.write_text(_PROGRAM.format(python=python, tables=tables))
    program.chmod(0o755)


def write_node(root: Path, pci: str = H200, count: int = 8, *, nvswitches: int = 0) -> Path:
    """/proc and /sys of a node with GPUs whose driver is loaded, and settings as before a measurement."""
    vendor, device = pci.split(":")
    for number in range(count):
        files = {"class": "0x030200" if vendor == "10de" else "0x120000", "vendor": f"0x{vendor}"}
        write_root(root / PCI / f"0000:{0x18 + number:02x}:00.0", files | {"device": f"0x{device}"})
        if vendor == "1002":
            write_root(root / PCI / f"0000:{0x18 + number:02x}:00.0", _AMD)
    for number in range(nvswitches):
        files = {"class": "0x068000", "vendor": "0x10de", "device": "0x22a3"}
        write_root(root / PCI / f"0000:{0x80 + number:02x}:00.0", files)
    if vendor == "1002":
        write_root(root, {"sys/module/amdgpu/version": "6.16.6", "dev/kfd": "", "dev/dri/card0": ""})
    else:
        write_root(root, {"sys/module/nvidia/version": "580.95.05"})
    (root / "dev/shm").mkdir(parents=True)
    return write_root(root, _HOST)


def amd_process(root: Path, pid: int, mib: int, name: str = "python3") -> None:
    """A process that the amdgpu driver lists."""
    write_root(root, {f"sys/class/kfd/kfd/proc/{pid}/vram_51545": str(mib * MIB), f"proc/{pid}/comm": name})


def use_path(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """Let programs of `folder` be found first, and no nvidia-smi of this machine."""
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")


_AMD = {
    "mem_info_vram_total": str(196592 * MIB),
    "mem_info_vram_used": str(285 * MIB),
    "current_compute_partition": "SPX",
    "current_memory_partition": "NPS1",
    "product_name": "AMD Instinct MI300X OAM",
    "ras/features": "feature mask: 0x3fff",
    "hwmon/hwmon3/power1_cap": "750000000",
    "hwmon/hwmon3/power1_cap_default": "750000000",
}
# As the kernel prints it (proc_pid_limits of fs/proc/base.c).
_LIMITS = """Limit                     Soft Limit           Hard Limit           Units
Max processes             1029936              1029936              processes
Max open files            1048576              1048576              files
Max locked memory         unlimited            unlimited            bytes"""
_CPU = "sys/devices/system/cpu"
_HOST = {
    "proc/sys/kernel/osrelease": "6.8.0-60-generic",
    "proc/sys/kernel/numa_balancing": "0",
    "proc/sys/kernel/nmi_watchdog": "0",
    "proc/sys/kernel/randomize_va_space": "0",
    "sys/kernel/mm/transparent_hugepage/enabled": "[always] madvise never",
    f"{_CPU}/cpufreq/policy0/scaling_governor": "performance",
    f"{_CPU}/cpufreq/policy0/scaling_driver": "acpi-cpufreq",
    f"{_CPU}/cpufreq/policy0/scaling_max_freq": "3700000",
    f"{_CPU}/cpufreq/policy0/cpuinfo_max_freq": "3700000",
    f"{_CPU}/cpufreq/boost": "1",
    f"{_CPU}/cpu0/cpuidle/state0/name": "POLL",
    f"{_CPU}/cpu0/cpuidle/state0/latency": "0",
    f"{_CPU}/cpu0/cpuidle/state0/disable": "0",
    "sys/devices/system/edac/mc/mc0/dimm0/size": "65536",
    "sys/devices/system/edac/mc/mc0/dimm0/dimm_edac_mode": "SECDED",
    "proc/self/limits": _LIMITS,
}
