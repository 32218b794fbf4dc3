"""AMD GPUs, by amdsmi of the ROCm installation."""

import importlib
from collections.abc import Callable, Mapping
from typing import Any

from harness_llm.hardware.telemetry.reading import Reading

# Time spent in a limit, which amdgpu accumulates since gpu_metrics 1.5 (MI300). amdsmi_get_violation_status would wait
# 0.1 s for each GPU.
_THROTTLES = {
    "ppt_residency_acc": "power cap",
    "prochot_residency_acc": "hardware slowdown",
    "socket_thm_residency_acc": "socket thermal",
    "vr_thm_residency_acc": "voltage regulator thermal",
    "hbm_thm_residency_acc": "memory thermal",
}
# The first is of ROCm 7; MI300 has no average, older GPUs have no current power.
_POWERS = ("socket_power", "current_socket_power", "average_socket_power")


class Amd:
    """All AMD GPUs of this node."""

    def __init__(self) -> None:
        """Load amdsmi.

        Raises:
            ImportError, OSError: it is not installed.
            RuntimeError: no driver.
        """
        self._smi: Any = importlib.import_module("amdsmi")
        try:
            self._smi.amdsmi_init()
        except self._smi.AmdSmiException as error:
            raise RuntimeError(str(error)) from error
        self._handles = self._smi.amdsmi_get_processor_handles()
        self._limited: dict[int, Mapping[str, float]] = {}

    def read(self) -> list[Reading]:
        """Return a reading of each GPU."""
        return [self._reading(number, handle) for number, handle in enumerate(self._handles)]

    def close(self) -> None:
        """Release amdsmi."""
        self._smi.amdsmi_shut_down()

    def _reading(self, number: int, handle: Any) -> Reading:
        smi, kinds = self._smi, self._smi.AmdSmiClkType
        power = self._fields(smi.amdsmi_get_power_info, handle)
        busy = self._fields(smi.amdsmi_get_gpu_activity, handle).get("gfx_activity")
        return Reading(
            device=f"gpu-{number}",
            power_w=next((power[name] for name in _POWERS if name in power), None),
            clock_mhz=self._fields(smi.amdsmi_get_clock_info, handle, kinds.GFX).get("clk"),
            memory_clock_mhz=self._fields(smi.amdsmi_get_clock_info, handle, kinds.MEM).get("clk"),
            temperature_c=self._temperature(handle),
            memory_used_mib=self._fields(smi.amdsmi_get_gpu_vram_usage, handle).get("vram_used"),
            utilisation=None if busy is None else busy / 100,
            throttle=self._throttle(number, handle),
        )

    def _fields(self, get: Callable[..., Mapping[str, Any]], *arguments: Any) -> dict[str, float]:
        """Return the numbers that `get` reports; amdsmi writes N/A for others."""
        try:
            fields = get(*arguments)
        except self._smi.AmdSmiException:
            return {}
        return {name: value for name, value in fields.items() if isinstance(value, int | float)}

    def _temperature(self, handle: Any) -> float | None:
        kind, metric = self._smi.AmdSmiTemperatureType.HOTSPOT, self._smi.AmdSmiTemperatureMetric.CURRENT
        try:
            return float(self._smi.amdsmi_get_temp_metric(handle, kind, metric))
        except self._smi.AmdSmiException:
            return None

    def _throttle(self, number: int, handle: Any) -> str | None:
        """Return the limits in which the GPU was since the last reading; None if unknown."""
        metrics = self._fields(self._smi.amdsmi_get_gpu_metrics_info, handle)
        now = {name: metrics[name] for name in _THROTTLES if name in metrics}
        before, self._limited[number] = self._limited.get(number), now
        if not now or before is None:
            return None
        return ", ".join(_THROTTLES[name] for name, value in now.items() if value > before.get(name, value))
