"""ECC of memory and accelerators, required for closed datacenter results (inference_rules.adoc:254)."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from harness_llm.hardware.accelerators import ask_nvidia
from harness_llm.hardware.pci import NVIDIA, functions_on_bus
from harness_llm.hardware.sysfs import read

_CORRECTING = re.compile(r"SECDED|S\d+ECD\d+ED")  # edac_caps of drivers/edac/edac_mc_sysfs.c
_NOT_CORRECTING = ("None", "PARITY", "EC")
_MEMORY_ARRAY, _SYSTEM_MEMORY = 16, 3  # SMBIOS 3.7, 7.17: structure type, and its use
_DMI_ON, _DMI_OFF = (5, 6), (3, 4, 7)  # single-bit and multi-bit ECC; none, parity, CRC (7.17.3)
_UMC = 1  # the memory controller's bit of amdgpu's RAS features (enum amdgpu_ras_block)


class State(StrEnum):
    """State of ECC; ABSENT: the machine has no such hardware."""

    ON = "on"
    OFF = "off"
    UNKNOWN = "unknown"
    ABSENT = "absent"


@dataclass(frozen=True)
class Fact:
    """A state and its source."""

    state: State
    source: str = ""

    def __str__(self) -> str:
        return f"{self.state} ({self.source})" if self.source else str(self.state)


UNKNOWN = Fact(State.UNKNOWN)


@dataclass(frozen=True)
class Ecc:
    """ECC of a machine, with the names of a system file."""

    memory: Fact
    accelerators: Fact

    @property
    def facts(self) -> dict[str, Fact]:
        """By name."""
        return {"memory": self.memory, "accelerators": self.accelerators}


UNTOLD = Ecc(UNKNOWN, UNKNOWN)
"""ECC of a machine that cannot be examined."""


def read_ecc(root: Path = Path("/")) -> Ecc:
    """Read ECC of this machine; memory from EDAC, else from the firmware, which only root may read."""
    edac = parse_edac(_edac_modes(root))
    memory = edac if edac.state is not State.UNKNOWN else parse_dmi(_dmi_structures(root))
    return Ecc(memory, _accelerators(root))


def parse_edac(modes: Iterable[str]) -> Fact:
    """Return the state of memory from the `dimm_edac_mode` of all modules."""
    modes = sorted(set(modes))
    states = [_edac_state(mode) for mode in modes]
    return _worst(states, f"EDAC: {', '.join(modes)}")


def parse_dmi(structures: Iterable[bytes]) -> Fact:
    """Return the state of memory from raw SMBIOS structures of type 16 whose use is system memory."""
    arrays = [s for s in structures if len(s) > 6 and s[0] == _MEMORY_ARRAY and s[5] == _SYSTEM_MEMORY]  # noqa: PLR2004
    states = [State.ON if s[6] in _DMI_ON else State.OFF if s[6] in _DMI_OFF else State.UNKNOWN for s in arrays]
    return _worst(states, "SMBIOS")


def parse_nvidia_ecc(mode: str) -> State:
    """Return the state for nvidia-smi's `ecc.mode.current`."""
    return {"Enabled": State.ON, "Disabled": State.OFF}.get(mode, State.UNKNOWN)


def parse_amd_ras(features: str) -> State:
    """Return the state for amdgpu's `ras/features`; virtual machines do not have this file."""
    mask = re.match(r"feature mask: (0x[0-9a-f]+)", features)
    if not mask:
        return State.UNKNOWN
    return State.ON if int(mask[1], 16) & _UMC else State.OFF


def together(facts: Sequence[Fact]) -> Fact:
    """Return the worst state of several machines, ignoring machines without such hardware."""
    known = [fact for fact in facts if fact.state is not State.ABSENT]
    worst = _worst([fact.state for fact in known], ", ".join(dict.fromkeys(fact.source for fact in known)))
    return worst if known else Fact(State.ABSENT)


def _edac_modes(root: Path) -> list[str]:
    """Return the modes of all modules. AMD's controllers list ranks instead of DIMMs; empty sockets have no size."""
    modules = (m for kind in ("dimm", "rank") for m in (root / "sys/devices/system/edac/mc").glob(f"mc*/{kind}[0-9]*"))
    return [read(module / "dimm_edac_mode") for module in modules if read(module / "size") not in ("", "0")]


def _edac_state(mode: str) -> State:
    if _CORRECTING.fullmatch(mode):
        return State.ON
    return State.OFF if mode in _NOT_CORRECTING else State.UNKNOWN


def _dmi_structures(root: Path) -> list[bytes]:
    files = sorted((root / "sys/firmware/dmi/entries").glob(f"{_MEMORY_ARRAY}-*/raw"))
    try:
        return [file.read_bytes() for file in files]
    except OSError:
        return []


def _accelerators(root: Path) -> Fact:
    nvidia = [parse_nvidia_ecc(mode) for (mode,) in ask_nvidia(["ecc.mode.current"])]
    others = [f for f in functions_on_bus(root) if not (nvidia and read(f / "vendor") == NVIDIA)]
    states = nvidia + [parse_amd_ras(read(f / "ras/features")) for f in others]
    sources = ["nvidia-smi"] * bool(nvidia) + ["amdgpu"] * bool(others)
    return _worst(states, " and ".join(sources)) if states else Fact(State.ABSENT)


def _worst(states: Iterable[State], source: str) -> Fact:
    """Return the worst of `states`: OFF before UNKNOWN before ON."""
    found = set(states)
    for state in (State.OFF, State.UNKNOWN, State.ON):
        if state in found:
            return UNKNOWN if state is State.UNKNOWN else Fact(state, source)
    return UNKNOWN
