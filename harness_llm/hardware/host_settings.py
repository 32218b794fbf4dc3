"""Host settings that affect measurements: read them for run.json, and recommend changes."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from harness_llm.hardware.accelerators import ask_nvidia
from harness_llm.hardware.ecc import State, read_ecc
from harness_llm.hardware.pci import functions_on_bus
from harness_llm.hardware.sysfs import read

HostSettings = Mapping[str, str]
"""Settings by name, from `read_host_settings`."""

_CPU = "sys/devices/system/cpu"
_NVIDIA_FIELDS = {
    "accelerator_clock_mhz": "clocks.sm",
    "accelerator_clock_max_mhz": "clocks.max.sm",
    "accelerator_power_cap_w": "power.limit",
    "accelerator_power_cap_default_w": "power.default_limit",
    "accelerator_persistence": "persistence_mode",
}
# Values of each file; no_turbo is inverted, and is the only file of intel_pstate in active and passive mode.
_BOOST_FILES = {
    "cpufreq/boost": {"on": "1", "off": "0"},
    "intel_pstate/no_turbo": {"on": "0", "off": "1"},
}
# Exit latency of an idle state from which it delays decode steps, which take a few milliseconds.
_SLOW_EXIT_US = 10


def read_host_settings(root: Path = Path("/")) -> dict[str, str]:
    """Return host settings by name, such as `cpu_max_khz`. Unreadable settings are omitted; unknown ECC is `unknown`.

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
        "cpu_limited": _limited(policies),
        **_boost(root),
        "cpu_idle_states": _idle_states(root),
        "smt": read(root / _CPU / "smt/control"),
    }


def _limited(policies: Sequence[Path]) -> str:
    """Return the number of frequency policies below the maximum of their CPUs, as `2 of 64`; empty if none is."""
    limits = [(read(policy / "scaling_max_freq"), read(policy / "cpuinfo_max_freq")) for policy in policies]
    limited = sum(_is_below(*limit) for limit in limits)
    return f"{limited} of {len(policies)}" if limited else ""


def _is_below(limit: str, maximum: str) -> bool:
    return bool(limit and maximum) and float(limit) < float(maximum)


def _boost(root: Path) -> dict[str, str]:
    """Return state and file of the boost setting, which the driver's name does not determine."""
    for file, values in _BOOST_FILES.items():
        if state := {value: name for name, value in values.items()}.get(read(root / _CPU / file)):
            return {"cpu_turbo": state, "cpu_turbo_file": file}
    return {}


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
    values = {name: [_number(v) for v in column] for name, column in zip(_NVIDIA_FIELDS, columns, strict=True)}
    caps = values["accelerator_power_cap_w"], values["accelerator_power_cap_default_w"]
    return {name: _distinct(column) for name, column in values.items()} | {
        "accelerators_capped": _capped(zip(map(str, range(len(rows))), *caps, strict=True))
    }


def _capped(caps: Iterable[tuple[str, str, str]]) -> str:
    """Return the accelerators below their default cap, each with the default: `0 700, 3 700`.

    Args:
        caps: id, cap and default cap of each accelerator.
    """
    return ", ".join(f"{name} {default}" for name, cap, default in caps if _is_below(cap, default))


def _amd(functions: Iterable[Path]) -> dict[str, str]:
    """Read the amdgpu driver's files, as amd-smi does."""
    functions = list(functions)
    clocks = [_amd_clocks(read(function / "pp_dpm_sclk")) for function in functions]
    monitors = [(function.name, monitor) for function in functions for monitor in function.glob("hwmon/hwmon*")]
    caps = [(name, _watts(read(m / "power1_cap")), _watts(read(m / "power1_cap_default"))) for name, m in monitors]
    return {
        "accelerator_clock_mhz": _distinct(current for current, _ in clocks),
        "accelerator_clock_max_mhz": _distinct(maximum for _, maximum in clocks),
        "accelerator_power_cap_w": _distinct(cap for _, cap, _ in caps),
        "accelerator_power_cap_default_w": _distinct(default for _, _, default in caps),
        "accelerators_capped": _capped(caps),
    }


def _amd_clocks(levels: str) -> tuple[str, str]:
    """Return current and maximum MHz; a star marks the current level: `0: 132Mhz *`, `1: 2100Mhz`."""
    found = re.findall(r"^\w+: (\d+)Mhz( \*)?", levels, re.MULTILINE)
    current = next((mhz for mhz, star in found if star), "")
    return current, max((mhz for mhz, _ in found), key=int, default="")


def _watts(microwatts: str) -> str:
    return f"{int(microwatts) / 1e6:g}" if microwatts.isdigit() else ""


def _number(text: str) -> str:
    """Return `700.00` as `700`, words unchanged, and `[N/A]` as an empty string."""
    if text.startswith("["):
        return ""
    return f"{float(text):g}" if re.fullmatch(r"[\d.]+", text) else text


def _distinct(values: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(value for value in values if value))


class Recommendation(NamedTuple):
    """A setting to change before a measurement, the reason, and the root command."""

    name: str
    reason: str
    command: str


def recommendations(host: HostSettings) -> list[Recommendation]:
    """Return a recommendation for each setting of `host` that slows down measurements or makes them vary."""
    return [template.fill(host) for template in _TEMPLATES if template.applies(host)]


