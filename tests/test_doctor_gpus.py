"""Checks of a node's GPUs, on nodes made of files and a program called nvidia-smi."""

import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from asked import options
from fake_node import MI300X, amd_process, nvidia_gpu, nvidia_smi, use_path, write_node
from machines import PCI, hide_tools, write_root
from workspaces import make_workspace

from harness_llm.config.request import Request, load_request
from harness_llm.hardware import device_lock as devices
from harness_llm.hardware import gpu_state
from harness_llm.hardware.accelerators import NvidiaAnswer
from harness_llm.hardware.gpu_state import read_devices
from harness_llm.paths import Workspace
from harness_llm.pipeline.doctor import settings_checks
from harness_llm.pipeline.doctor.check_result import CheckResult, Level
from harness_llm.pipeline.doctor.examination import examine
from harness_llm.pipeline.doctor.purpose import Part, Purpose

GIB = 2**30
MISMATCH = "Failed to initialize NVML: Driver/library version mismatch"
LOST = "Unable to determine the device handle for GPU0000:1A:00.0: GPU is lost"
# Checks of the machine that runs this test.
ELSEWHERE = ("Quantization", "LoadGen", "Shared memory", "vLLM build")


@pytest.fixture(autouse=True)
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HARNESS_LLM_WORKSPACE", str(tmp_path / "checkout"))
    for name in (*(f"{vendor}_VISIBLE_DEVICES" for vendor in ("CUDA", "HIP", "NVIDIA", "ROCR")), "HARNESS_LLM_IMAGE"):
        monkeypatch.delenv(name, raising=False)
    make_workspace(tmp_path / "checkout")
    monkeypatch.setattr(devices, "make_locks", lambda: tmp_path)


def loaded(gpu: str, **words: object) -> Request:
    values = {"model": "llama2-70b", "gpu": gpu, "division": "open", "system_name": "box"} | words
    return load_request(options(**values), Workspace())


def examined(root: Path, gpu: str, part: Part = Part.ALL, **words: object) -> list[CheckResult]:
    return list(examine(loaded(gpu, **words), Purpose.MEASURE, part=part, root=root).results)


def of(results: list[CheckResult], name: str) -> CheckResult:
    (found,) = [result for result in results if result.name == name]
    return found


@pytest.fixture
def nvidia(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[CheckResult]]:
    """Results of a node with eight H200, of which the last has `changes`."""
    root = write_node(tmp_path / "node", nvswitches=4)
    use_path(monkeypatch, tmp_path / "bin")

    def check(processes: tuple[dict[str, object], ...] = (), **changes: object) -> list[CheckResult]:
        gpus = [nvidia_gpu(number) for number in range(7)] + [nvidia_gpu(7, **changes)]
        nvidia_smi(tmp_path / "bin", gpus, processes)
        return examined(root, "h200")

    return check


@pytest.fixture
def amd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    hide_tools(monkeypatch)
    return write_node(tmp_path / "node", MI300X)


def test_correct_nvidia_node_has_no_error_and_no_warning(nvidia: Callable[..., list[CheckResult]]) -> None:
    found = [result for result in nvidia() if result.name not in ELSEWHERE]
    assert [result for result in found if result.level is not Level.OK] == []
    assert of(found, "GPUs").found == "8 x NVIDIA H200"
    assert of(found, "NVLink fabric").found == "Completed Success"


def test_correct_amd_node_has_no_error_and_no_warning(amd: Path) -> None:
    found = [result for result in examined(amd, "mi300x") if result.name not in ELSEWHERE]
    assert [result for result in found if result.level is not Level.OK] == []
    assert of(found, "GPU partitions").found == "SPX, NPS1"


