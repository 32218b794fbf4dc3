"""What a finished LoadGen run is worth: its state, why, and its figures."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tokenizers import Tokenizer

from harness_llm.accuracy.gates import Gates, gates_for, judge
from harness_llm.accuracy.report import ACCURACY as ACCURACY_REPORT
from harness_llm.accuracy.report import write as write_accuracy
from harness_llm.accuracy.score import answers_by_index, score_answers
from harness_llm.benchmarks import Benchmark
from harness_llm.compliance import test06
from harness_llm.datasets.store import open_store
from harness_llm.loadgen.logs import ACCURACY, DETAIL, DetailLog, parse_detail, read_accuracy_log
from harness_llm.rules import BenchmarkRules
from harness_llm.runs import State


@dataclass(frozen=True)
class Outcome:
    """A verdict on one run.

    Attributes:
        reasons: why it is not VALID.
        notes: what the user should know though it is.
        metrics: figures by name, units in the name.
    """

    state: State
    reasons: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    metrics: dict[str, float] = field(default_factory=dict)


def _verdict(reasons: list[str], metrics: dict[str, float], notes: list[str] | None = None) -> Outcome:
    return Outcome(State.INVALID if reasons else State.VALID, reasons, notes or [], metrics)


def judge_performance(run: Path) -> Outcome:
    """LoadGen's own verdict and figures."""
    log = parse_detail(run / DETAIL)
    reasons = [f"LoadGen error: {error}" for error in log.errors]
    if not log.valid:
        reasons += [f"LoadGen says INVALID: {reason}" for reason in log.invalid_reasons or ["no reason given"]]
    return _verdict(reasons, _figures(log))


def _figures(log: DetailLog) -> dict[str, float]:
    figures = {
        "tokens_per_second": log.tokens_per_second,
        "samples_per_second": log.samples_per_second,
        "duration_s": log.duration_s,
        "p99_ttft_ms": log.p99_ttft_ms,
        "p99_tpot_ms": log.p99_tpot_ms,
    }
    return {name: value for name, value in figures.items() if value is not None}


@dataclass(frozen=True)
class Scorer:
    """Scores the answers of accuracy runs of one benchmark.

    Attributes:
        reference: scores of the original checkpoint, for benchmarks that are gated by them.
    """

    benchmark: Benchmark
    rules: BenchmarkRules
    store: Path
    tokenizer: Path
    samples: int
    reference: Mapping[str, float] | None

    @property
    def gates(self) -> Gates:
        """What the scores must reach."""
        return gates_for(self.benchmark, self.rules, self.reference)

    def score(self, log: Path) -> dict[str, float]:
        """Scores by metric of the answers in a mlperf_log_accuracy.json."""
        answers = answers_by_index(read_accuracy_log(log), self.samples)
        targets = open_store(self.store).targets()[: self.samples]
        tokenizer = Tokenizer.from_file(str(self.tokenizer))
        accuracy = self.benchmark.accuracy
        return score_answers(
            answers,
            targets,
            lambda ids: tokenizer.decode_batch(ids, skip_special_tokens=True),
            accuracy.metrics,
            accuracy.sentence_split,
        )

    def judge(self, run: Path, *, enforce: bool) -> Outcome:
        """Score a run, write its accuracy.txt, hold it to the gates; a gate that is not enforced is a note."""
        log = parse_detail(run / DETAIL)
        scores = self.score(run / ACCURACY)
        write_accuracy(run / ACCURACY_REPORT, scores)
        failed = [f"accuracy: {verdict}" for verdict in judge(scores, self.gates) if not verdict.passed]
        reasons = [f"LoadGen error: {error}" for error in log.errors] + (failed if enforce else [])
        notes = [f"{line} (not enforced at this profile)" for line in failed if not enforce]
        return _verdict(reasons, scores, notes)


def load_reference(file: Path) -> dict[str, float]:
    """The scores of the original checkpoint, for a benchmark that is gated by them."""
    scores: dict[str, float] = json.loads(file.read_text())["scores"]
    return scores


def judge_test06(run: Path, scenario: str, rules: BenchmarkRules, asked: int) -> Outcome:
    """Our own verification of TEST06 with `asked` answers, and the file that the checker wants."""
    log = parse_detail(run / DETAIL)
    verdict = test06.verify_log(run / ACCURACY, scenario, rules.eos_ids)
    (run / test06.VERDICT).write_text(test06.render(verdict))
    reasons = [f"LoadGen error: {error}" for error in log.errors] + [f"TEST06: {f}" for f in verdict.failures]
    found = len(read_accuracy_log(run / ACCURACY))
    if found != asked or log.mode != "PerformanceOnly":
        reasons.append(f"TEST06: {found} answers of mode {log.mode}, audit.config asks for {asked} in performance")
    return _verdict(reasons, {})
