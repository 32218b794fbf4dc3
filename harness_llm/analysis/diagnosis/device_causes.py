"""Devices: clocks that a power cap, the temperature or another limit reduces, or that are lower than of the others."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from harness_llm.analysis.diagnosis.causes import Cause
from harness_llm.analysis.diagnosis.finding import Finding
from harness_llm.analysis.diagnosis.robust import Floats
from harness_llm.analysis.diagnosis.run_data import Columns, RunData
from harness_llm.analysis.diagnosis.thresholds import BUSY, CLOCK_LOSS, THROTTLED

# GPUs under full load are at their power cap as a rule: only a lower clock makes it a cause.
_USUAL = "power cap"
_UNEXPLAINED = "lower clock than the other devices"


@dataclass(frozen=True)
class Throttled:
    """Throttling of one device under load.

    Attributes:
        share: of the seconds; `clock_loss` of the clock in them, against the fastest device.
    """

    device: str
    reason: str
    share: float
    clock_loss: float
    temperature_c: float
    power_w: float

    def __str__(self) -> str:
        return (
            f"{self.device}: {self.reason} in {self.share:.0%} of the seconds, clock {self.clock_loss:.0%} lower"
            + ("" if math.isnan(self.temperature_c) else f", {self.temperature_c:.0f} °C")
            + ("" if math.isnan(self.power_w) else f", {self.power_w:.0f} W")
        )


def throttled_devices(data: RunData) -> list[Throttled]:
    """The GPUs whose clocks were reduced while they were busy."""
    rows = data.devices
    if rows is None or data.queries is None:
        return []
    load = (rows["time_s"] >= data.window[0]) & (rows["time_s"] <= data.end_s)
    # Unknown utilisation counts as busy; GPUs that the run does not use are idle.
    load &= ~(rows["utilisation"] < BUSY.value) & ~np.isnan(rows["clock_mhz"])
    gpus = [load & (rows["device"] == name) for name in gpu_names(data)]
    used = [own for own in gpus if own.any()]
    fastest = max((float(np.quantile(rows["clock_mhz"][own], 0.9)) for own in used), default=0.0)
    return [found for own in used if (found := _throttled({name: rows[name][own] for name in rows}, fastest))]


def gpu_names(data: RunData) -> list[str]:
    """The GPUs of the node of LoadGen's process."""
    return [] if data.devices is None else sorted({name for name in data.devices["device"] if name.startswith("gpu-")})


def _throttled(rows: Columns, fastest: float) -> Throttled | None:
    """The throttling of one device, of its readings under load."""
    texts = [text or "" for text in rows["throttle"]]
    limited = np.array([bool(text) for text in texts])
    reasons = sorted({reason for text in texts if text for reason in text.split(", ")})
    if limited.mean() < THROTTLED.value:
        limited, reasons = np.ones(len(texts), dtype=bool), [_UNEXPLAINED]
    loss = 1 - _median(rows["clock_mhz"][limited]) / fastest
    if reasons in ([_USUAL], [_UNEXPLAINED]) and loss < CLOCK_LOSS.value:
        return None
    return Throttled(
        device=str(rows["device"][0]),
        reason=", ".join(reasons),
        share=float(limited.mean()),
        clock_loss=max(loss, 0.0),
        temperature_c=_median(rows["temperature_c"][limited]),
        power_w=_median(rows["power_w"][limited]),
    )


def _median(values: Floats) -> float:
    """The median of the known values; NaN without any."""
    known = values[~np.isnan(values)]
    return float(np.median(known)) if len(known) else math.nan


def throttling(data: RunData) -> Iterator[Finding]:
    """Devices whose clocks were reduced under load."""
    found = throttled_devices(data)
    if not found:
        return
    loss = sum(device.share * device.clock_loss for device in found) / len(gpu_names(data))
    hot = any("thermal" in device.reason for device in found)
    action = "improve the cooling" if hot else "raise the power cap or clock limit; harness-llm doctor lists both"
    yield Finding(
        Cause.THROTTLING,
        f"{found[0]}" + (f", and {len(found) - 1} more" if len(found) > 1 else ""),
        {device.device: str(device) for device in found},
        action,
        loss=loss,
        effect=f"{loss:.1%} of the clock of all devices",
    )


def replicas_of(data: RunData, device: str) -> str:
    """The replica that runs on `device`, if replicas take the devices in order."""
    config = data.settings["llm_config"]
    group = int(config.get("tensor_parallel_size") or 1) * int(config.get("pipeline_parallel_size") or 1)
    return f"replica-{int(device.removeprefix('gpu-')) // group}"