@pytest.mark.parametrize(
    ("changes", "name", "level", "words"),
    [
        ({"memory__free": 60000}, "GPU memory", Level.ERROR, "GPU 7: 58.6 GiB free"),
        ({"mig__mode__current": "Enabled"}, "MIG", Level.ERROR, "on, GPU 7"),
        ({"fabric__state": "In Progress", "fabric__status": "[N/A]"}, "NVLink fabric", Level.ERROR, "In Progress"),
        ({"fabric__status": "Failure"}, "NVLink fabric", Level.ERROR, "Completed Failure"),
        ({"power__limit": "600.00"}, "GPU power cap", Level.WARNING, "700, 600 W; default is 700 W"),
        ({"persistence_mode": "Disabled"}, "GPU persistence", Level.WARNING, "unload"),
        ({"ecc__mode__current": "Disabled"}, "ECC of accelerators", Level.WARNING, "off"),
        ({"driver_version": "580.95.05"}, "GPU driver", Level.OK, "580.95.05, CUDA 13.0"),
        ({"memory__free": "[N/A]"}, "GPU memory", Level.NOT_CHECKED, "no free memory"),
    ],
)
def test_each_fault_of_an_nvidia_gpu_is_found(
    nvidia: Callable[..., list[CheckResult]], changes: dict[str, object], name: str, level: Level, words: str
) -> None:
    result = of(nvidia(**changes), name)
    assert result.level is level
    assert words in result.found
    assert result.hint or level in (Level.OK, Level.NOT_CHECKED)


def test_other_processes_on_gpus_are_named_with_the_command_to_end_them(
    nvidia: Callable[..., list[CheckResult]],
) -> None:
    process = {"pid": 4711, "process_name": "/usr/bin/python3", "used_memory": 512}
    result = of(nvidia((process, process)), "GPU processes")
    assert (result.level, result.hint) == (Level.WARNING, "sudo kill 4711")
    assert "4711 /usr/bin/python3 (0.5 GiB)" in result.found


def test_too_few_gpus_are_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = write_node(tmp_path / "node", count=4)
    use_path(monkeypatch, tmp_path / "bin")
    nvidia_smi(tmp_path / "bin", [nvidia_gpu(number) for number in range(4)])
    result = of(examined(root, "h200"), "GPUs")
    assert (result.level, result.found, result.expected) == (Level.ERROR, "4 x NVIDIA H200", "8 x NVIDIA H200")
    assert "--gpu-count 4" in result.hint


def test_gpu_missing_from_the_bus_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = write_node(tmp_path / "node")
    use_path(monkeypatch, tmp_path / "bin")
    nvidia_smi(tmp_path / "bin", [nvidia_gpu(number) for number in range(7)])
    result = of(examined(root, "h200"), "GPUs")
    assert result.level is Level.ERROR
    assert result.found == "8 on the PCI bus, of which the driver reports 7"
    assert "--gpu-count 7" in result.hint


def test_gpu_that_fails_between_queries_has_no_fabric_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = write_node(tmp_path / "node")
    use_path(monkeypatch, tmp_path / "bin")
    rows = [["0", "GPU-0", "0x233510DE", "NVIDIA H200", "580.95.05", "143771", "143156", "Disabled"]] * 2
    monkeypatch.setattr(gpu_state, "query_nvidia", lambda _: NvidiaAnswer(rows))
    monkeypatch.setattr(gpu_state, "ask_nvidia", lambda *_: [["Completed", "Success"]] if len(_) == 1 else [])
    assert [device.fabric for device in read_devices("10de", root).devices] == ["", ""]


def test_missing_gpus_are_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hide_tools(monkeypatch)
    assert of(examined(tmp_path, "h200"), "GPUs").level is Level.ERROR


def test_gpu_of_the_same_family_is_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = write_node(tmp_path / "node", "10de:2331")
    use_path(monkeypatch, tmp_path / "bin")
    nvidia_smi(tmp_path / "bin", [nvidia_gpu(number, pci__device_id="0x233110DE") for number in range(8)])
    found = examined(root, "h100")
    assert of(found, "GPUs").level is Level.OK
    assert (of(found, "GPU kind").level, of(found, "GPU kind").found) == (Level.WARNING, "8 x PCI 10de:2331")


