"""Devices: clocks that a power cap, the temperature or another limit reduces, or that are lower than of the others."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from harness_llm.analysis.diagnosis.causes import Cause
from harness_llm.analysis.diagnosis.finding import Finding
from harness_llm.analysis.diagnosis.run_data import RunData
from harness_llm.analysis.diagnosis.thresholds import CLOCK_LOSS, THROTTLED

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
            f"{self.device}: {self.reason} in {self.share:.0%} of the seconds, clock {self.clock_loss:.0%} lower, "
            f"{self.temperature_c:.0f} °C, {self.power_w:.0f} W"
        )


def throttled_devices(data: RunData) -> list[Throttled]:
    """The GPUs whose clocks were reduced."""
    rows = data.devices
    if rows is None or data.queries is None:
        return []
    load = (rows["time_s"] >= data.window[0]) & (rows["time_s"] <= data.end_s)
    gpus = sorted({name for name in rows["device"] if str(name).startswith("gpu-")})
    clocks = {name: rows["clock_mhz"][load & (rows["device"] == name)] for name in gpus}
    known = [float(np.nanquantile(values, 0.9)) for values in clocks.values() if not np.isnan(values).all()]
    if not known:
        return []
    fastest = max(known)
    return [found for name in gpus if (found := _throttled(data, load & (rows["device"] == name), fastest))]


def _throttled(data: RunData, own: "np.ndarray[tuple[int], np.dtype[np.bool_]]", fastest: float) -> Throttled | None:
    rows = data.devices
    if rows is None or not own.any():
        return None
    texts = [text or "" for text in rows["throttle"][own]]
    limited = np.array([bool(text) for text in texts])
    share, clock = float(limited.mean()), rows["clock_mhz"][own]
    reasons = sorted({reason for text in texts if text for reason in text.split(", ")})
    if share < THROTTLED.value:
        limited, reasons = np.ones(len(texts), dtype=bool), [_UNEXPLAINED]
    loss = 1 - float(np.nanmedian(clock[limited])) / fastest
    usual = reasons in ([_USUAL], [_UNEXPLAINED])
    if (usual and loss < CLOCK_LOSS.value) or np.isnan(loss):
        return None
    temperature, power = rows["temperature_c"][own][limited], rows["power_w"][own][limited]
    name = str(rows["device"][own][0])
    return Throttled(
        name,
        ", ".join(reasons),
        float(limited.mean()),
        max(loss, 0.0),
        float(np.nanmedian(temperature)) if not np.isnan(temperature).all() else np.nan,
        float(np.nanmedian(power)) if not np.isnan(power).all() else np.nan,
    )


def throttling(data: RunData) -> Iterator[Finding]:
    """Devices whose clocks were reduced under load."""
    found = throttled_devices(data)
    if not found or data.devices is None:
        return
    devices = len({name for name in data.devices["device"] if str(name).startswith("gpu-")})
    loss = sum(device.share * device.clock_loss for device in found) / devices
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
