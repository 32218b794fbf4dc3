"""Devices: clocks that a power cap, the temperature or another limit reduces, or that are lower than of the others."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from harness_llm.analysis.diagnosis.causes import Cause
from harness_llm.analysis.diagnosis.finding import Finding
from harness_llm.analysis.diagnosis.robust import Floats
from harness_llm.analysis.diagnosis.run_data import Columns, RunData
from harness_llm.analysis.diagnosis.thresholds import BUSY, CLOCK_LOSS, THROTTLED
from harness_llm.config.commands import command
from harness_llm.config.engine_config import group_size

# GPUs under full load are at their power cap as a rule: only a lower clock makes it a cause.
_USUAL = "power cap"
_SELECTIONS = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES")
_UNEXPLAINED = "lower clock than the other devices"


@dataclass(frozen=True)
class Throttled:
    """Throttling of one device under load.

    Attributes:
        reasons: share of the seconds of each.
        share: of the seconds with any of them; `clock_loss` of the clock in them, against the fastest device.
    """

    device: str
    reasons: Mapping[str, float]
    share: float
    clock_loss: float
    temperature_c: float
    power_w: float

    def __str__(self) -> str:
        reasons = ", ".join(f"{reason} in {share:.0%}" for reason, share in self.reasons.items())
        return (
            f"{self.device}: {reasons} of the seconds, clock {self.clock_loss:.0%} lower"
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
    limits = _limits(rows)
    limited = np.logical_or.reduce(list(limits.values()))
    loss = 1 - _median(rows["clock_mhz"][limited]) / fastest
    if limits.keys() <= {_USUAL, _UNEXPLAINED} and loss < CLOCK_LOSS.value:
        return None
    return Throttled(
        device=str(rows["device"][0]),
        reasons={reason: float(own.mean()) for reason, own in limits.items()},
        share=float(limited.mean()),
        clock_loss=max(loss, 0.0),
        temperature_c=_median(rows["temperature_c"][limited]),
        power_w=_median(rows["power_w"][limited]),
    )


def _limits(rows: Columns) -> dict[str, NDArray[np.bool_]]:
    """The readings with each reason that is not too rare; all readings as unexplained without such a reason."""
    readings = [(text or "").split(", ") for text in rows["throttle"]]
    reasons = sorted({reason for own in readings for reason in own if reason})
    found = {reason: np.array([reason in own for own in readings]) for reason in reasons}
    often = {reason: own for reason, own in found.items() if own.mean() >= THROTTLED.value}
    return often or {_UNEXPLAINED: np.ones(len(readings), dtype=bool)}


def _median(values: Floats) -> float:
    """The median of the known values; NaN without any."""
    known = values[~np.isnan(values)]
    return float(np.median(known)) if len(known) else math.nan


def throttling(data: RunData) -> Iterator[Finding]:
    """Devices whose clocks were reduced under load."""
    found = throttled_devices(data)
    if not found:
        return
    loss = sum(device.share * device.clock_loss for device in found) / max(_devices(data), len(found))
    hot = any("thermal" in reason for device in found for reason in device.reasons)
    action = "improve the cooling" if hot else f"raise the power cap or clock limit; {command('doctor')} lists both"
    yield Finding(
        Cause.THROTTLING,
        f"{found[0]}" + (f", and {len(found) - 1} more" if len(found) > 1 else ""),
        {device.device: str(device) for device in found},
        action,
        loss=loss,
        effect=f"{loss:.1%} of the clock of all devices of the run",
        replicas=tuple(dict.fromkeys(filter(None, (_replica_of(data, device.device) for device in found)))),
    )


def _devices(data: RunData) -> int:
    """The devices of the run, on all nodes; of running servers, if they have the same llm_config."""
    return _replicas(data) * group_size(data.settings["llm_config"])


def _replicas(data: RunData) -> int:
    return len(_urls(data)) or int(data.settings["harness_config"]["replicas"])


def _urls(data: RunData) -> Sequence[str]:
    return (data.settings.get("server_config") or {}).get("url") or ()


def _replica_of(data: RunData, device: str) -> str:
    """The replica on `device`, if replicas take the devices of a single machine in order; else empty."""
    if _urls(data) or data.record.nodes.keys() - {""}:
        return ""
    inherited = data.record.fingerprint.get("inherited", {})
    selected = [inherited[name].split(",") for name in _SELECTIONS if name in inherited]
    number = device.removeprefix("gpu-")
    if len(selected) > 1 or (selected and number not in selected[0]):
        return ""
    replica = (selected[0].index(number) if selected else int(number)) // group_size(data.settings["llm_config"])
    return f"replica-{replica}" if replica < _replicas(data) else ""
