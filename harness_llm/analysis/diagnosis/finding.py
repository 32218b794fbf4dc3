"""A finding of a diagnosis: a cause with its evidence and remedy."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from harness_llm.analysis.diagnosis.causes import CAUSES, Cause

_THOUSAND = 1000


def figure(value: float, digits: int = 3) -> str:
    """Return `value` with significant digits and without an exponent."""
    rounded = float(f"{value:.{digits}g}")
    return f"{rounded:,.0f}" if abs(rounded) >= _THOUSAND else f"{rounded:.{digits}g}"


@dataclass(frozen=True)
class Setting:
    """A setting to change.

    Attributes:
        name: key or option.
        now, following: its value, and the next value; empty if unknown.
        where: the file to edit; empty for an option.
    """

    name: str
    now: str = ""
    following: str = ""
    where: str = ""

    def __str__(self) -> str:
        text = self.name + (f" = {self.following}" if self.following else "")
        return text + (f" (now {self.now})" if self.now else "") + (f" in {self.where}" if self.where else "")


@dataclass(frozen=True)
class Finding:
    """A cause that holds for a run.

    Attributes:
        summary: one line with the most important figures.
        evidence: figures with units, by name.
        action: what to do.
        loss: estimated share of the throughput, or of the time above a limit; 0 if unknown.
        effect: the same in words.
        delay_s: seconds by which it delays a query at the end of the run; 0 if unknown.
        look: files to read.
        affected: the queries that it delays; None if it concerns all.
        because_of: causes that explain it.
    """

    cause: Cause
    summary: str
    evidence: dict[str, str]
    action: str
    settings: tuple[Setting, ...] = ()
    loss: float = 0.0
    effect: str = ""
    delay_s: float = 0.0
    look: tuple[str, ...] = ()
    affected: NDArray[np.bool_] | None = field(default=None, compare=False)
    because_of: tuple[Cause, ...] = ()

    @property
    def title(self) -> str:
        """The cause in words."""
        return CAUSES[self.cause].title

    @property
    def decides(self) -> bool:
        """Whether the run is not VALID because of it."""
        return CAUSES[self.cause].decides
