"""One reading of one device, and the interface of its source."""

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, kw_only=True)
class Reading:
    """Figures of one device, None where unknown; the fields are the columns of devices.parquet.

    Attributes:
        throttle: reasons, separated by commas; empty without throttling.
    """

    device: str
    power_w: float | None = None
    clock_mhz: float | None = None
    memory_clock_mhz: float | None = None
    temperature_c: float | None = None
    memory_used_mib: float | None = None
    utilisation: float | None = None
    throttle: str | None = None


class Source(Protocol):
    """Devices of one kind."""

    def read(self) -> list[Reading]:
        """Return a reading of each device."""

    def close(self) -> None:
        """Release the vendor's library."""
