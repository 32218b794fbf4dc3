"""Telemetry of devices: vendors' libraries are stubs, /sys is a folder."""

import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pynvml
import pytest
from machines import write_root

from harness_llm.hardware.telemetry.amd import Amd
from harness_llm.hardware.telemetry.cpu import Cpu
from harness_llm.hardware.telemetry.nvidia import Nvidia
from harness_llm.hardware.telemetry.reading import Reading
from harness_llm.hardware.telemetry.sampler import Sampler, open_sources

UNSUPPORTED = object()


def stub_nvml(monkeypatch: pytest.MonkeyPatch, **values: Any) -> None:
    """NVML with two GPUs; a value of UNSUPPORTED raises."""
    known = {
        "PowerUsage": 512_300,
        "ClockInfo": {pynvml.NVML_CLOCK_SM: 1755, pynvml.NVML_CLOCK_MEM: 3201},
        "Temperature": 64,
        "MemoryInfo": SimpleNamespace(used=130 * 2**30),
        "UtilizationRates": SimpleNamespace(gpu=97),
        "CurrentClocksEventReasons": 0,
    } | values

    def getter(value: Any) -> Any:
        def get(handle: int, *arguments: int) -> Any:
            if value is UNSUPPORTED:
                raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
            return value[arguments[0]] if isinstance(value, Mapping) else value

        return get

    monkeypatch.setattr(pynvml, "nvmlInit", lambda: None)
    monkeypatch.setattr(pynvml, "nvmlShutdown", lambda: None)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetCount", lambda: 2)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetHandleByIndex", lambda index: index)
    for name, value in known.items():
        monkeypatch.setattr(pynvml, f"nvmlDeviceGet{name}", getter(value))


def test_nvidia_gpu_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    stub_nvml(monkeypatch)
    first, second = Nvidia().read()
    assert second == Reading(
        device="gpu-1",
        power_w=512.3,
        clock_mhz=1755,
        memory_clock_mhz=3201,
        temperature_c=64,
        memory_used_mib=130 * 1024,
        utilisation=0.97,
        throttle="",
    )
    assert first.device == "gpu-0"


@pytest.mark.parametrize(
    ("bits", "reasons"),
    [
        (0x1, ""),  # idle
        (0x4, "power cap"),
        (0x8 | 0x40, "hardware slowdown, hardware thermal"),
        (UNSUPPORTED, None),
    ],
)
def test_nvidia_throttle_reasons(monkeypatch: pytest.MonkeyPatch, bits: Any, reasons: str | None) -> None:
    stub_nvml(monkeypatch, CurrentClocksEventReasons=bits)
    assert Nvidia().read()[0].throttle == reasons


def test_unsupported_figures_of_nvidia_are_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    stub_nvml(monkeypatch, PowerUsage=UNSUPPORTED, UtilizationRates=UNSUPPORTED, MemoryInfo=UNSUPPORTED)
    reading = Nvidia().read()[0]
    assert (reading.power_w, reading.utilisation, reading.memory_used_mib) == (None, None, None)
    assert reading.temperature_c == 64


class AmdSmiError(Exception):
    pass


def stub_amdsmi(metrics: list[Mapping[str, Any]], **values: Any) -> SimpleNamespace:
    """amdsmi with one MI300X; `metrics` are those of each reading."""

    def activity(_: str) -> Mapping[str, Any]:
        raise AmdSmiError

    functions = {
        "init": lambda: None,
        "shut_down": lambda: None,
        "get_processor_handles": lambda: ["0000:05:00.0"],
        "get_power_info": lambda _: {"current_socket_power": 749, "average_socket_power": "N/A"},
        "get_clock_info": lambda _, kind: {"clk": {"GFX": 2100, "MEM": 1300}[kind], "max_clk": 9},
        "get_temp_metric": lambda *_: 88,
        "get_gpu_vram_usage": lambda _: {"vram_total": 196592, "vram_used": 180000},
        "get_gpu_activity": activity,
        "get_gpu_metrics_info": lambda _: metrics.pop(0),
    }
    return SimpleNamespace(
        AmdSmiException=AmdSmiError,
        AmdSmiClkType=SimpleNamespace(GFX="GFX", MEM="MEM"),
        AmdSmiTemperatureType=SimpleNamespace(HOTSPOT=1),
        AmdSmiTemperatureMetric=SimpleNamespace(CURRENT=0),
        **{f"amdsmi_{name}": function for name, function in functions.items()},
    )


