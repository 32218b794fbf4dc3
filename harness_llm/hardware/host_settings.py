"""Host settings that affect measurements: read them for run.json, and advise changes."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from harness_llm.hardware.accelerators import ask_nvidia
from harness_llm.hardware.ecc import State, read_ecc
from harness_llm.hardware.pci import functions_on_bus
from harness_llm.hardware.sysfs import read

Host = Mapping[str, str]
"""Settings by name, from `read_host`."""

_CPU = "sys/devices/system/cpu"
_NVIDIA_FIELDS = {
    "accelerator_clock_mhz": "clocks.sm",
    "accelerator_clock_max_mhz": "clocks.max.sm",
    "accelerator_power_cap_w": "power.limit",
    "accelerator_power_cap_default_w": "power.default_limit",
    "accelerator_persistence": "persistence_mode",
}
_LATENCY_US = 10  # a longer exit latency of an idle state delays tokens of a few milliseconds


def read_host(root: Path = Path("/")) -> dict[str, str]:
    """Return the readable settings by name; names include units.

    If CPUs or accelerators differ, a value lists each distinct value once. Clocks of accelerators are current values.

    Args:
        root: folder that contains proc/ and sys/.
    """
    facts = {
        "kernel": read(root / "proc/sys/kernel/osrelease"),
        **_cpus(root),
        **_kernel(root),
        **_accelerators(root),
        **{f"{name}_ecc": fact.state for name, fact in read_ecc(root).facts.items() if fact.state is not State.ABSENT},
    }
    return {name: str(value) for name, value in facts.items() if value}


def _cpus(root: Path) -> dict[str, str]:
    policies = sorted((root / _CPU / "cpufreq").glob("policy*"))

    def of_all(name: str) -> str:
        return _distinct(read(policy / name) for policy in policies)

    return {
        "cpu_governor": of_all("scaling_governor"),
        "cpu_frequency_driver": of_all("scaling_driver"),
        "cpu_energy_preference": of_all("energy_performance_preference"),
        "cpu_min_khz": of_all("scaling_min_freq"),
        "cpu_max_khz": of_all("scaling_max_freq"),
        "cpu_hardware_max_khz": of_all("cpuinfo_max_freq"),
        "cpu_turbo": _turbo(root),
        "cpu_idle_states": _idle_states(root),
        "smt": read(root / _CPU / "smt/control"),
    }


def _turbo(root: Path) -> str:
    """Return `on` or `off`; intel_pstate's file is inverted."""
    boost, off = read(root / _CPU / "cpufreq/boost"), read(root / _CPU / "intel_pstate/no_turbo")
    return {"1": "on", "0": "off"}.get(boost) or {"0": "on", "1": "off"}.get(off, "")


def _idle_states(root: Path) -> str:
    """Return the enabled idle states of the first CPU with their exit latency: `C1 1 us, C2 100 us`."""
    states = sorted((root / _CPU / "cpu0/cpuidle").glob("state*"))
    return ", ".join(f"{read(s / 'name')} {read(s / 'latency')} us" for s in states if read(s / "disable") == "0")


def _kernel(root: Path) -> dict[str, str]:
    huge_pages = re.search(r"\[(\w+)\]", read(root / "sys/kernel/mm/transparent_hugepage/enabled"))
    names = {"numa_balancing": "numa_balancing", "nmi_watchdog": "nmi_watchdog", "aslr": "randomize_va_space"}
    settings = {name: read(root / "proc/sys/kernel" / file) for name, file in names.items()}
    return settings | {"transparent_huge_pages": huge_pages[1] if huge_pages else ""}


def _accelerators(root: Path) -> dict[str, str]:
    rows = ask_nvidia(list(_NVIDIA_FIELDS.values()))
    return parse_nvidia(rows) if rows else _amd(functions_on_bus(root))


def parse_nvidia(rows: Sequence[Sequence[str]]) -> dict[str, str]:
    """Parse nvidia-smi's rows for _NVIDIA_FIELDS; unknown values are [N/A]."""
    columns = zip(*rows, strict=True)
    return {name: _distinct(_number(v) for v in column) for name, column in zip(_NVIDIA_FIELDS, columns, strict=True)}


def _amd(functions: Iterable[Path]) -> dict[str, str]:
    """Read the amdgpu driver's files, as amd-smi does."""
    functions = list(functions)
    clocks = [_amd_clocks(read(function / "pp_dpm_sclk")) for function in functions]
    monitors = [monitor for function in functions for monitor in function.glob("hwmon/hwmon*")]
    return {
        "accelerator_clock_mhz": _distinct(now for now, _ in clocks),
        "accelerator_clock_max_mhz": _distinct(most for _, most in clocks),
        "accelerator_power_cap_w": _distinct(_watts(read(m / "power1_cap")) for m in monitors),
        "accelerator_power_cap_default_w": _distinct(_watts(read(m / "power1_cap_default")) for m in monitors),
    }


def _amd_clocks(levels: str) -> tuple[str, str]:
    """Return current and maximum MHz; a star marks the current level: `0: 132Mhz *`, `1: 2100Mhz`."""
    found = re.findall(r"^\w+: (\d+)Mhz( \*)?", levels, re.MULTILINE)
    now = next((mhz for mhz, star in found if star), "")
    return now, max((mhz for mhz, _ in found), key=int, default="")


def _watts(microwatts: str) -> str:
    return f"{int(microwatts) / 1e6:g}" if microwatts.isdigit() else ""


