"""NVIDIA GPUs, by NVML (nvidia-ml-py), in the order of nvidia-smi."""

from collections.abc import Callable
from typing import Any

import pynvml

from harness_llm.hardware.telemetry.reading import Reading

_MIB = 2**20
# NVML's nvmlClocksEventReasons. Idle and clocks that an administrator has set are no throttling.
_THROTTLES = {
    pynvml.nvmlClocksEventReasonSwPowerCap: "power cap",
    pynvml.nvmlClocksEventReasonHwSlowdown: "hardware slowdown",
    pynvml.nvmlClocksEventReasonSyncBoost: "sync boost",
    pynvml.nvmlClocksEventReasonSwThermalSlowdown: "software thermal",
    pynvml.nvmlClocksEventReasonHwThermalSlowdown: "hardware thermal",
    pynvml.nvmlClocksEventReasonHwPowerBrakeSlowdown: "power brake",
}


class Nvidia:
    """All NVIDIA GPUs of this node."""

    def __init__(self) -> None:
        """Load NVML.

        Raises:
            pynvml.NVMLError: no driver.
        """
        pynvml.nvmlInit()
        self._handles = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(pynvml.nvmlDeviceGetCount())]

    def read(self) -> list[Reading]:
        """Return a reading of each GPU."""
        return [_reading(f"gpu-{index}", handle) for index, handle in enumerate(self._handles)]

    def close(self) -> None:
        """Release NVML."""
        pynvml.nvmlShutdown()


def _reading(device: str, handle: Any) -> Reading:
    power, memory = _known(pynvml.nvmlDeviceGetPowerUsage, handle), _known(pynvml.nvmlDeviceGetMemoryInfo, handle)
    utilisation = _known(pynvml.nvmlDeviceGetUtilizationRates, handle)
    return Reading(
        device=device,
        power_w=None if power is None else power / 1000,
        clock_mhz=_known(pynvml.nvmlDeviceGetClockInfo, handle, pynvml.NVML_CLOCK_SM),
        memory_clock_mhz=_known(pynvml.nvmlDeviceGetClockInfo, handle, pynvml.NVML_CLOCK_MEM),
        temperature_c=_known(pynvml.nvmlDeviceGetTemperature, handle, pynvml.NVML_TEMPERATURE_GPU),
        memory_used_mib=None if memory is None else memory.used / _MIB,
        utilisation=None if utilisation is None else utilisation.gpu / 100,
        throttle=_throttle(_known(pynvml.nvmlDeviceGetCurrentClocksEventReasons, handle)),
    )


def _known(get: Callable[..., Any], *arguments: Any) -> Any:
    """Return the result of `get`; None if the GPU or its driver does not report it."""
    try:
        return get(*arguments)
    except pynvml.NVMLError:
        return None


def _throttle(reasons: int | None) -> str | None:
    return None if reasons is None else ", ".join(name for bit, name in _THROTTLES.items() if reasons & bit)
