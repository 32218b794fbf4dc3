"""Accuracy and compliance of a column: scores against gates, verdicts, and the files that prove them."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from harness_llm.analysis.report.column import ACCURACY, PERFORMANCE, Column
from harness_llm.analysis.report.wording import number, percent
from harness_llm.config.benchmark import Accuracy, load_benchmark
from harness_llm.config.rules.rounds import load_round
from harness_llm.errors import HarnessError
from harness_llm.evaluate.gates import Gates, GateVerdict, gates_for, judge
from harness_llm.evaluate.run_result import load_reference
from harness_llm.paths import Workspace
from harness_llm.prepare.preparation import preparation_of
from harness_llm.runs.record import Run, RunRecord

_MOST_TEXT = 4000  # characters of a verdict file


@dataclass(frozen=True)
class ScoreRow:
    """A score and one of its bounds; `variant` names the benchmark whose gate it is."""

    variant: str
    verdict: GateVerdict


@dataclass(frozen=True)
class Compliance:
    """A compliance run and the text of its verdict file."""

    test: str
    state: str
    reasons: list[str]
    text: str


@dataclass(frozen=True)
class Evidence:
    """The evidence of one column.

    Attributes:
        scores: of the accuracy run by metric.
        enforced: whether the profile enforces the gates.
        fault: why the gates are unknown.
    """

    scores: Mapping[str, float]
    rows: list[ScoreRow]
    enforced: bool
    compliance: list[Compliance]
    fault: str = ""

    @property
    def nearest(self) -> str:
        """The score that is nearest to its bound, in words; empty without bounds."""
        distances = [
            ((verdict.found / verdict.bound - 1) * (1 if verdict.side == "lower" else -1), row)
            for row in self.rows
            if (verdict := row.verdict).found is not None and verdict.bound
        ]
        if not distances:
            return ""
        distance, row = min(distances, key=lambda one: one[0])
        side = "within" if distance >= 0 else "outside"
        return (
            f"nearest gate: {row.verdict.metric} {number(row.verdict.found)}, {percent(abs(distance))} {side} its bound"
        )


def read_evidence(column: Column, workspace: Workspace) -> Evidence:
    """The evidence of `column`; without an accuracy run, its scores are empty."""
    record = column.runs[ACCURACY].record if ACCURACY in column.runs else None
    scores = record.metrics if record else {}
    fault, gates = "", {}
    if record and scores:
        try:
            gates = run_gates(record, workspace)
        except (HarnessError, OSError, ValueError) as error:
            fault = " ".join(str(error).split())
    rows = [ScoreRow(name, verdict) for name, own in gates.items() for verdict in judge(scores, own)]
    enforced = bool(record and record.run_facts.get("profile", {}).get("enforce_accuracy"))
    return Evidence(scores, rows, enforced, list(_compliance(column.runs)), fault)


def run_gates(record: RunRecord, workspace: Workspace) -> dict[str, Gates]:
    """The gates of an accuracy run by variant, by the rules of its round.

    Raises:
        HarnessError: the benchmark, the round or the reference scores are missing.
    """
    benchmark = load_benchmark(record.benchmark, workspace)
    if facts := record.run_facts.get("accuracy"):
        benchmark = benchmark.model_copy(update={"accuracy": Accuracy.model_validate(facts)})
    reference = None
    if benchmark.accuracy.reference:
        file = preparation_of(benchmark, workspace, int(record.run_facts["samples"])).assets.reference
        reference = load_reference(file) if file else None
    variants = load_round(record.round).variants(benchmark.variants)
    return {name: gates_for(benchmark, rules, reference) for name, rules in variants.items()}


def _compliance(runs: Mapping[str, Run]) -> Iterator[Compliance]:
    for test, run in runs.items():
        if test not in (PERFORMANCE, ACCURACY):
            yield Compliance(test, str(run.state), [*run.reasons, *run.notes], verdict_text(run.path))


def verdict_text(folder: Path) -> str:
    """The texts of the verdict files `verify_*.txt` in `folder`."""
    files = sorted(folder.glob("verify_*.txt"))
    return "\n".join(file.read_text(errors="replace") for file in files)[:_MOST_TEXT].strip()