def _number(text: str) -> str:
    """Return `700.00` as `700`, words unchanged, and `[N/A]` as an empty string."""
    if text.startswith("["):
        return ""
    return f"{float(text):g}" if re.fullmatch(r"[\d.]+", text) else text


def _distinct(values: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(value for value in values if value))


class Advice(NamedTuple):
    """A setting that costs time or causes variance, and root's command to change it."""

    name: str
    why: str
    command: str


def advice(host: Host) -> list[Advice]:
    """Return the settings of `host`, from `read_host`, to change before a measurement."""
    return [Advice(tip.name, tip.why.format(**host), tip.command.format(**host)) for tip in _TIPS if tip.applies(host)]


def unread(host: Host) -> list[str]:
    """Return the settings that `advice` checks and that could not be read."""
    return [name for name, key in _JUDGED.items() if key not in host]


class _Tip(NamedTuple):
    """Template of an `Advice`, with settings in braces."""

    name: str
    applies: Callable[[Host], bool]
    why: str
    command: str


def _is_not(name: str, wanted: str) -> Callable[[Host], bool]:
    """Return a condition that ignores unreadable settings."""
    return lambda host: host.get(name, wanted) != wanted


def _below(host: Host, name: str, reference: str) -> bool:
    """Compare the lowest value of `name` with the highest of `reference`."""
    values, references = ([float(v) for v in host.get(key, "").split(", ") if v] for key in (name, reference))
    return bool(values and references) and min(values) < max(references)


def _capped(host: Host) -> bool:
    return _below(host, "accelerator_power_cap_w", "accelerator_power_cap_default_w")


def _sleeps_deep(host: Host) -> bool:
    return any(int(us) >= _LATENCY_US for us in re.findall(r"(\d+) us", host.get("cpu_idle_states", "")))


def _is_nvidia(host: Host) -> bool:
    return "accelerator_persistence" in host


def _is_intel(host: Host) -> bool:
    return host.get("cpu_frequency_driver", "").startswith("intel_pstate")


def _no_turbo(host: Host) -> bool:
    return host.get("cpu_turbo") == "off"


_CAP = "power of accelerators is capped at {accelerator_power_cap_w} W of {accelerator_power_cap_default_w}"

# Settings that MLPerf submitters document.
_TIPS = (
    _Tip(
        "CPU governor",
        _is_not("cpu_governor", "performance"),
        "the CPU governor is {cpu_governor}, which lowers clocks between bursts",
        "cpupower frequency-set --governor performance",
    ),
    _Tip(
        "CPU frequency",
        lambda host: _below(host, "cpu_max_khz", "cpu_hardware_max_khz"),
        "CPU clocks are limited to {cpu_max_khz} kHz of {cpu_hardware_max_khz}",
        "cpupower frequency-set --max {cpu_hardware_max_khz}",
    ),
    _Tip(
        "CPU boost",
        lambda host: _no_turbo(host) and _is_intel(host),
        "CPU boost is off",
        "echo 0 > /sys/devices/system/cpu/intel_pstate/no_turbo",
    ),
    _Tip(
        "CPU boost",
        lambda host: _no_turbo(host) and not _is_intel(host),
        "CPU boost is off",
        "echo 1 > /sys/devices/system/cpu/cpufreq/boost",
    ),
    _Tip(
        "CPU idle states",
        _sleeps_deep,
        "idle CPUs wake slowly ({cpu_idle_states})",
        f"cpupower idle-set --disable-by-latency {_LATENCY_US}",
    ),
    _Tip(
        "NUMA balancing",
        _is_not("numa_balancing", "0"),
        "the kernel moves memory between NUMA nodes during runs",
        "sysctl kernel.numa_balancing=0",
    ),
    _Tip(
        "Huge pages",
        _is_not("transparent_huge_pages", "always"),
        "transparent huge pages are set to {transparent_huge_pages}; most memory has small pages",
        "echo always > /sys/kernel/mm/transparent_hugepage/enabled",
    ),
    _Tip(
        "NMI watchdog",
        _is_not("nmi_watchdog", "0"),
        "the NMI watchdog interrupts every CPU",
        "sysctl kernel.nmi_watchdog=0",
    ),
    _Tip(
        "Address layouts",
        _is_not("aslr", "0"),
        "random address layouts cause variance between runs (they protect the machine: restore them afterwards)",
        "sysctl kernel.randomize_va_space=0",
    ),
    _Tip(
        "GPU power cap",
        lambda host: _capped(host) and _is_nvidia(host),
        _CAP,
        "nvidia-smi --power-limit={accelerator_power_cap_default_w}",
    ),
    _Tip(
        "GPU power cap",
        lambda host: _capped(host) and not _is_nvidia(host),
        _CAP,
        "amd-smi set --power-cap {accelerator_power_cap_default_w}",
    ),
    _Tip(
        "GPU persistence",
        _is_not("accelerator_persistence", "Enabled"),
        "the NVIDIA driver may unload between runs and lose its settings",
        "nvidia-smi --persistence-mode=1",
    ),
)
_JUDGED = {
    "CPU governor": "cpu_governor",
    "CPU frequency": "cpu_hardware_max_khz",
    "CPU boost": "cpu_turbo",
    "CPU idle states": "cpu_idle_states",
    "NUMA balancing": "numa_balancing",
    "Huge pages": "transparent_huge_pages",
    "NMI watchdog": "nmi_watchdog",
    "Address layouts": "aslr",
    "GPU power cap": "accelerator_power_cap_default_w",
}
