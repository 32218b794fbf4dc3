"""The targets between which a search has found the highest VALID one. Pure."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple


class Verdict(NamedTuple):
    """The verdict of a trial at a target; that of a run of full length counts."""

    target: float
    valid: bool
    full: bool


@dataclass(frozen=True)
class Bracket:
    """Targets of trials.

    Attributes:
        valid: the highest VALID one; 0 without.
        invalid: the lowest INVALID one above it; infinite without.
        contrary: the lowest INVALID one at or below `valid`, because runs vary; infinite without.
    """

    valid: float
    invalid: float
    contrary: float = math.inf

    def __str__(self) -> str:
        parts = [f"{self.valid:g} VALID" if self.valid else "no VALID target"]
        parts += [f"{self.invalid:g} INVALID"] if self.invalid < math.inf else []
        contrary = f"; contrary to that, {self.contrary:g} INVALID" if self.contrary < math.inf else ""
        return ", ".join(parts) + contrary


def bracket(verdicts: Sequence[Verdict]) -> Bracket:
    """Return the bracket of trials; an INVALID run of full length refutes VALID probes at or above its target."""
    refuted = min((one.target for one in verdicts if one.full and not one.valid), default=math.inf)
    highest = max((one.target for one in verdicts if one.valid and (one.full or one.target < refuted)), default=0.0)
    invalid = [one.target for one in verdicts if not one.valid]
    above = min((target for target in invalid if target > highest), default=math.inf)
    return Bracket(highest, above, min((target for target in invalid if target <= highest), default=math.inf))


def full_bracket(verdicts: Sequence[Verdict]) -> Bracket:
    """Return the bracket of the runs of full length."""
    return bracket([one for one in verdicts if one.full])