def unread(host: HostSettings) -> list[str]:
    """Return the names of checked settings that could not be read.

    GPU persistence is excluded: only NVIDIA has it.
    """
    return [name for name, key in _CHECKED.items() if key not in host]


class _Template(NamedTuple):
    """Template of a `Recommendation`; texts contain settings in braces."""

    name: str
    applies: Callable[[HostSettings], bool]
    reason: str
    command: str | Callable[[HostSettings], str]

    def fill(self, host: HostSettings) -> Recommendation:
        command = self.command.format(**host) if isinstance(self.command, str) else self.command(host)
        return Recommendation(self.name, self.reason.format(**host), command)


def _is_not(name: str, wanted: str) -> Callable[[HostSettings], bool]:
    """Return a condition that ignores unreadable settings."""
    return lambda host: host.get(name, wanted) != wanted


def _has_slow_idle_state(host: HostSettings) -> bool:
    return any(int(us) >= _SLOW_EXIT_US for us in re.findall(r"(\d+) us", host.get("cpu_idle_states", "")))


def _reset_cpu_limits(host: HostSettings) -> str:
    """Return the command that sets the limit of every CPU to its own maximum."""
    maximum = host["cpu_hardware_max_khz"]
    if "," not in maximum:
        return f"cpupower frequency-set --max {maximum}"
    policies = f"/{_CPU}/cpufreq/policy*"
    return f"for p in {policies}; do cat $p/cpuinfo_max_freq > $p/scaling_max_freq; done"


def _enable_boost(host: HostSettings) -> str:
    file = host["cpu_turbo_file"]
    return f"echo {_BOOST_FILES[file]['on']} > /{_CPU}/{file}"


def _reset_power_caps(host: HostSettings) -> str:
    """Return the command that sets the cap to the default; accelerators with different defaults are set one by one."""
    capped = [tuple(entry.split()) for entry in host["accelerators_capped"].split(", ")]
    default = host["accelerator_power_cap_default_w"]
    uniform = "," not in default
    if "accelerator_persistence" in host:  # NVIDIA
        one = [f"nvidia-smi --id={name} --power-limit={watts}" for name, watts in capped]
        return f"nvidia-smi --power-limit={default}" if uniform else " && ".join(one)
    one = [f"amd-smi set --gpu {name} --power-cap {watts}" for name, watts in capped]
    return f"amd-smi set --power-cap {default}" if uniform else " && ".join(one)


# Host tuning documented in published MLPerf submissions.
_TEMPLATES = (
    _Template(
        "CPU governor",
        _is_not("cpu_governor", "performance"),
        "the CPU governor is {cpu_governor}, which lowers clocks between bursts",
        "cpupower frequency-set --governor performance",
    ),
    _Template(
        "CPU frequency",
        lambda host: "cpu_limited" in host,
        "CPU frequency limit is {cpu_max_khz} kHz; hardware maximum is {cpu_hardware_max_khz} kHz",
        _reset_cpu_limits,
    ),
    _Template(
        "CPU boost",
        _is_not("cpu_turbo", "on"),
        "CPU boost is off",
        _enable_boost,
    ),
    _Template(
        "CPU idle states",
        _has_slow_idle_state,
        f"enabled CPU idle states: {{cpu_idle_states}}; {_SLOW_EXIT_US} us or more delays wake-up",
        f"cpupower idle-set --disable-by-latency {_SLOW_EXIT_US}",
    ),
    _Template(
        "NUMA balancing",
        _is_not("numa_balancing", "0"),
        "the kernel moves memory between NUMA nodes during runs",
        "sysctl kernel.numa_balancing=0",
    ),
    _Template(
        "Huge pages",
        _is_not("transparent_huge_pages", "always"),
        "transparent huge pages are {transparent_huge_pages}, not always; other memory uses base pages",
        "echo always > /sys/kernel/mm/transparent_hugepage/enabled",
    ),
    _Template(
        "NMI watchdog",
        _is_not("nmi_watchdog", "0"),
        "the NMI watchdog interrupts every CPU",
        "sysctl kernel.nmi_watchdog=0",
    ),
    _Template(
        "ASLR",
        _is_not("aslr", "0"),
        "ASLR causes variance between runs (it protects the machine: restore it afterwards)",
        "sysctl kernel.randomize_va_space=0",
    ),
    _Template(
        "GPU power cap",
        lambda host: "accelerators_capped" in host,
        "GPU power cap is {accelerator_power_cap_w} W; default is {accelerator_power_cap_default_w} W",
        _reset_power_caps,
    ),
    _Template(
        "GPU persistence",
        _is_not("accelerator_persistence", "Enabled"),
        "the NVIDIA driver may unload between runs and lose its settings",
        "nvidia-smi --persistence-mode=1",
    ),
)
_CHECKED = {
    "CPU governor": "cpu_governor",
    "CPU frequency": "cpu_hardware_max_khz",
    "CPU boost": "cpu_turbo",
    "CPU idle states": "cpu_idle_states",
    "NUMA balancing": "numa_balancing",
    "Huge pages": "transparent_huge_pages",
    "NMI watchdog": "nmi_watchdog",
    "ASLR": "aslr",
    "GPU power cap": "accelerator_power_cap_default_w",
}
