"""Official variants that a result is packaged as: all variants whose accuracy gates it meets."""

from collections.abc import Mapping

from harness_llm.config.rules.rounds import BenchmarkRules
from harness_llm.config.submission_names import Submission
from harness_llm.errors import GateFailed
from harness_llm.evaluate.gates import gates_for, judge

Scores = Mapping[str, Mapping[str, float]]
"""Scores of the accuracy runs, by scenario and metric."""


def packaged_variants(submission: Submission, scores: Scores) -> list[str]:
    """Benchmark names that the results are packaged as, strictest first.

    Closed requires all scenarios of a variant, so a gate that one scenario misses excludes the whole variant. Gates do
    not apply in open and to small runs. A mapped benchmark is packaged once, under its own name.

    Raises:
        GateFailed: the scores meet the gates of no variant.
        ConfigError: the round has no variant of the benchmark.
        EnvironmentMissing: the gates depend on the scores of a reference, which are not available here.
    """
    missed = _missed(submission, scores)
    if met := [variant for variant, gates in missed.items() if not gates]:
        return [name for name in submission.names if name in met or submission.benchmark.mapped]
    raise GateFailed(
        f"accuracy of {submission.benchmark.name} too low for round {submission.rules.round}",
        expected="scores that meet all gates of a variant in every scenario",
        found="\n         ".join(f"{variant}: {'; '.join(gates)}" for variant, gates in missed.items()),
        hint="the open division accepts results below the gates: --division open",
    )


def left_out(submission: Submission, scores: Scores) -> list[str]:
    """One sentence for each variant of the round whose gates the scores miss."""
    missed = _missed(submission, scores)
    return [f"not packaged as {variant}: {'; '.join(gates)}" for variant, gates in missed.items() if gates]


def _missed(submission: Submission, scores: Scores) -> dict[str, list[str]]:
    """Missed gates by variant of the round."""
    if submission.division == "open" or submission.small:
        return {variant: [] for variant in submission.variants}
    return {variant: _missed_gates(submission, rules, scores) for variant, rules in submission.variants.items()}


def _missed_gates(submission: Submission, rules: BenchmarkRules, scores: Scores) -> list[str]:
    gates = gates_for(submission.benchmark, rules, None)
    verdicts = ((scenario, verdict) for scenario, found in scores.items() for verdict in judge(found, gates))
    return [f"{scenario}, {verdict}" for scenario, verdict in verdicts if not verdict.passed]
