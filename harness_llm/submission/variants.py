"""Official variants that a result is packaged as: all variants whose accuracy gates it meets."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from harness_llm.config.commands import typed
from harness_llm.config.rules.rounds import BenchmarkRules, ScenarioRules
from harness_llm.config.submission_names import Submission
from harness_llm.errors import GateFailed
from harness_llm.evaluate.gates import gates_for, judge

Scores = Mapping[str, Mapping[str, float]]
"""Scores of the accuracy runs, by scenario and metric."""
Remaining = Mapping[str, Collection[str]]
"""Scenarios that remain in the tree, by benchmark name."""


@dataclass(frozen=True)
class _Variant:
    """One variant and the scenarios of the result.

    Attributes:
        met: scenarios that meet its gates; those in the tree are in its folder.
        missed: why the other scenarios are not packaged as this variant, by scenario.
    """

    name: str
    rules: ScenarioRules
    met: Collection[str]
    missed: Mapping[str, str]

    @property
    def left_out(self) -> bool:
        """Whether closed requires a scenario that misses it."""
        alternatives = self.missed.keys() & self.rules.one_of
        none_left = bool(alternatives) and not set(self.rules.one_of).intersection(self.met)
        return none_left or bool(self.missed.keys() & self.rules.required)

    @property
    def reasons(self) -> str:
        """`missed` in one line."""
        return "; ".join(f"{scenario}, {reason}" for scenario, reason in self.missed.items())


def packaged_variants(submission: Submission, scores: Scores, remaining: Remaining) -> dict[str, list[str]]:
    """Scenarios of `scores` by the benchmark names that they are packaged as, strictest name first.

    A scenario that misses a gate of a variant is not packaged as this variant. If closed requires the scenario, nothing
    is. Gates do not apply in open and to small runs. A mapped benchmark is packaged once, under its own name.

    Raises:
        GateFailed: a scenario would be packaged as no variant.
        ConfigError: the round has no variant of the benchmark.
        EnvironmentMissing: the gates depend on the scores of a reference, which are not available here.
    """
    variants = _variants(submission, scores, remaining)
    packaged = {v.name: [name for name in scores if name in v.met] for v in variants if not v.left_out}
    if packaged and all(any(scenario in found for found in packaged.values()) for scenario in scores):
        return {submission.benchmark.name: list(scores)} if submission.benchmark.mapped else packaged
    raise GateFailed(
        f"accuracy of {submission.benchmark.name} too low for round {submission.rules.round}",
        expected="scores that meet all gates of a variant in every scenario",
        found="\n         ".join(f"{variant.name}: {variant.reasons}" for variant in variants),
        hint=_together(submission, scores, remaining)
        + f"the open division accepts results below the gates: {typed(division='open')}",
    )


def _together(submission: Submission, scores: Scores, remaining: Remaining) -> str:
    """A command that judges the scenarios in the tree by their scores, not by their folders."""
    if not remaining:
        return ""
    scenarios = [*(name for found in remaining.values() for name in found), *scores]
    return (
        f"{submission.together('package', scenarios)}, with the other options of the runs, packages all of them; or: "
    )


def left_out(submission: Submission, scores: Scores, remaining: Remaining) -> list[str]:
    """One sentence for each variant of the round, or scenario of a variant, that is not packaged."""
    notices = []
    for variant in _variants(submission, scores, remaining):
        if variant.left_out:
            notices.append(f"not packaged as {variant.name}: {variant.reasons}")
        else:
            missed = {scenario: reason for scenario, reason in variant.missed.items() if scenario in scores}
            notices += [f"{scenario} not packaged as {variant.name}: {reason}" for scenario, reason in missed.items()]
    return notices


def _variants(submission: Submission, scores: Scores, remaining: Remaining) -> list[_Variant]:
    return [_variant(submission, name, rules, scores, remaining) for name, rules in submission.variants.items()]


def _variant(
    submission: Submission, name: str, rules: BenchmarkRules, scores: Scores, remaining: Remaining
) -> _Variant:
    own = remaining.get(submission.benchmark.name if submission.benchmark.mapped else name, ())
    missed: dict[str, str] = {}
    if submission.division != "open" and not submission.small:
        missed = _missed_gates(submission, rules, scores)
        for other, scenarios in remaining.items():
            missed |= {scenario: f"packaged as {other} only" for scenario in scenarios if scenario not in own}
    met = [scenario for scenario in (*scores, *own) if scenario not in missed]
    return _Variant(name, rules.scenarios.get(submission.category, ScenarioRules(required=())), met, missed)


def _missed_gates(submission: Submission, rules: BenchmarkRules, scores: Scores) -> dict[str, str]:
    gates = gates_for(submission.benchmark, rules, None)
    fails = {
        name: [str(verdict) for verdict in judge(found, gates) if not verdict.passed] for name, found in scores.items()
    }
    return {scenario: "; ".join(verdicts) for scenario, verdicts in fails.items() if verdicts}
