"""Checks of limits of processes and control groups, of the temporary folder and of driver versions."""

import os
from dataclasses import replace
from pathlib import Path

import pytest
from machines import write_root

from harness_llm.hardware.gpu_state import Devices
from harness_llm.pipeline.doctor.check_result import CheckResult, Level
from harness_llm.pipeline.doctor.gpu_checks import check_nvidia_driver, installed_cuda
from harness_llm.pipeline.doctor.host_checks import Limits, check_limits, check_temporary_folder, read_limits
from harness_llm.replicas.pool_folder import LONGEST_ROOT

GIB = 2**30


def limits(shared: int | None = 32 * GIB, group: int = 8, **soft: str) -> dict[str, CheckResult]:
    usual = {"Max_locked_memory": "unlimited", "Max_open_files": "65535", "Max_processes": "16384"}
    found = Limits(shared, {name.replace("_", " "): value for name, value in (usual | soft).items()})
    return {result.name: result for result in check_limits(found, group)}


@pytest.mark.parametrize(
    ("shared", "level"),
    [(32 * GIB, Level.OK), (2 * GIB, Level.WARNING), (64 * 2**20, Level.ERROR), (None, Level.NOT_CHECKED)],
)
def test_small_shared_memory_is_found(shared: int | None, level: Level) -> None:
    assert limits(shared)["Shared memory"].level is level


def test_replicas_of_one_device_need_no_shared_memory() -> None:
    assert "Shared memory" not in limits(64 * 2**20, group=1)


@pytest.mark.parametrize(
    ("soft", "name"),
    [
        ({"Max_locked_memory": "8388608"}, "Locked memory"),
        ({"Max_open_files": "1024"}, "Open files"),
        ({"Max_processes": "4096"}, "Processes"),
    ],
)
def test_low_limits_are_warnings_with_the_command(soft: dict[str, str], name: str) -> None:
    found = limits(**soft)
    assert [result.name for result in found.values() if result.level is Level.WARNING] == [name]
    assert "ulimit -" in found[name].hint


@pytest.mark.parametrize(
    ("groups", "files", "level"),
    [
        ("0::/job/step", {"job/cpu.max": "3200000 100000", "job/step/cpu.max": "max 100000"}, Level.WARNING),
        ("0::/", {"cpu.max": "3200000 100000"}, Level.WARNING),
        ("0::/job", {"job/cpu.max": "6400000 100000"}, Level.OK),
        ("0::/job", {"job/cpu.max": "max 100000"}, Level.OK),
        (
            "4:cpu,cpuacct:/pod\n3:cpuset:/pod",
            {"cpu/pod/cpu.cfs_quota_us": "1600000", "cpu/pod/cpu.cfs_period_us": "50000"},
            Level.WARNING,
        ),
        ("4:cpu,cpuacct:/pod", {"cpu/pod/cpu.cfs_quota_us": "-1", "cpu/pod/cpu.cfs_period_us": "100000"}, Level.OK),
        ("", {}, Level.OK),
    ],
)
def test_limit_of_cpu_time_is_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, groups: str, files: dict[str, str], level: Level
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(64)))
    own = {f"sys/fs/cgroup/{name}": text for name, text in files.items()}
    root = write_root(tmp_path, {"proc/self/cgroup": groups, **own})
    [found] = [result for result in check_limits(read_limits(root), 1) if result.name == "CPU time"]
    assert found.level is level
    assert level is Level.OK or found.found == "that of 32 CPUs, on 64"


def test_unreadable_limits_are_listed_as_not_checked() -> None:
    assert {result.level for result in check_limits(Limits(), 8) if result.name != "CPU time"} == {Level.NOT_CHECKED}
    assert replace(Limits(), shared_bytes=1).soft == {}


def test_temporary_folder_whose_path_is_too_long_for_sockets_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    assert list(check_temporary_folder()) == []
    monkeypatch.setattr("tempfile.tempdir", f"/tmp/{'x' * LONGEST_ROOT}")  # noqa: S108 - not used
    [result] = check_temporary_folder()
    assert (result.level, result.hint) == (Level.ERROR, "export TMPDIR=/tmp")


@pytest.mark.parametrize(
    ("driver", "cuda", "level"),
    [
        ("575.57.08", (12, 9), Level.OK),
        ("575.57.08", (13, 0), Level.ERROR),
        ("580.65.06", (13, 0), Level.OK),
        ("470.256.02", (12, 9), Level.ERROR),
        ("", (13, 0), Level.NOT_CHECKED),
    ],
)
def test_old_driver_is_an_error(driver: str, cuda: tuple[int, int], level: Level) -> None:
    assert check_nvidia_driver(Devices(driver=driver), cuda).level is level


def test_required_driver_follows_from_the_installed_pytorch() -> None:
    assert installed_cuda({"torch": "2.13.0+cu129"}) == (12, 9)
    assert installed_cuda({"torch": "2.13.0"}) == installed_cuda({}) == (13, 0)
