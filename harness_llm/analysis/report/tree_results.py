"""Results of a submission tree: verdicts, figures, accuracy, compliance and the findings of the check."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from harness_llm.analysis.report.accuracy_evidence import Compliance, ScoreRow, verdict_text
from harness_llm.analysis.report.column import Margin
from harness_llm.checker.check import check
from harness_llm.checker.findings import Finding, Severity
from harness_llm.checker.judged_results import checked_verdict, findings_by_result, loadgen_verdict
from harness_llm.checker.submission_tree import Result, Tree
from harness_llm.checker.tree_round import TreeRound
from harness_llm.config.rules.rounds import load_round
from harness_llm.errors import ConfigError
from harness_llm.evaluate.accuracy_file import ACCURACY, parse
from harness_llm.evaluate.gates import Gates, judge
from harness_llm.runs.record import State

_COMPLIANCE = "TEST*"
_LINES = 25  # of a verdict file


@dataclass(frozen=True)
class TreeResult:
    """One result.

    Attributes:
        verdict: of LoadGen; `not judged` for a result that was not measured with LoadGen.
        state: VALID only if LoadGen and the check have no objection.
        metrics: figures by name, with units.
        faults: why a part cannot be read.
        findings: of the check, that concern the result; several results may have the same one.
    """

    place: str
    verdict: str
    state: str
    reasons: Sequence[str]
    metrics: Mapping[str, float]
    margins: Sequence[Margin]
    scores: Sequence[ScoreRow]
    compliance: Sequence[Compliance]
    faults: Sequence[str]
    findings: Sequence[Finding]

    @property
    def gate_note(self) -> str:
        """Open results report their accuracy without gates (inference_rules.adoc:361)."""
        return "; the open division has no gates" if self.place.startswith("open/") else ""


@dataclass(frozen=True)
class TreeReport:
    """A tree: its results, and findings on the tree itself."""

    chosen: TreeRound
    small: str
    results: Sequence[TreeResult]
    findings: Sequence[Finding]


def read_tree(chosen: TreeRound) -> TreeReport:
    """Read and check the tree."""
    rules = load_round(chosen.name)
    tree, findings = Tree(chosen.tree, rules), check(chosen.tree, rules, chosen)
    results, used = [], set[Finding]()
    for result, own in findings_by_result(tree, findings):
        used.update(own)
        results.append(_read(result, own))
    return TreeReport(chosen, tree.small, results, [finding for finding in findings if finding not in used])


def _read(result: Result, findings: Sequence[Finding]) -> TreeResult:
    faults: list[str] = []
    metrics: dict[str, float] = {}
    margins: list[Margin] = []
    reasons = list[str]()
    try:
        detail = result.performance.detail
        reasons = detail.invalid_reasons
        figures = {
            "tokens/s": detail.tokens_per_second,
            "samples/s": detail.samples_per_second,
            "target (queries/s)": detail.target_qps,
            "duration (s)": detail.duration_s,
        }
        metrics = {name: value for name, value in figures.items() if value is not None}
        pairs = (
            ("p99 TTFT", detail.p99_ttft_ms, detail.requested_ttft_ms),
            ("p99 TPOT", detail.p99_tpot_ms, detail.requested_tpot_ms),
        )
        margins = [Margin(name, value, limit) for name, value, limit in pairs if value is not None and limit]
    except ConfigError as error:
        faults.append(error.line)
    submitter = result.submitter
    place = str(result.path.relative_to(submitter.tree.path)).replace("/results/", "/")
    scores, compliance = _scores(result, faults), list(_compliance(result, findings))
    verdict, state = loadgen_verdict(result), checked_verdict(result, findings)
    return TreeResult(place, verdict, state, reasons, metrics, margins, scores, compliance, faults, findings)


def _scores(result: Result, faults: list[str]) -> list[ScoreRow]:
    file = result.path / "accuracy" / ACCURACY
    if not file.is_file():
        faults.append(f"{ACCURACY} is missing")
        return []
    rules = result.benchmark.rules
    if rules is None:
        faults.append("the round has no gates for this benchmark")
        return []
    try:
        scores = parse(file.read_text(errors="replace"))
    except ConfigError as error:
        faults.append(error.line)
        return []
    gates = Gates(dict(rules.gates), dict(rules.limits))
    return [ScoreRow(result.benchmark.variant, verdict) for verdict in judge(scores, gates)]


def _compliance(result: Result, findings: Sequence[Finding]) -> Iterator[Compliance]:
    """The compliance tests of the result; INVALID with an error of the check in their folder."""
    parent = result.compliance("")
    for folder in sorted(parent.glob(_COMPLIANCE)) if parent.is_dir() else []:
        errors = [one for one in findings if one.severity is Severity.ERROR and f"/{folder.name}/" in f"/{one.path}/"]
        state = State.INVALID if errors else State.VALID
        lines = "\n".join(verdict_text(folder).splitlines()[:_LINES])
        yield Compliance(folder.name, str(state), [one.what for one in errors], lines)