@pytest.fixture
def mixed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Folder of nvidia-smi, and the root of a node with two L40S before six H200."""
    root = write_node(tmp_path / "node", count=8)
    for number in range(2):
        write_root(root / PCI / f"0000:{0x18 + number:02x}:00.0", {"device": "0x26b9"})
    use_path(monkeypatch, tmp_path / "bin")
    l40s = {"name": "NVIDIA L40S", "pci__device_id": "0x26B910DE"}
    nvidia_smi(tmp_path / "bin", [nvidia_gpu(number, **l40s if number < 2 else {}) for number in range(8)])
    return root


@pytest.mark.parametrize(
    ("part", "variable"), [(Part.ALL, "CUDA_VISIBLE_DEVICES"), (Part.HOST, "NVIDIA_VISIBLE_DEVICES")]
)
def test_gpus_of_another_kind_in_the_node_must_be_excluded(
    mixed: Path, monkeypatch: pytest.MonkeyPatch, part: Part, variable: str
) -> None:
    found = of(examined(mixed, "h200", part), "GPU kind")
    assert (found.level, found.found) == (Level.ERROR, "2 x PCI 10de:26b9")
    assert found.hint == f"select devices by number: export {variable}=2,3,4,5,6,7"
    monkeypatch.setenv(variable, "1,2,3,4")
    assert of(examined(mixed, "h200", part), "GPU kind").level is Level.ERROR
    monkeypatch.setenv(variable, "2,3,4,5")
    assert of(examined(mixed, "h200", part), "GPU kind").level is Level.OK
    monkeypatch.setenv(variable, "0,1")
    assert of(examined(mixed, "h200", part), "GPU kind").level is Level.WARNING


def test_gpus_on_the_bus_outside_a_container_are_no_error(
    mixed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nvidia_smi(tmp_path / "bin", [nvidia_gpu(number) for number in range(6)])
    monkeypatch.setenv("HARNESS_LLM_IMAGE", "submission")
    monkeypatch.setenv("NVIDIA_VISIBLE_DEVICES", "2,3,4,5,6,7")
    results = examined(mixed, "h200", gpu_count=6, user_conf=tmp_path / "checkout/code/user_h200.conf")
    assert of(results, "GPUs").level is of(results, "GPU kind").level is Level.OK


def test_unused_devices_are_not_checked(
    nvidia: Callable[..., list[CheckResult]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nvidia(memory__free=60000)
    (tmp_path / "checkout/code/user_h200_2gpu.conf").write_text((tmp_path / "checkout/code/user_h200.conf").read_text())
    root = tmp_path / "node"
    assert of(examined(root, "h200", gpu_count=2), "GPU memory").level is Level.OK
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,7")
    assert of(examined(root, "h200", gpu_count=2), "GPU memory").level is Level.ERROR
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", f"{nvidia_gpu(0)['uuid']},{nvidia_gpu(1)['uuid']}")
    assert of(examined(root, "h200", gpu_count=2), "GPU memory").level is Level.OK
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "7")
    assert of(examined(root, "h200", gpu_count=2), "GPUs").found.startswith("1 x")


def test_description_counts_the_accelerators_of_the_replicas(
    nvidia: Callable[..., list[CheckResult]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The edge benchmark has one replica of one GPU, which has no interconnect to describe."""
    nvidia()

    def gaps(**words: object) -> str:
        names = {"division": "closed", "company": "Acme", "profile": "valid"}
        request = loaded("h200", **names, **words)
        return of(list(examine(request, Purpose.SUBMIT, root=tmp_path / "node").results), "System description").observed

    assert "accelerator_interconnect:" not in gaps(model="llama3.1-8b-edge")
    assert "accelerator_interconnect:" in gaps(model="llama3.1-8b")
    monkeypatch.setattr(settings_checks, "find_spec", lambda _: None)  # the machine has no vLLM
    request = loaded("h200", division="closed", company="Acme", profile="valid", gpu_count=1)
    results = examine(request, Purpose.SUBMIT, part=Part.HOST, root=tmp_path / "node").results
    assert "accelerator_interconnect:" not in of(list(results), "System description").observed


