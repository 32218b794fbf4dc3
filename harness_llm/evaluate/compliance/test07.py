"""TEST07: performance mode answers as well as accuracy mode does (compliance/TEST07/run_verification.py)."""

from dataclasses import dataclass

from harness_llm.evaluate.compliance.evidence import Evidence


@dataclass(frozen=True)
class Verdict:
    """A score in percent against the least that passes; NaN does not."""

    score: float
    threshold: float

    @property
    def passed(self) -> bool:
        """Whether the score is high enough."""
        return self.score >= self.threshold

    @property
    def failures(self) -> list[str]:
        """The score and the threshold, if it is missed."""
        return [] if self.passed else [f"the answers score {self.score:.10g}, at least {self.threshold:.10g} is right"]

    def render(self) -> str:
        """verify_accuracy.txt, which the official checker searches for TEST PASS."""
        return (
            f"Accuracy score: {self.score}\n"
            f"Accuracy threshold: {self.threshold}\n"
            f"Accuracy check pass: {self.passed}\n"
            f"TEST {'PASS' if self.passed else 'FAIL'}\n"
        )


def verify(score: float, threshold: float) -> Verdict:
    """Hold the score of the logged answers, in percent, to `threshold`."""
    return Verdict(score, threshold)


def judge(evidence: Evidence) -> Verdict:
    """Verify a run; its answers are scored now."""
    return verify(evidence.score(), evidence.bounds["accuracy_threshold"])