def test_amd_gpu_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = {"ppt_residency_acc": 10, "hbm_thm_residency_acc": 5, "socket_thm_residency_acc": "N/A"}
    metrics = [limits, limits | {"ppt_residency_acc": 12}, limits | {"ppt_residency_acc": 12}]
    monkeypatch.setitem(sys.modules, "amdsmi", stub_amdsmi(metrics))
    source = Amd()
    first, second, third = (source.read()[0] for _ in range(3))
    assert first == Reading(
        device="gpu-0",
        power_w=749,
        clock_mhz=2100,
        memory_clock_mhz=1300,
        temperature_c=88,
        memory_used_mib=180000,
        utilisation=None,
        throttle=None,
    )
    assert (second.throttle, third.throttle) == ("power cap", "")


def test_processors_are_read_from_sys(tmp_path: Path) -> None:
    root = write_root(
        tmp_path,
        {
            **{f"sys/devices/system/cpu/cpufreq/policy{n}/scaling_cur_freq": "3000000" for n in range(20)},
            "sys/class/hwmon/hwmon0/name": "nvme",
            "sys/class/hwmon/hwmon0/temp1_input": "99000",
            "sys/class/hwmon/hwmon1/name": "k10temp",
            "sys/class/hwmon/hwmon1/temp1_input": "61500",
            "sys/class/powercap/intel-rapl:0/name": "package-0",
            "sys/class/powercap/intel-rapl:0/energy_uj": "1000000",
            "sys/class/powercap/intel-rapl:0:0/name": "core",
            "sys/class/powercap/intel-rapl:0:0/energy_uj": "7",
        },
    )
    begin, source = time.perf_counter(), Cpu(root)
    [first] = source.read()
    assert (first.device, first.clock_mhz, first.temperature_c, first.power_w) == ("cpu", 3000, 61.5, None)
    assert first.memory_used_mib
    assert first.utilisation is not None
    energy = root / "sys/class/powercap/intel-rapl:0/energy_uj"
    energy.write_text("51000000")
    [second] = source.read()
    assert second.power_w
    assert second.power_w >= 50 / (time.perf_counter() - begin)
    energy.write_text("5")  # the counter has wrapped
    assert source.read()[0].power_w is None


def test_processors_without_sensors(tmp_path: Path) -> None:
    [reading] = Cpu(tmp_path).read()
    assert (reading.clock_mhz, reading.temperature_c, reading.power_w) == (None, None, None)


def test_sources_of_a_machine_without_drivers(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_driver() -> None:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_LIBRARY_NOT_FOUND)

    monkeypatch.setattr(pynvml, "nvmlInit", no_driver)
    monkeypatch.setitem(sys.modules, "amdsmi", None)
    assert [type(source) for source in open_sources()] == [Cpu]


def test_sampler_returns_samples_in_order_and_closes_its_sources() -> None:
    enough, closed = threading.Event(), threading.Event()

    class Source:
        def __init__(self) -> None:
            self.count = 0

        def read(self) -> list[Reading]:
            self.count += 1
            if self.count == 3:
                enough.set()
            return [Reading(device="gpu-0", power_w=self.count)]

        def close(self) -> None:
            closed.set()

    sampler = Sampler(lambda: [Source()], interval_s=0.01)
    sampler.start()
    assert enough.wait(60)
    samples = sampler.stop()
    assert closed.is_set()
    assert [reading.power_w for _, reading in samples][:3] == [1, 2, 3]
    times = [at for at, _ in samples]
    assert times == sorted(times)
