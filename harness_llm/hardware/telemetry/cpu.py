"""The processors and memory of this node, from psutil and /sys."""

import time
from pathlib import Path

import psutil

from harness_llm.hardware.sysfs import read
from harness_llm.hardware.telemetry.reading import Reading

_MIB = 2**20
_SENSORS = ("coretemp", "k10temp", "zenpower")  # drivers of the processors' sensors; temp1 is the package's
# Each read may interrupt a core.
_MAX_CLOCKS = 8


class Cpu:
    """All processors of this node as one device."""

    def __init__(self, root: Path = Path("/")) -> None:
        """Find the files; `root` contains sys/."""
        policies = sorted((root / "sys/devices/system/cpu/cpufreq").glob("policy*/scaling_cur_freq"))
        self._clocks = policies[:: max(1, -(-len(policies) // _MAX_CLOCKS))]
        sensors = (root / "sys/class/hwmon").glob("hwmon*")
        self._temperatures = [sensor / "temp1_input" for sensor in sensors if read(sensor / "name") in _SENSORS]
        packages = sorted((root / "sys/class/powercap").glob("intel-rapl:*"))  # of AMD too
        self._energies = [package for package in packages if read(package / "name").startswith("package")]
        self._before: tuple[float, list[int]] | None = None
        psutil.cpu_percent()  # the next call returns the utilisation since this one

    def read(self) -> list[Reading]:
        """Return one reading."""
        clocks, temperatures = _numbers(self._clocks), _numbers(self._temperatures)
        return [
            Reading(
                device="cpu",
                power_w=self._power(),
                clock_mhz=sum(clocks) / len(clocks) / 1000 if clocks else None,
                temperature_c=max(temperatures) / 1000 if temperatures else None,
                memory_used_mib=psutil.virtual_memory().used / _MIB,
                utilisation=psutil.cpu_percent() / 100,
            )
        ]

    def _power(self) -> float | None:
        """Return the mean power of all packages since the last reading; most systems let only root read it."""
        now, energies = time.perf_counter(), _numbers([package / "energy_uj" for package in self._energies])
        before, self._before = self._before, (now, energies)
        if before is None or not energies or len(energies) != len(before[1]):
            return None
        used = [new - old for new, old in zip(energies, before[1], strict=True)]
        if any(energy < 0 for energy in used):  # the counter has wrapped
            return None
        return sum(used) / 1e6 / (now - before[0])

    def close(self) -> None:
        """Release nothing."""


def _numbers(files: list[Path]) -> list[int]:
    return [int(text) for text in map(read, files) if text.isdigit()]