def test_system_other_than_that_of_packaged_results_is_an_error(
    nvidia: Callable[..., list[CheckResult]], tmp_path: Path
) -> None:
    nvidia()
    request = loaded("h200", model="llama3.1-8b-edge", company="Acme", profile="valid")
    home = request.workspace.submission / request.submission.tree_name / "open/Acme"
    (home / "results/box/llama2-70b-99.9").mkdir(parents=True)
    write_root(home, {"systems/box.json": '{"accelerators_per_node": "8", "system_type": "edge"}'})
    for part, fields in ((Part.ALL, {"framework", "accelerators_per_node"}), (Part.HOST, {"accelerators_per_node"})):
        results = examine(request, Purpose.SUBMIT, part=part, root=tmp_path / "node").results
        result = of(list(results), "System description")
        assert result.level == Level.ERROR
        assert "accelerators_per_node: 8" in result.expected
        assert "accelerators_per_node: 1" in result.observed
        assert {"framework", "accelerators_per_node"} & set(re.findall(r"(\w+):", result.observed)) == fields


def test_missing_nvidia_smi_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hide_tools(monkeypatch)
    root = write_node(tmp_path / "node", nvswitches=4)
    for part in (Part.ALL, Part.HOST):
        result = of(examined(root, "h200", part), "GPU access")
        assert (result.level, result.found) == (Level.ERROR, "nvidia-smi is not on PATH")
        assert result.hint.endswith("sudo apt install nvidia-utils-580-server")


def test_missing_nvidia_smi_in_a_container_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hide_tools(monkeypatch)
    monkeypatch.setenv("HARNESS_LLM_IMAGE", "submission")
    found = examined(write_node(tmp_path / "node", nvswitches=4), "h200")
    assert of(found, "GPU memory, partitions").level is Level.NOT_CHECKED
    assert "GPU power cap" in of(found, "Host settings").found
    assert of(found, "ECC of accelerators").level is Level.NOT_CHECKED


@pytest.mark.parametrize(
    ("script", "found", "hint"),
    [
        (f"echo {MISMATCH}; echo NVML library version: 580.95; exit 18", MISMATCH, "sudo reboot"),
        (f"echo {LOST} >&2; exit 15", LOST, "sudo dmesg | grep -i xid"),
        ("exit 9", "exit code 9, no output", "sudo dmesg | grep -i xid"),
        ("echo No devices were found", "No devices were found", "sudo dmesg | grep -i xid"),
    ],
)
def test_failing_nvidia_smi_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, found: str, hint: str
) -> None:
    root = write_node(tmp_path / "node")
    write_root(tmp_path / "bin", {"nvidia-smi": f"#!/bin/sh\n{script}"})
    (tmp_path / "bin/nvidia-smi").chmod(0o755)
    use_path(monkeypatch, tmp_path / "bin")
    for part in (Part.ALL, Part.HOST):
        result = of(examined(root, "h200", part), "GPU access")
        assert (result.level, result.found, result.hint) == (Level.ERROR, found, hint)


def test_unloaded_driver_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hide_tools(monkeypatch)
    root = write_node(tmp_path / "node")
    (root / "sys/module/nvidia/version").unlink()
    (root / "sys/module/nvidia").rmdir()
    result = of(examined(root, "h200"), "GPU driver")
    assert (result.level, result.found) == (Level.ERROR, "the driver is not loaded")


