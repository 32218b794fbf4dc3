"""Host settings read from files and tools, and recommendations for slow ones."""

from pathlib import Path

import pytest
from machines import PCI, hide_tools, write_root

from harness_llm.hardware.accelerators import parse_table
from harness_llm.hardware.host_settings import parse_nvidia, read_host_settings, recommendations, unread
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
    "cpu_limited": "2 of 2",
    "cpu_turbo": "off",
    "cpu_turbo_file": "cpufreq/boost",
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
    "cpu_turbo_file": "cpufreq/boost",
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


def test_host_settings_are_read(tmp_path: Path, no_tools: None) -> None:
    assert read_host_settings(write_root(tmp_path, HOST)) == READ


@pytest.mark.parametrize("driver", ["intel_pstate", "intel_cpufreq"])
def test_inverted_boost_setting_of_intel_is_read(tmp_path: Path, no_tools: None, driver: str) -> None:
    for off, said in (("0", "on"), ("1", "off")):
        write_root(tmp_path, {f"{CPU}/intel_pstate/no_turbo": off, f"{CPU}/cpufreq/policy0/scaling_driver": driver})
        found = read_host_settings(tmp_path)
        assert found["cpu_turbo"] == said
    (boost,) = [r for r in recommendations(found) if r.name == "CPU boost"]
    assert boost.command == "echo 0 > /sys/devices/system/cpu/intel_pstate/no_turbo"


def test_unreadable_settings_are_left_out(tmp_path: Path, no_tools: None) -> None:
    assert read_host_settings(tmp_path) == {"memory_ecc": "unknown"}


def test_settings_of_this_machine_are_read() -> None:
    found = read_host_settings(ROOT)
    assert found["kernel"] == Path("/proc/sys/kernel/osrelease").read_text().strip()
    assert all(value and isinstance(value, str) for value in found.values())
    recommendations(found)


def test_amdgpu_settings_are_read(tmp_path: Path, no_tools: None) -> None:
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
    found = read_host_settings(tmp_path)
    assert {name: value for name, value in found.items() if name.startswith("accelerator")} == {
        "accelerator_clock_mhz": "1900, 2000",
        "accelerator_clock_max_mhz": "2100",
        "accelerator_power_cap_w": "750, 550",
        "accelerator_power_cap_default_w": "750",
        "accelerators_capped": "0000:06:00.0 750",
        "accelerators_ecc": "on",
    }
    assert recommendations(found) == [
        ("GPU power cap", "GPU power cap is 750, 550 W; default is 750 W", "amd-smi set --power-cap 750")
    ]


FAKE_SMI = """#!/bin/sh
case "$1" in
--query-gpu=ecc.mode.current) printf 'Enabled\\nEnabled\\n' ;;
--query-gpu=clocks.sm,clocks.max.sm,power.limit,power.default_limit,persistence_mode)
  printf '345, 1980, 600.00, 700.00, Disabled\\n1980, 1980, [N/A], [N/A], Disabled\\n' ;;
*) echo "Field is not a valid field to query."; exit 2 ;;
esac
"""


def test_nvidia_settings_are_read_from_nvidia_smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool = tmp_path / "bin/nvidia-smi"
    tool.parent.mkdir()
    tool.write_text(FAKE_SMI)
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tool.parent}:/usr/bin:/bin")
    found = read_host_settings(tmp_path)
    assert found == {
        "accelerator_clock_mhz": "345, 1980",
        "accelerator_clock_max_mhz": "1980",
        "accelerator_power_cap_w": "600",
        "accelerator_power_cap_default_w": "700",
        "accelerators_capped": "0 700",
        "accelerator_persistence": "Disabled",
        "memory_ecc": "unknown",
        "accelerators_ecc": "on",
    }
    assert [found.command for found in recommendations(found)] == [
        "nvidia-smi --power-limit=700",
        "nvidia-smi --persistence-mode=1",
    ]


