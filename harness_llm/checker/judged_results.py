"""Results of a tree with their findings: verdict, figure, accuracy."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from harness_llm.checker.findings import Finding, Severity
from harness_llm.checker.submission_tree import Log, Result, Tree
from harness_llm.errors import ConfigError
from harness_llm.evaluate.accuracy_file import ACCURACY, parse

_NS_PER_MS = 1e6


@dataclass(frozen=True)
class JudgedResult:
    """A result that the check judged.

    Attributes:
        benchmark: the submitter's name; `variant` is the benchmark whose rules apply.
        verdict: VALID or INVALID; `not judged` if the performance log cannot be read.
        figure: the figure that the official checker reads, in `unit`; None if the log does not have it.
        scores: scores in accuracy.txt that have a gate, by metric.
        errors: number of errors on files of the result, and on parts of the tree that it needs.
        warnings: number of warnings on files of the result.
    """

    division: str
    submitter: str
    system: str
    benchmark: str
    variant: str
    scenario: str
    verdict: str
    figure: float | None
    unit: str
    scores: Mapping[str, float]
    errors: int
    warnings: int


def judged_results(tree: Tree, findings: Sequence[Finding]) -> list[JudgedResult]:
    """The results to which the rules on results apply, with the numbers of their `findings`."""
    return [_judged(result, own) for result, own in findings_by_result(tree, findings) if result.judged]


def findings_by_result(tree: Tree, findings: Sequence[Finding]) -> Iterator[tuple[Result, list[Finding]]]:
    """All results of the tree, each with the findings that concern it; a finding may concern several results."""
    for submitter in tree.submitters:
        for result in submitter.results:
            yield result, [finding for finding in findings if _concerns(finding, result)]


def _concerns(finding: Finding, result: Result) -> bool:
    """Whether the finding is on a file of the result, or an error on a part of the tree that the result needs."""
    places = finding.logs or (finding.path,)
    needed = _needed(result) if finding.severity is Severity.ERROR else frozenset[str]()
    return any(_within(place, result) or place in needed for place in places)


def _within(place: str, result: Result) -> bool:
    """Whether `place` is in a folder of the result: all of them end with benchmark and scenario."""
    home = f"{result.submitter.division}/{result.submitter.name}/"
    return place.startswith(home) and f"/{result.system.name}/{result.benchmark.name}/{result.folder}/" in f"{place}/"


def _needed(result: Result) -> frozenset[str]:
    """The folders around the result, and the parts of the tree that all results of its system or submitter share."""
    submitter, tree = result.submitter, result.submitter.tree.path
    shared = (result.system.description_path, submitter.source_path, submitter.mapping_path)
    around = result.path.relative_to(tree).parents
    return frozenset(map(str, (*around, *(path.relative_to(tree) for path in shared))))


def loadgen_verdict(result: Result) -> str:
    """VALID or INVALID by LoadGen; `not judged` without a readable log."""
    try:
        return "VALID" if result.performance.detail.valid else "INVALID"
    except ConfigError:
        return "not judged"


def checked_verdict(result: Result, findings: Sequence[Finding]) -> str:
    """LoadGen's verdict; INVALID if one of the findings is an error."""
    loadgen, broken = loadgen_verdict(result), any(finding.severity is Severity.ERROR for finding in findings)
    return "INVALID" if loadgen == "VALID" and broken else loadgen


def _judged(result: Result, findings: Sequence[Finding]) -> JudgedResult:
    figure, unit = _figure(result.performance)
    return JudgedResult(
        division=result.submitter.division,
        submitter=result.submitter.name,
        system=result.system.name,
        benchmark=result.benchmark.name,
        variant=result.benchmark.variant,
        scenario=result.folder,
        verdict=checked_verdict(result, findings),
        figure=figure,
        unit=unit,
        scores=_scores(result),
        errors=sum(finding.severity is Severity.ERROR for finding in findings),
        warnings=sum(finding.severity is Severity.WARNING for finding in findings),
    )


def _figure(log: Log) -> tuple[float | None, str]:
    try:
        key = log.metric_keys[-1]
        value = log.detail.number(key)
    except (ConfigError, IndexError):  # no log, or a scenario without a figure
        return None, ""
    return (value, "tokens/s") if key.endswith("_tokens_per_second") else (value / _NS_PER_MS, "ms")


def _scores(result: Result) -> dict[str, float]:
    try:
        scores = parse((result.path / "accuracy" / ACCURACY).read_text(errors="replace"))
    except (ConfigError, OSError):
        return {}
    return {metric: scores[metric] for metric in result.rules.gates if metric in scores}