def test_fabric_state_is_read_from_the_fabric_manager(
    nvidia: Callable[..., list[CheckResult]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpus = [{k: v for k, v in nvidia_gpu(n).items() if not k.startswith("fabric")} for n in range(8)]
    nvidia_smi(tmp_path / "bin", gpus)
    root = tmp_path / "node"
    result = of(examined(root, "h200"), "NVLink fabric")
    assert (result.level, result.hint) == (Level.ERROR, "sudo systemctl enable --now nvidia-fabricmanager")
    monkeypatch.setenv("HARNESS_LLM_IMAGE", "submission")
    assert of(examined(root, "h200"), "NVLink fabric").level is Level.NOT_CHECKED
    write_root(root, {"proc/77/comm": "nv-fabricmanage"})
    assert of(examined(root, "h200"), "NVLink fabric").level is Level.OK


@pytest.mark.parametrize(
    ("file", "value", "name", "level"),
    [
        ("current_compute_partition", "CPX", "Compute partition", Level.ERROR),
        ("current_memory_partition", "NPS4", "Memory partition", Level.WARNING),
        ("mem_info_vram_used", str(100 * GIB), "GPU memory", Level.ERROR),
        ("hwmon/hwmon3/power1_cap", "550000000", "GPU power cap", Level.WARNING),
        ("ras/features", "feature mask: 0x0", "ECC of accelerators", Level.WARNING),
    ],
)
def test_each_fault_of_an_amd_gpu_is_found(amd: Path, file: str, value: str, name: str, level: Level) -> None:
    write_root(amd / PCI / "0000:1f:00.0", {file: value})
    result = of(examined(amd, "mi300x"), name)
    assert result.level is level
    assert result.hint


def test_processes_on_amd_gpus_are_named(amd: Path) -> None:
    amd_process(amd, 815, 2048, "rocm-bench")
    result = of(examined(amd, "mi300x"), "GPU processes")
    assert (result.found, result.hint) == ("815 rocm-bench (2.0 GiB)", "sudo kill 815")


def test_missing_kfd_is_an_error(amd: Path) -> None:
    (amd / "dev/kfd").unlink()
    assert of(examined(amd, "mi300x"), "GPU access").level is Level.ERROR


def test_host_side_of_containers_needs_no_access_to_gpus(amd: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda *_: False)  # this user is root
    assert of(examined(amd, "mi300x"), "GPU access").level is Level.ERROR
    assert "GPU access" not in {result.name for result in examined(amd, "mi300x", Part.HOST)}
    (amd / "dev/kfd").unlink()
    assert of(examined(amd, "mi300x", Part.HOST), "GPU access").level is Level.ERROR


def test_engine_settings_of_containers_are_checked_in_the_image_only(
    amd: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    little_memory = ("llm_config.gpu_memory_utilization=0.3",)
    found = of(examined(amd, "mi300x", Part.CONTAINER, set=little_memory), "Engine settings")
    assert found.level is Level.ERROR
    monkeypatch.setattr(settings_checks, "find_spec", lambda _: None)  # the machine has no vLLM
    results = examined(amd, "mi300x", Part.HOST, set=little_memory)
    assert of(results, "Settings").level is Level.NOT_CHECKED
    assert "Engine settings" not in {result.name for result in results}


@pytest.mark.parametrize("part", [Part.ALL, Part.HOST])
def test_rocr_visible_devices_is_an_error(amd: Path, monkeypatch: pytest.MonkeyPatch, part: Part) -> None:
    monkeypatch.setenv("ROCR_VISIBLE_DEVICES", "4,5,6,7")
    result = of(examined(amd, "mi300x", part), "Visible devices")
    assert (result.level, result.hint) == (
        Level.ERROR,
        "unset ROCR_VISIBLE_DEVICES; export HIP_VISIBLE_DEVICES=4,5,6,7",
    )


def test_demo_on_a_gpu_node_has_no_gpu_checks(amd: Path) -> None:
    results = examined(amd, "cpu", model="demo", profile="smoke")
    assert {result.name for result in results} == {
        "Settings",
        "Names",
        "Device lock",
        "Quantization",
        "LoadGen",
        "vLLM build",
        "Scoring",
    }


def test_host_side_of_containers_does_not_check_container_limits(
    nvidia: Callable[..., list[CheckResult]], tmp_path: Path
) -> None:
    nvidia()
    names = {result.name for result in examined(tmp_path / "node", "h200", part=Part.HOST)}
    assert "GPUs" in names
    assert not names & {"Shared memory", "Locked memory", "LoadGen", "Scoring"}