def test_blank_line_of_a_tool_is_ignored() -> None:
    assert parse_table("Enabled\n\n") == [["Enabled"]]


def test_fast_host_has_no_recommendations() -> None:
    assert recommendations(GOOD) == []
    assert recommendations({}) == []


@pytest.mark.parametrize(
    ("changes", "command"),
    [
        ({"cpu_governor": "performance, powersave"}, "cpupower frequency-set --governor performance"),
        ({"cpu_max_khz": "2000000", "cpu_limited": "8 of 8"}, "cpupower frequency-set --max 3700000"),
        ({"cpu_turbo": "off"}, "echo 1 > /sys/devices/system/cpu/cpufreq/boost"),
        (
            {"cpu_turbo": "off", "cpu_turbo_file": "intel_pstate/no_turbo"},
            "echo 0 > /sys/devices/system/cpu/intel_pstate/no_turbo",
        ),
        ({"cpu_idle_states": "POLL 0 us, C1 1 us, C6 10 us"}, "cpupower idle-set --disable-by-latency 10"),
        ({"numa_balancing": "1"}, "sysctl kernel.numa_balancing=0"),
        ({"transparent_huge_pages": "never"}, "echo always > /sys/kernel/mm/transparent_hugepage/enabled"),
        ({"nmi_watchdog": "1"}, "sysctl kernel.nmi_watchdog=0"),
        ({"aslr": "2"}, "sysctl kernel.randomize_va_space=0"),
        ({"accelerator_power_cap_w": "700, 650", "accelerators_capped": "1 700"}, "nvidia-smi --power-limit=700"),
        ({"accelerator_persistence": "Disabled"}, "nvidia-smi --persistence-mode=1"),
    ],
)
def test_each_slow_setting_has_a_command(changes: dict[str, str], command: str) -> None:
    (found,) = recommendations(GOOD | changes)
    assert found.command == command


@pytest.mark.parametrize(
    ("limits", "limited"),
    [(["3700000", "3500000"], ""), (["3700000", "3000000"], "1 of 2"), (["3500000", "3500000"], "1 of 2")],
)
def test_cpu_limit_is_compared_with_the_maximum_of_the_same_cpu(
    tmp_path: Path, no_tools: None, limits: list[str], limited: str
) -> None:
    for n, (limit, maximum) in enumerate(zip(limits, ["3700000", "3500000"], strict=True)):
        files = {"scaling_max_freq": limit, "cpuinfo_max_freq": maximum}
        write_root(tmp_path / CPU / f"cpufreq/policy{n}", files)
    found = read_host_settings(tmp_path)
    assert found["cpu_hardware_max_khz"] == "3700000, 3500000"
    assert found.get("cpu_limited", "") == limited
    commands = [recommended.command for recommended in recommendations(found)]
    loop = "do cat $p/cpuinfo_max_freq > $p/scaling_max_freq; done"
    assert commands == ([f"for p in /{CPU}/cpufreq/policy*; {loop}"] if limited else [])


@pytest.mark.parametrize(
    ("caps", "command"),
    [
        (["700", "350"], []),
        (["700", "300"], ["nvidia-smi --id=1 --power-limit=350"]),
        (["600", "300"], ["nvidia-smi --id=0 --power-limit=700 && nvidia-smi --id=1 --power-limit=350"]),
    ],
)
def test_power_cap_is_compared_with_the_default_of_the_same_gpu(caps: list[str], command: list[str]) -> None:
    rows = [["1980", "1980", cap, default, "Enabled"] for cap, default in zip(caps, ["700", "350"], strict=True)]
    found = {name: value for name, value in parse_nvidia(rows).items() if value}
    assert [recommended.command for recommended in recommendations(found)] == command


def test_unreadable_settings_are_named() -> None:
    assert unread(GOOD) == []
    assert unread({name: value for name, value in GOOD.items() if name not in ("cpu_governor", "cpu_turbo")}) == [
        "CPU governor",
        "CPU boost",
    ]
