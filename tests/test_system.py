"""The system description: detected facts, facts of the system file, refusals."""

import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from machines import PCI, hide_tools, write_root

from harness_llm.config.rules.rounds import load_round
from harness_llm.config.system_file import load_overrides
from harness_llm.errors import ConfigError
from harness_llm.hardware import accelerators
from harness_llm.hardware.accelerators import detect_accelerators, parse_nvidia, parse_table, query_nvidia
from harness_llm.hardware.machine import detect
from harness_llm.submission.system_description import describe

RULES = load_round("v6.1")
FILE = Path("submission/systems/box.yaml")

MACHINE = {
    "proc/cpuinfo": "processor\t: 0\nmodel name\t: AMD EPYC 9575F 64-Core Processor\n",
    "proc/meminfo": "MemTotal:       1584000000 kB\nMemFree: 1 kB\n",
    "proc/sys/kernel/osrelease": "6.8.0-60-generic",
    "etc/os-release": 'NAME="Ubuntu"\nPRETTY_NAME="Ubuntu 24.04.2 LTS"\n',
    "sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq": "5008000",
    "sys/devices/system/cpu/cpu0/cache/index0/level": "1",
    "sys/devices/system/cpu/cpu0/cache/index0/type": "Data",
    "sys/devices/system/cpu/cpu0/cache/index0/size": "48K",
    "sys/devices/system/cpu/cpu0/cache/index3/level": "3",
    "sys/devices/system/cpu/cpu0/cache/index3/type": "Unified",
    "sys/devices/system/cpu/cpu0/cache/index3/size": "32768K",
    "sys/block/nvme0n1/size": "15002931888",
    "sys/block/nvme0n1/device/model": "disk",
    "sys/block/nvme1n1/size": "15002931888",
    "sys/block/nvme1n1/device/model": "disk",
    "sys/block/sda/size": "937703088",
    "sys/block/sda/queue/rotational": "1",
    "sys/block/sda/device/model": "disk",
    "sys/block/sdb/size": "60000000",
    "sys/block/sdb/removable": "1",
    "sys/block/sdb/device/model": "stick",
    "sys/block/loop0/size": "100000",
    "sys/class/net/lo/type": "772",
    "sys/class/net/docker0/type": "1",
    **{f"sys/class/net/ens{port}/type": "1" for port in range(2)},
    **{f"sys/class/net/ens{port}/speed": "400000" for port in range(2)},
    "sys/class/net/ib0/type": "32",
    "sys/class/net/ib0/speed": "-1",
    **{f"sys/devices/system/edac/mc/mc{mc}/dimm0/size": "65536" for mc in range(3)},
    **{f"sys/devices/system/edac/mc/mc{mc}/dimm0/dimm_mem_type": "Registered-DDR5" for mc in range(3)},
    "sys/devices/system/edac/mc/mc0/dimm1/size": "0",
}


@pytest.fixture
def no_tools(monkeypatch: pytest.MonkeyPatch) -> None:
    hide_tools(monkeypatch)


