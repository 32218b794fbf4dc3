"""ECC as the machine reports it, as the system file states it, or unknown."""

from pathlib import Path

import pytest
from machines import PCI, hide_tools, write_root

from harness_llm.config.system_file import complete
from harness_llm.errors import ConfigError
from harness_llm.hardware import ecc
from harness_llm.hardware.accelerators import parse_table
from harness_llm.hardware.ecc import Ecc, Fact, State, parse_amd_ras, parse_dmi, parse_edac, read_ecc

MC = "sys/devices/system/edac/mc"


@pytest.fixture(autouse=True)
def no_tools(monkeypatch: pytest.MonkeyPatch) -> None:
    hide_tools(monkeypatch)


def memory_array(correction: int, use: int = 3, kind: int = 16) -> bytes:
    """A Physical Memory Array of SMBIOS 2.7, 23 bytes: type, length, handle, location, use, correction, ..."""
    return bytes([kind, 23, 0x00, 0x10, 3, use, correction]) + bytes(16)


@pytest.mark.parametrize(
    ("modes", "state"),
    [
        (["SECDED"] * 8, State.ON),
        (["S4ECD4ED", "S8ECD8ED", "S16ECD16ED"], State.ON),
        (["SECDED", "None"], State.OFF),
        (["PARITY"], State.OFF),
        (["EC"], State.OFF),
        (["SECDED", "Unknown"], State.UNKNOWN),
        (["Reserved"], State.UNKNOWN),
        ([""], State.UNKNOWN),
        ([], State.UNKNOWN),
    ],
)
def test_edac_modes_are_read(modes: list[str], state: State) -> None:
    assert parse_edac(modes).state is state


@pytest.mark.parametrize(
    ("structures", "state"),
    [
        ([memory_array(6)], State.ON),
        ([memory_array(5), memory_array(6)], State.ON),
        ([memory_array(6), memory_array(3)], State.OFF),
        ([memory_array(4)], State.OFF),
        ([memory_array(2)], State.UNKNOWN),
        ([memory_array(6, use=5)], State.UNKNOWN),  # flash memory, not the system's
        ([memory_array(6, kind=17)], State.UNKNOWN),
        ([b"\x10\x17"], State.UNKNOWN),
        ([], State.UNKNOWN),
    ],
)
def test_smbios_memory_arrays_are_read(structures: list[bytes], state: State) -> None:
    assert parse_dmi(structures).state is state


@pytest.mark.parametrize(
    ("features", "state"),
    [
        ("feature mask: 0x3fff", State.ON),
        ("feature mask: 0x1", State.ON),
        ("feature mask: 0x3ffe", State.OFF),
        ("feature mask: 0x0", State.OFF),
        ("", State.UNKNOWN),
    ],
)
def test_amdgpu_memory_controller_is_read(features: str, state: State) -> None:
    assert parse_amd_ras(features) is state


def test_host_memory_is_read_from_edac_then_from_smbios(tmp_path: Path) -> None:
    raw = tmp_path / "sys/firmware/dmi/entries/16-0/raw"
    raw.parent.mkdir(parents=True)
    raw.write_bytes(memory_array(6))
    assert read_ecc(tmp_path).memory == Fact(State.ON, "SMBIOS")
    write_root(tmp_path / MC / "mc0/rank0", {"size": "32768", "dimm_edac_mode": "None"})
    write_root(tmp_path / MC / "mc0/rank1", {"size": "0", "dimm_edac_mode": "SECDED"})
    assert read_ecc(tmp_path).memory == Fact(State.OFF, "EDAC: None")
    write_root(tmp_path / MC / "mc0/rank0", {"dimm_edac_mode": "S4ECD4ED"})
    write_root(tmp_path / MC / "mc1/dimm0", {"size": "32768", "dimm_edac_mode": "SECDED"})
    assert read_ecc(tmp_path).memory == Fact(State.ON, "EDAC: S4ECD4ED, SECDED")


@pytest.mark.parametrize(
    ("answer", "state"),
    [
        ("Enabled\nEnabled\n", State.ON),
        ("Enabled\nDisabled\n", State.OFF),
        ("Enabled\n[N/A]\n", State.UNKNOWN),
    ],
)
def test_nvidia_ecc_is_read_from_nvidia_smi(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: str, state: State
) -> None:
    asked: list[list[str]] = []
    monkeypatch.setattr(ecc, "ask_nvidia", lambda fields: asked.append(fields) or parse_table(answer))
    write_root(tmp_path / PCI / "0000:18:00.0", {"class": "0x030200", "vendor": "0x10de"})
    assert read_ecc(tmp_path).accelerators.state is state
    assert asked == [["ecc.mode.current"]]


def test_each_amd_accelerator_is_read(tmp_path: Path) -> None:
    for bus in ("0000:05:00.0", "0000:06:00.0"):
        write_root(tmp_path / PCI / bus, {"class": "0x120000", "vendor": "0x1002"})
        write_root(tmp_path / PCI / bus, {"ras/features": "feature mask: 0x3fff"})
    assert read_ecc(tmp_path).accelerators == Fact(State.ON, "amdgpu")
    write_root(tmp_path / PCI / "0000:06:00.0", {"ras/features": "feature mask: 0x3ffe"})
    assert read_ecc(tmp_path).accelerators == Fact(State.OFF, "amdgpu")
    (tmp_path / PCI / "0000:06:00.0/ras/features").unlink()
    assert read_ecc(tmp_path).accelerators.state is State.UNKNOWN


def test_unknown_ecc_is_none(tmp_path: Path) -> None:
    found = read_ecc(tmp_path)
    assert (found.memory.state, found.accelerators.state) == (State.UNKNOWN, State.ABSENT)
    write_root(tmp_path / PCI / "0000:18:00.0", {"class": "0x030200", "vendor": "0x10de"})  # its driver is missing
    assert read_ecc(tmp_path).accelerators.state is State.UNKNOWN


def test_system_file_may_state_unknown_ecc_only(tmp_path: Path) -> None:
    file = tmp_path / "box.yaml"
    off = Ecc(Fact(State.OFF, "EDAC: None"), Fact(State.UNKNOWN))
    assert complete(off, file) == off
    file.write_text("cooling: Liquid\necc: {memory: true, accelerators: true}\n")
    found = complete(off, file)
    assert found.memory == Fact(State.OFF, "EDAC: None")
    assert str(found.accelerators) == "on (stated in box.yaml, not read)"
    file.write_text("ecc: {accelerators: false}\n")
    assert complete(off, file).accelerators.state is State.OFF


@pytest.mark.parametrize("text", ["ecc: {memroy: true}\n", "ecc: {memory: perhaps}\n", "ecc: yes\n"])
def test_wrong_ecc_statement_is_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "box.yaml"
    file.write_text(text)
    with pytest.raises(ConfigError) as caught:
        complete(Ecc(Fact(State.UNKNOWN), Fact(State.UNKNOWN)), file)
    assert f"{file}, ecc" in str(caught.value)
