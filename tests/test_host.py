"""Settings of the host: read from files and tools, and what is said about them."""

from pathlib import Path

import pytest
from machines import PCI, hide_tools, write_root

from harness_llm.hardware.accelerators import parse_table
from harness_llm.hardware.host_settings import advice, read_host, unread
from harness_llm.hardware.machine import ROOT

CPU = "sys/devices/system/cpu"

HOST = {
    "proc/sys/kernel/osrelease": "6.8.0-60-generic",
    "proc/sys/kernel/numa_balancing": "1",
    "proc/sys/kernel/nmi_watchdog": "1",
    "proc/sys/kernel/randomize_va_space": "2",
    "sys/kernel/mm/transparent_hugepage/enabled": "always [madvise] never",
    **{f"{CPU}/cpufreq/policy{n}/scaling_governor": governor for n, governor in enumerate(["schedutil", "powersave"])},
    **{f"{CPU}/cpufreq/policy{n}/scaling_driver": "acpi-cpufreq" for n in range(2)},
    **{f"{CPU}/cpufreq/policy{n}/scaling_min_freq": "1500000" for n in range(2)},
    **{f"{CPU}/cpufreq/policy{n}/scaling_max_freq": "2000000" for n in range(2)},
    **{f"{CPU}/cpufreq/policy{n}/cpuinfo_max_freq": "3700000" for n in range(2)},
    f"{CPU}/cpufreq/boost": "0",
    f"{CPU}/smt/control": "on",
    **{f"{CPU}/cpu0/cpuidle/state{n}/name": name for n, name in enumerate(["POLL", "C1", "C2", "C6"])},
    **{f"{CPU}/cpu0/cpuidle/state{n}/latency": us for n, us in enumerate(["0", "1", "100", "800"])},
    **{f"{CPU}/cpu0/cpuidle/state{n}/disable": off for n, off in enumerate("0001")},
    "sys/devices/system/edac/mc/mc0/dimm0/size": "65536",
    "sys/devices/system/edac/mc/mc0/dimm0/dimm_edac_mode": "SECDED",
}
READ = {
    "kernel": "6.8.0-60-generic",
    "cpu_governor": "schedutil, powersave",
    "cpu_frequency_driver": "acpi-cpufreq",
    "cpu_min_khz": "1500000",
    "cpu_max_khz": "2000000",
    "cpu_hardware_max_khz": "3700000",
    "cpu_turbo": "off",
    "cpu_idle_states": "POLL 0 us, C1 1 us, C2 100 us",
    "smt": "on",
    "numa_balancing": "1",
    "nmi_watchdog": "1",
    "aslr": "2",
    "transparent_huge_pages": "madvise",
    "memory_ecc": "on",
}
GOOD = {
    "cpu_governor": "performance",
    "cpu_frequency_driver": "acpi-cpufreq",
    "cpu_max_khz": "3700000",
    "cpu_hardware_max_khz": "3700000",
    "cpu_turbo": "on",
    "cpu_idle_states": "POLL 0 us, C1 1 us",
    "numa_balancing": "0",
    "nmi_watchdog": "0",
    "aslr": "0",
    "transparent_huge_pages": "always",
    "accelerator_power_cap_w": "700",
    "accelerator_power_cap_default_w": "700",
    "accelerator_persistence": "Enabled",
}


@pytest.fixture
def no_tools(monkeypatch: pytest.MonkeyPatch) -> None:
    hide_tools(monkeypatch)


def test_settings_are_read(tmp_path: Path, no_tools: None) -> None:
    assert read_host(write_root(tmp_path, HOST)) == READ


def test_intel_says_turbo_the_other_way_round(tmp_path: Path, no_tools: None) -> None:
    for off, said in (("0", "on"), ("1", "off")):
        write_root(tmp_path, {f"{CPU}/intel_pstate/no_turbo": off})
        assert read_host(tmp_path)["cpu_turbo"] == said


def test_what_cannot_be_read_is_left_out(tmp_path: Path, no_tools: None) -> None:
    assert read_host(tmp_path) == {"memory_ecc": "unknown"}


def test_this_machine_is_read_as_it_is() -> None:
    found = read_host(ROOT)
    assert found["kernel"] == Path("/proc/sys/kernel/osrelease").read_text().strip()
    assert all(value and isinstance(value, str) for value in found.values())
    advice(found)