@pytest.fixture
def machine(tmp_path: Path, no_tools: None) -> Path:
    root = write_root(tmp_path, MACHINE)
    for cpu in range(8):  # two packages of two cores with two threads
        topology = root / f"sys/devices/system/cpu/cpu{cpu}/topology"
        write_root(topology, {"physical_package_id": str(cpu % 2), "core_id": str(cpu // 2 % 2)})
    for interface, card in (("ens0", "0000:3b:00.0"), ("ens1", "0000:3b:00.1"), ("ib0", "0000:5e:00.0")):
        (root / PCI / card).mkdir(parents=True)
        (root / "sys/class/net" / interface / "device").symlink_to(root / PCI / card)
    virtual = root / PCI / "0000:3b:01.0"
    (virtual / "physfn").mkdir(parents=True)
    write_root(root / "sys/class/net/ens0v0", {"type": "1"})
    (root / "sys/class/net/ens0v0/device").symlink_to(virtual)
    return root


def test_machine_is_read_from_proc_and_sys(machine: Path) -> None:
    found = detect(machine)
    expected = {
        "host_processor_model_name": "AMD EPYC 9575F 64-Core Processor",
        "host_processors_per_node": "2",
        "host_processor_core_count": "2",
        "host_processor_frequency": "5008 MHz (maximum)",
        "host_processor_caches": "L1d 48K, L3 32768K",
        "host_memory_capacity": "1511 GiB",
        "host_memory_configuration": "3x 64 GB Registered-DDR5",
        "host_storage_capacity": "2x 7.7 TB, 1x 480 GB",
        "host_storage_type": "HDD, NVMe SSD",
        "host_networking": "2x Ethernet 400 Gb/s, 1x InfiniBand (no speed reported)",
        "host_network_card_count": "2",
        "operating_system": "Ubuntu 24.04.2 LTS",
        "number_of_nodes": "1",
        "accelerators_per_node": "0",
        "accelerator_model_name": "N/A",
    }
    assert {name: found.get(name) for name in expected} == expected
    assert "Linux 6.8.0-60-generic" in found["other_software_stack"]


def test_operating_system_in_a_container_is_that_of_the_host(machine: Path) -> None:
    write_root(machine, {"run/harness-llm-os-release": 'PRETTY_NAME="Debian GNU/Linux 12 (bookworm)"'})
    assert detect(machine)["operating_system"] == "Debian GNU/Linux 12 (bookworm)"


def test_missing_facts_are_left_empty(tmp_path: Path, no_tools: None) -> None:
    found = detect(tmp_path)
    assert not [name for name in found if name.startswith("host_")]


def test_nvidia_smi_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = "".join(f"00000000:{bus}:00.0, NVIDIA H200, 143771, 1980\n" for bus in ("18", "2A"))
    write_root(tmp_path / PCI / "0000:18:00.0", {"max_link_speed": "32.0 GT/s PCIe", "max_link_width": "16"})
    monkeypatch.setattr(accelerators, "_nvidia", lambda: parse_nvidia(parse_table(table)))
    monkeypatch.setattr(accelerators, "_amd", lambda _: [])
    assert detect_accelerators(tmp_path) == {
        "accelerators_per_node": "2",
        "accelerator_model_name": "NVIDIA H200",
        "accelerator_memory_capacity": "140 GiB",
        "accelerator_memory_configuration": "",
        "accelerator_frequency": "1980 MHz (maximum)",
        "accelerator_host_interconnect": "PCIe Gen5 x16",
    }


def test_amdsmi_is_read(tmp_path: Path, no_tools: None, monkeypatch: pytest.MonkeyPatch) -> None:
    smi = SimpleNamespace(
        AmdSmiException=RuntimeError,
        AmdSmiVramType=lambda number: SimpleNamespace(name={4: "HBM3"}[number]),
        amdsmi_init=lambda: None,
        amdsmi_shut_down=lambda: None,
        amdsmi_get_processor_handles=lambda: ["0000:05:00.0"],
        amdsmi_get_gpu_device_bdf=lambda handle: handle,
        amdsmi_get_gpu_asic_info=lambda _: {"market_name": "AMD Instinct MI300X"},
        amdsmi_get_gpu_vram_info=lambda _: {"vram_type": 4},
    )
    monkeypatch.setitem(sys.modules, "amdsmi", smi)
    write_root(tmp_path / PCI / "0000:05:00.0", {"mem_info_vram_total": str(192 * 2**30)})
    found = detect_accelerators(tmp_path)
    assert found["accelerator_model_name"] == "AMD Instinct MI300X"
    assert found["accelerator_memory_capacity"] == "192 GiB"
    assert found["accelerator_memory_configuration"] == "HBM3"
    assert found["accelerator_interconnect"] == "N/A"  # one has no other to talk to


def test_virtual_amd_gpu_without_a_name_is_counted(
    tmp_path: Path, no_tools: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unsupported(_: object) -> dict[str, object]:
        raise ValueError("AMDSMI_STATUS_NOT_SUPPORTED")

    smi = SimpleNamespace(
        AmdSmiException=ValueError,
        amdsmi_init=lambda: None,
        amdsmi_shut_down=lambda: None,
        amdsmi_get_processor_handles=lambda: ["0000:05:00.0", "0000:06:00.0"],
        amdsmi_get_gpu_device_bdf=lambda handle: handle,
        amdsmi_get_gpu_asic_info=lambda _: {"market_name": "N/A"},
        amdsmi_get_gpu_vram_info=unsupported,
    )
    monkeypatch.setitem(sys.modules, "amdsmi", smi)
    found = detect_accelerators(tmp_path)
    fields = ("accelerators_per_node", "accelerator_model_name", "accelerator_memory_configuration")
    assert [found[field] for field in fields] == ["2", "", ""]


def test_nvidia_smi_that_the_driver_blocks_is_not_awaited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "nvidia-smi"
    program.write_text("#!/bin/sh\nexec sleep 20\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setattr(accelerators, "_TIMEOUT_S", 0.2)
    blocked: list[subprocess.Popen[str]] = []

    def kill(process: "subprocess.Popen[str]") -> None:  # SIGKILL waits for the driver
        blocked.append(process)

    monkeypatch.setattr(subprocess.Popen, "kill", kill)
    started = time.monotonic()
    assert query_nvidia(["name"]).error == "no output for 0.2 s"
    assert time.monotonic() - started < 10
    [process] = blocked
    process.terminate()
    process.wait()


def test_accelerators_without_a_tool_are_counted(tmp_path: Path, no_tools: None) -> None:
    for bus, kind in (
        ("0000:05:00.0", "0x120000"),
        ("0000:06:00.0", "0x120000"),
        ("0000:07:00.0", "0x030000"),
    ):
        write_root(tmp_path / PCI / bus, {"class": kind})
    found = detect_accelerators(tmp_path)
    assert (found["accelerators_per_node"], found["accelerator_model_name"]) == ("2", "")


def full(**changes: str) -> dict[str, str]:
    """A description without gaps of a machine with eight accelerators."""
    names = (*RULES.system.filled, *RULES.system.present)
    values = dict.fromkeys(names, "something real") | {
        "status": "available",
        "number_of_nodes": "1",
        "accelerators_per_node": "8",
    }
    for name in ("division", "submitter", "system_type"):
        del values[name]
    return values | changes


def described(division: str = "closed", **fields: Any) -> dict[str, str]:
    return describe(
        "box",
        submitter="Acme",
        division=division,
        category="datacenter",
        rules=RULES,
        detected=fields.pop("detected", {}),
        overrides=fields.pop("overrides", full()),
        file=FILE,
    ).require()


def test_every_field_is_text_and_the_system_file_overrides_it() -> None:
    found = described(detected={"cooling": "detected"}, overrides=full(cooling="Liquid", accelerators_per_node="0"))
    assert set(found) == {*RULES.system.filled, *RULES.system.present}
    assert all(isinstance(value, str) for value in found.values())
    assert (found["cooling"], found["accelerators_per_node"]) == ("Liquid", "0")
    assert (found["submitter"], found["division"], found["system_type"]) == ("Acme", "closed", "datacenter")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("cooling", ""),
        ("cooling", "N/A"),
        ("framework", "TODO"),
        ("framework", "vLLM <version>"),
        ("host_networking", "tbd"),
        ("host_memory_configuration", "xxx"),
        ("accelerator_interconnect", "N/A"),
        ("hw_notes", "TODO: write"),
        ("status", ""),
        ("system_name", "???"),
    ],
)
def test_closed_refuses_gaps_and_placeholders_and_open_reports_them(field: str, value: str) -> None:
    with pytest.raises(ConfigError) as caught:
        described(overrides=full(**{field: value}))
    assert str(FILE) in str(caught.value)
    assert caught.value.found == f"{field}: {value or '(empty)'}"
    assert str(FILE) in caught.value.hint
    if field != "status":
        assert described("open", overrides=full(**{field: value}))[field] == "N/A"


def test_all_gaps_are_listed_at_once() -> None:
    fields = full()
    del fields["cooling"], fields["framework"]
    with pytest.raises(ConfigError, match=r"cooling: \(empty\)\n +framework: \(empty\)"):
        described(overrides=fields)


def test_closed_without_accelerators_requires_no_accelerator_fields() -> None:
    lacking = {name: "N/A" for name in RULES.system.filled if name.startswith("accelerator_")}
    assert described(overrides=full(accelerators_per_node="0", **lacking))["accelerator_model_name"] == "N/A"


def test_open_has_no_default_status() -> None:
    fields = full()
    del fields["status"]
    assert described("open", overrides=fields)["status"] == "rdi"


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("status", "shipping", "available, preview, rdi"),
        ("accelerators_per_node", "eight", "is not a number"),
        ("submitter", "Other", "contradiction .* submitter"),
        ("is_network", "yes", "false, true"),
    ],
)
def test_values_that_the_checker_rejects_are_refused(field: str, value: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        described("open", overrides=full(**{field: value}))


def test_system_file_complements_detected_facts(tmp_path: Path) -> None:
    file = tmp_path / "box.yaml"
    assert load_overrides(file, RULES) == {}
    file.write_text("cooling: Liquid\naccelerators_per_node: 0\nhw_notes:\necc: {memory: true}\narchitecture: {}\n")
    assert load_overrides(file, RULES) == {"cooling": "Liquid", "accelerators_per_node": "0", "hw_notes": ""}


def test_cloud_network_and_power_fields_are_written_where_given(tmp_path: Path) -> None:
    file = tmp_path / "box.yaml"
    given = {name: f"the {name}" for name in RULES.system.optional} | {"is_network": "true"}
    file.write_text("".join(f"{name}: {value}\n" for name, value in given.items()))
    found = described("open", overrides=full() | load_overrides(file, RULES))
    assert given.items() <= found.items()
    assert {"host_processor_vcpu_count", "system_power_capacity", "network_media"} <= given.keys()


def test_closed_system_is_no_network_system(tmp_path: Path) -> None:
    file = tmp_path / "box.yaml"
    file.write_text("is_network: false\nhost_processor_vcpu_count: 96\n")
    found = described(overrides=full() | load_overrides(file, RULES))
    assert found["host_processor_vcpu_count"] == "96"
    assert {name: found[name] for name in RULES.system.network} == dict.fromkeys(RULES.system.network, "") | {
        "is_network": "false"
    }
    with pytest.raises(ConfigError, match="is_network: true"):
        described(overrides=full(is_network="true"))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("coolling: Liquid\n", "the nearest field is cooling"),
        ("cooling: [Liquid]\n", "one value"),
        ("architecure: {}\n", "the nearest field is architecture"),
        ("just words\n", "field: value"),
        ("a: b: c\n", "invalid YAML"),
    ],
)
def test_wrong_system_file_is_refused(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "box.yaml"
    file.write_text(text)
    with pytest.raises(ConfigError, match=said) as caught:
        load_overrides(file, RULES)
    assert str(file) in str(caught.value)
