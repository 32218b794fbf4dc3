"""Detection of accelerators on a PCI bus made of files."""

from pathlib import Path

import pytest

from harness_llm.errors import ConfigError
from harness_llm.hardware.gpus import detect_gpu, gpu_count, load_gpus
from harness_llm.paths import CHECKOUT, Workspace

WORKSPACE = Workspace(CHECKOUT)
COMPUTE, THREE_D, VGA, BRIDGE, NPU = "0x120000", "0x030200", "0x030000", "0x060400", "0x120000"
H200, MI300X, AST = "10de:2335", "1002:74a1", "1a03:2000"


def bus(root: Path, *functions: tuple[str, str]) -> Path:
    """A root whose PCI bus has `functions`, each (class, vendor:device)."""
    for number, (kind, pci) in enumerate(functions):
        folder = root / f"sys/bus/pci/devices/0000:{number:02x}:00.0"
        folder.mkdir(parents=True)
        vendor, device = pci.split(":")
        for name, value in {"class": kind, "vendor": f"0x{vendor}", "device": f"0x{device}"}.items():
            (folder / name).write_text(f"{value}\n")
    return root


@pytest.mark.parametrize(
    ("functions", "name", "count"),
    [
        ([(THREE_D, H200)] * 8 + [(VGA, AST), (BRIDGE, "10de:22a3")], "h200", 8),
        ([(COMPUTE, MI300X), (COMPUTE, "1002:74b5")], "mi300x", 2),
        ([(COMPUTE, "1002:74a5")], "mi325x", 1),
        ([(COMPUTE, "1002:75a3")], "mi355x", 1),
        ([(COMPUTE, "1002:75a0")] * 8, "mi350x", 8),
        ([(COMPUTE, "1002:75a8")] * 8, "mi350p", 8),
        ([(THREE_D, "10de:2901")] * 8, "b200", 8),
        ([(THREE_D, "10de:2941")] * 4, "gb200", 4),
        ([(THREE_D, "10de:3182")] * 8, "b300", 8),
        ([(THREE_D, "10de:31c2")] * 4, "gb300", 4),
        ([(THREE_D, "10de:31c3")] * 4, "gb300", 4),
        ([(THREE_D, "10de:26b9")], "l40s", 1),
        ([(THREE_D, "10de:2330")], "h100", 1),
        ([(THREE_D, "10de:20f3")] * 2, "a800", 2),
    ],
)
def test_known_accelerators_are_named_and_counted(
    functions: list[tuple[str, str]], name: str, count: int, tmp_path: Path
) -> None:
    root = bus(tmp_path, *functions)
    assert detect_gpu(root, WORKSPACE) == name
    assert gpu_count(name, root, WORKSPACE) == count


def test_accelerators_without_settings_are_counted_for_gpus_of_their_vendor(tmp_path: Path) -> None:
    root = bus(tmp_path, (THREE_D, "10de:2331"), (THREE_D, "10de:2331"))
    assert gpu_count("h100", root, WORKSPACE) == 2
    assert gpu_count("mi300x", root, WORKSPACE) == 0


@pytest.mark.parametrize("functions", [[], [(VGA, AST)], [(VGA, "10de:2684")], [(NPU, "8086:7d1d")]])
def test_machine_without_accelerators_uses_the_cpu(functions: list[tuple[str, str]], tmp_path: Path) -> None:
    assert detect_gpu(bus(tmp_path, *functions), WORKSPACE) is None


def test_several_kinds_of_accelerators_are_an_error(tmp_path: Path) -> None:
    root = bus(tmp_path, (THREE_D, H200), (COMPUTE, MI300X), (THREE_D, H200))
    with pytest.raises(ConfigError) as error:
        detect_gpu(root, WORKSPACE)
    assert "2 x NVIDIA H200" in error.value.found
    assert "1 x AMD Instinct MI300X" in error.value.found
    assert error.value.hint.endswith(": mi300x, h200")


def test_unknown_accelerator_beside_a_known_one_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="several kinds") as error:
        detect_gpu(bus(tmp_path, (THREE_D, H200), (THREE_D, "10de:2331")), WORKSPACE)
    assert error.value.found == "1 x NVIDIA H200, 1 x PCI 10de:2331"


def test_unknown_accelerator_is_an_error_with_a_hint(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as error:
        detect_gpu(bus(tmp_path, (THREE_D, "10de:2331"), (THREE_D, "10de:2331")), WORKSPACE)
    assert error.value.found == "2 x PCI 10de:2331"
    assert "GPU_NAME=" in error.value.hint
    assert "h200" in error.value.expected


def test_pci_ids_are_unique() -> None:
    ids = [pci for gpu in load_gpus(WORKSPACE).values() for pci in gpu.pci]
    assert len(ids) == len(set(ids))


def test_wrong_gpu_table_is_named(tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "gpus.yaml").write_text("h200: {pci: [10de:2335], nmae: x}\n")
    with pytest.raises(ConfigError, match="table of accelerators"):
        load_gpus(Workspace(tmp_path))
