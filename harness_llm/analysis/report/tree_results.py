"""Results of a submission tree: verdicts, figures, accuracy, compliance and the findings of the check."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness_llm.analysis.report.accuracy_evidence import Compliance, ScoreRow, verdict_text
from harness_llm.analysis.report.column import Margin
from harness_llm.checker.check import check
from harness_llm.checker.findings import Finding, Severity
from harness_llm.checker.submission_tree import Result, Tree, declared_round
from harness_llm.config.rules.rounds import load_round, round_names
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
        metrics: figures by name, with units.
        faults: why a part cannot be read.
        findings: of the check, below the result's folders.
    """

    place: str
    verdict: str
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

    @property
    def state(self) -> str:
        """VALID only if LoadGen and the check have no objection."""
        broken = any(finding.severity is Severity.ERROR for finding in self.findings)
        return "INVALID" if self.verdict == "VALID" and broken else self.verdict


@dataclass(frozen=True)
class TreeReport:
    """A tree: its results, and findings on the tree itself."""

    path: Path
    round_name: str
    small: str
    results: Sequence[TreeResult]
    findings: Sequence[Finding]


def read_tree(path: Path) -> TreeReport:
    """Read and check the tree, by the rules of the round that it declares, else of the newest."""
    round_name = declared_round(path) or round_names()[-1]
    rules = load_round(round_name)
    tree, findings = Tree(path, rules), check(path, rules)
    results, used = [], set[int]()
    for submitter in tree.submitters:
        for result in submitter.results:
            own = [(number, one) for number, one in enumerate(findings) if _concerns(one, result)]
            used |= {number for number, _ in own}
            results.append(_read(result, [one for _, one in own]))
    return TreeReport(path, round_name, tree.small, results, [f for n, f in enumerate(findings) if n not in used])


def _concerns(finding: Finding, result: Result) -> bool:
    """Whether the finding is on a file of the result: all folders of a result end with benchmark and scenario."""
    return f"/{result.system.name}/{result.benchmark.name}/{result.folder}/" in f"/{finding.path}/"


def _read(result: Result, findings: Sequence[Finding]) -> TreeResult:
    faults: list[str] = []
    metrics: dict[str, float] = {}
    margins: list[Margin] = []
    verdict, reasons = "not judged", list[str]()
    try:
        detail = result.performance.detail
        verdict, reasons = "VALID" if detail.valid else "INVALID", detail.invalid_reasons
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
    return TreeResult(place, verdict, reasons, metrics, margins, scores, compliance, faults, findings)


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
