"""TEST07: accuracy of the answers in performance mode (compliance/TEST07/run_verification.py)."""

from dataclasses import dataclass

from harness_llm.evaluate.compliance.evidence import Evidence


@dataclass(frozen=True)
class Verdict:
    """Score in percent, and the threshold that it must reach; NaN fails."""

    score: float
    threshold: float

    @property
    def passed(self) -> bool:
        """Whether the score reaches the threshold."""
        return self.score >= self.threshold

    @property
    def failures(self) -> list[str]:
        """The score and the threshold, if the score is too low."""
        return [] if self.passed else [f"accuracy {self.score:.10g} below the threshold {self.threshold:.10g}"]

    def render(self) -> str:
        """Text of verify_accuracy.txt, in which the official checker searches TEST PASS."""
        return (
            f"Accuracy score: {self.score}\n"
            f"Accuracy threshold: {self.threshold}\n"
            f"Accuracy check pass: {self.passed}\n"
            f"TEST {'PASS' if self.passed else 'FAIL'}\n"
        )


def judge(evidence: Evidence) -> Verdict:
    """Score the answers of a run and compare the score with the threshold."""
    return Verdict(evidence.score(), evidence.bounds["accuracy_threshold"])
