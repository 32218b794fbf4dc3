"""Accuracy gates: lower and upper bounds of the scores of an accuracy run."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from harness_llm.config.benchmark import Benchmark
from harness_llm.config.rules.rounds import BenchmarkRules
from harness_llm.errors import EnvironmentMissing

_LENGTHS = ("TOKENS_PER_SAMPLE", "GEN_LEN")  # bounded on both sides


@dataclass(frozen=True)
class Gates:
    """Bounds by metric; a score equal to its bound passes."""

    lower: dict[str, float]
    upper: dict[str, float]


@dataclass(frozen=True)
class GateVerdict:
    """One score and one bound; `found` is None if the metric was not scored."""

    metric: str
    side: Literal["lower", "upper"]
    bound: float
    found: float | None

    @property
    def passed(self) -> bool:
        """Whether the score is within the bound; NaN is not."""
        if self.found is None:
            return False
        return self.found >= self.bound if self.side == "lower" else self.found <= self.bound

    def __str__(self) -> str:
        found = "not scored" if self.found is None else f"{self.found:.10g}"
        relation = "at least" if self.side == "lower" else "at most"
        return f"{self.metric} {'passes' if self.passed else 'fails'}: {found}, {relation} {self.bound:.10g}"


def gates_for(benchmark: Benchmark, rules: BenchmarkRules, reference_scores: Mapping[str, float] | None) -> Gates:
    """Gates of `benchmark`: relative to the scores of its reference if it has one, else from the round.

    Raises:
        EnvironmentMissing: the benchmark has a reference, and a score of it is missing.
    """
    accuracy = benchmark.accuracy
    if accuracy.reference is None:
        return Gates(dict(rules.gates), dict(rules.limits))
    scores = reference_scores or {}
    if missing := [metric for metric in accuracy.metrics if metric not in scores]:
        raise EnvironmentMissing(
            f"missing reference scores of {benchmark.name}",
            where=accuracy.reference,
            expected=", ".join(missing),
        )
    lengths: list[str] = [metric for metric in accuracy.metrics if metric in _LENGTHS]
    lower: dict[str, float] = {metric: scores[metric] * accuracy.share_of_reference for metric in accuracy.metrics}
    shortest = {metric: scores[metric] * (1 - accuracy.tokens_within) for metric in lengths}
    longest = {metric: scores[metric] * (1 + accuracy.tokens_within) for metric in lengths}
    return Gates(lower | shortest, longest)


def judge(scores: Mapping[str, float], gates: Gates) -> list[GateVerdict]:
    """Judge each bound; a run passes if all verdicts have passed."""
    lower = [GateVerdict(metric, "lower", bound, scores.get(metric)) for metric, bound in gates.lower.items()]
    upper = [GateVerdict(metric, "upper", bound, scores.get(metric)) for metric, bound in gates.upper.items()]
    return lower + upper
