"""The targets between which a search has found the highest VALID one. Pure."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from harness_llm.pipeline.tuning.search_steps import Measurement


@dataclass(frozen=True)
class Bracket:
    """Targets of trials.

    Attributes:
        valid: the highest VALID one; 0 without.
        invalid: the lowest INVALID one above it; infinite without.
    """

    valid: float
    invalid: float

    def __str__(self) -> str:
        parts = [f"{self.valid:g} VALID" if self.valid else "no VALID target"]
        return ", ".join([*parts, *([f"{self.invalid:g} INVALID"] if self.invalid < math.inf else [])])


def bracket(trials: Sequence[Measurement]) -> Bracket:
    """Return the bracket of `trials`; an INVALID run of full length refutes VALID probes at or above its target."""
    measured = [trial for trial in trials if not trial.failed]
    refuted = min((trial.target for trial in measured if trial.full and not trial.valid), default=math.inf)
    valid = [trial.target for trial in measured if trial.valid and (trial.full or trial.target < refuted)]
    highest = max(valid, default=0.0)
    invalid = [trial.target for trial in measured if not trial.valid and trial.target > highest]
    return Bracket(highest, min(invalid, default=math.inf))


def full_bracket(trials: Sequence[Measurement]) -> Bracket:
    """Return the bracket of the runs of full length, whose verdicts count."""
    return bracket([trial for trial in trials if trial.full])
