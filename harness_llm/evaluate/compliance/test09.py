"""TEST09: length of the answers in performance mode (compliance/TEST09/run_verification.py)."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from harness_llm.evaluate.compliance.evidence import Evidence
from harness_llm.loadgen.logs import DamagedLog


@dataclass(frozen=True)
class Verdict:
    """Lengths of answers in tokens, and the bounds of their mean; a mean equal to a bound passes."""

    lengths: Sequence[int]
    least: float
    most: float

    @property
    def mean(self) -> float:
        """Mean length of the answers in tokens."""
        return sum(self.lengths) / len(self.lengths)

    @property
    def long_enough(self) -> bool:
        """Whether the mean reaches the lower bound."""
        return self.mean >= self.least

    @property
    def short_enough(self) -> bool:
        """Whether the mean is within the upper bound."""
        return self.mean <= self.most

    @property
    def passed(self) -> bool:
        """Whether the mean is within both bounds."""
        return self.long_enough and self.short_enough

    @property
    def failures(self) -> list[str]:
        """The mean and its bounds, if it is outside them."""
        text = f"mean answer length {self.mean:.2f} tokens, outside {self.least:.10g} to {self.most:.10g}"
        return [] if self.passed else [text]

    def render(self) -> str:
        """Text of verify_output_len.txt, in which the official checker searches TEST PASS."""
        return (
            f"Total samples: {len(self.lengths)}\n"
            f"Mean output tokens: {self.mean:.2f}\n"
            f"Min output tokens: {min(self.lengths)}\n"
            f"Max output tokens: {max(self.lengths)}\n"
            f"Std deviation: {statistics.pstdev(self.lengths):.2f}\n"
            f"Min threshold: {self.least}\n"
            f"Max threshold: {self.most}\n"
            f"Min check pass: {self.long_enough}\n"
            f"Max check pass: {self.short_enough}\n"
            f"TEST {'PASS' if self.passed else 'FAIL'}\n"
        )


def verify(lengths: Sequence[int], bounds: Mapping[str, float]) -> Verdict:
    """Compare the mean of `lengths`, in tokens, with `min_output_tokens` and `max_output_tokens`.

    Raises:
        DamagedLog: `lengths` is empty.
    """
    if not lengths:
        raise DamagedLog("no answers in the log of TEST09", hint="run TEST09 with its audit.config")
    return Verdict(lengths, bounds["min_output_tokens"], bounds["max_output_tokens"])


def judge(evidence: Evidence) -> Verdict:
    """Judge a run."""
    return verify([len(answer.ids) for answer in evidence.answers], evidence.bounds)