def test_amdgpu_is_read(tmp_path: Path, no_tools: None) -> None:
    clocks = "S: 19Mhz\n0: 132Mhz\n1: {}Mhz *\n2: 2100Mhz"
    for bus, now, cap in (("0000:05:00.0", "1900", "750000000"), ("0000:06:00.0", "2000", "550000000")):
        files = {
            "class": "0x120000",
            "ras/features": "feature mask: 0x3fff",
            "pp_dpm_sclk": clocks.format(now),
            "hwmon/hwmon3/power1_cap": cap,
            "hwmon/hwmon3/power1_cap_default": "750000000",
        }
        write_root(tmp_path / PCI / bus, files)
    found = read_host(tmp_path)
    assert {name: value for name, value in found.items() if name.startswith("accelerator")} == {
        "accelerator_clock_mhz": "1900, 2000",
        "accelerator_clock_max_mhz": "2100",
        "accelerator_power_cap_w": "750, 550",
        "accelerator_power_cap_default_w": "750",
        "accelerators_ecc": "on",
    }
    assert advice(found) == [
        ("GPU power cap", "power of accelerators is capped at 750, 550 W of 750", "amd-smi set --power-cap 750")
    ]


FAKE_SMI = """#!/bin/sh
case "$1" in
--query-gpu=ecc.mode.current) printf 'Enabled\\nEnabled\\n' ;;
--query-gpu=clocks.sm,clocks.max.sm,power.limit,power.default_limit,persistence_mode)
  printf '345, 1980, 600.00, 700.00, Disabled\\n1980, 1980, [N/A], [N/A], Disabled\\n' ;;
*) echo "Field is not a valid field to query."; exit 2 ;;
esac
"""


def test_nvidia_smi_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool = tmp_path / "bin/nvidia-smi"
    tool.parent.mkdir()
    tool.write_text(FAKE_SMI)
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tool.parent}:/usr/bin:/bin")
    found = read_host(tmp_path)
    assert found == {
        "accelerator_clock_mhz": "345, 1980",
        "accelerator_clock_max_mhz": "1980",
        "accelerator_power_cap_w": "600",
        "accelerator_power_cap_default_w": "700",
        "accelerator_persistence": "Disabled",
        "memory_ecc": "unknown",
        "accelerators_ecc": "on",
    }
    assert [found.command for found in advice(found)] == [
        "nvidia-smi --power-limit=700",
        "nvidia-smi --persistence-mode=1",
    ]


def test_a_blank_line_of_a_tool_is_no_accelerator() -> None:
    assert parse_table("Enabled\n\n") == [["Enabled"]]


def test_who_has_set_everything_hears_nothing() -> None:
    assert advice(GOOD) == []
    assert advice({}) == []


@pytest.mark.parametrize(
    ("changes", "command"),
    [
        ({"cpu_governor": "performance, powersave"}, "cpupower frequency-set --governor performance"),
        ({"cpu_max_khz": "2000000"}, "cpupower frequency-set --max 3700000"),
        ({"cpu_turbo": "off"}, "echo 1 > /sys/devices/system/cpu/cpufreq/boost"),
        (
            {"cpu_turbo": "off", "cpu_frequency_driver": "intel_pstate"},
            "echo 0 > /sys/devices/system/cpu/intel_pstate/no_turbo",
        ),
        ({"cpu_idle_states": "POLL 0 us, C1 1 us, C6 10 us"}, "cpupower idle-set --disable-by-latency 10"),
        ({"numa_balancing": "1"}, "sysctl kernel.numa_balancing=0"),
        ({"transparent_huge_pages": "never"}, "echo always > /sys/kernel/mm/transparent_hugepage/enabled"),
        ({"nmi_watchdog": "1"}, "sysctl kernel.nmi_watchdog=0"),
        ({"aslr": "2"}, "sysctl kernel.randomize_va_space=0"),
        ({"accelerator_power_cap_w": "700, 650"}, "nvidia-smi --power-limit=700"),
        ({"accelerator_persistence": "Disabled"}, "nvidia-smi --persistence-mode=1"),
    ],
)
def test_each_loss_has_its_command(changes: dict[str, str], command: str) -> None:
    (found,) = advice(GOOD | changes)
    assert found.command == command


def test_settings_that_cannot_be_read_are_named() -> None:
    assert unread(GOOD) == []
    assert unread({name: value for name, value in GOOD.items() if name not in ("cpu_governor", "cpu_turbo")}) == [
        "CPU governor",
        "CPU boost",
    ]
