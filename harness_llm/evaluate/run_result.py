"""What a finished LoadGen run is worth: its state, why, and its figures."""

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from harness_llm.config.assets import Assets
from harness_llm.config.benchmark import Benchmark, Sampling
from harness_llm.evaluate.accuracy_file import ACCURACY as ACCURACY_REPORT
from harness_llm.evaluate.accuracy_file import write as write_accuracy
from harness_llm.evaluate.compliance import TESTS, Evidence
from harness_llm.evaluate.decoding import decoder
from harness_llm.evaluate.gates import Gates, gates_for, judge
from harness_llm.evaluate.mbxp.container import require_mbxp
from harness_llm.evaluate.official.script_runner import evaluate, require_evaluator
from harness_llm.evaluate.official.scripts import EVALUATORS, Inputs
from harness_llm.evaluate.score import answers_by_index, score_answers
from harness_llm.loadgen.logs import ACCURACY, DETAIL, DetailLog, parse_detail, read_accuracy_log
from harness_llm.loadgen.prediction import OutputTokens
from harness_llm.protocol.token_store import open_store
from harness_llm.rules import BenchmarkRules, ComplianceTest
from harness_llm.runs.record import State

VERDICT = "LoadGen says INVALID"
# All that LoadGen gives as a reason where nothing but early stopping is against a run (loadgen/results.cc:672-695).
TOO_FEW = f"{VERDICT}: early_stopping_met is false"


@dataclass(frozen=True)
class RunResult:
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


def _verdict(reasons: list[str], metrics: dict[str, float], notes: list[str] | None = None) -> RunResult:
    return RunResult(State.INVALID if reasons else State.VALID, reasons, notes or [], metrics)


def after_losses(run_result: RunResult, test: str, losses: list[str]) -> RunResult:
    """`result` of a run that lost replicas: answers are as good as any, but no measurement is that of the system."""
    if not losses:
        return run_result
    if test == "accuracy":
        return replace(run_result, notes=run_result.notes + losses)
    return replace(run_result, state=State.DEGRADED, reasons=losses + run_result.reasons)


def judge_performance(run: Path) -> RunResult:
    """LoadGen's own verdict and figures."""
    log = parse_detail(run / DETAIL)
    reasons = [f"LoadGen error: {error}" for error in log.errors]
    if not log.valid:
        reasons += [f"{VERDICT}: {reason}" for reason in log.invalid_reasons or ["no reason given"]]
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
        variants: rules of the variants that a result may stand for, strictest first.
    """

    benchmark: Benchmark
    variants: Mapping[str, BenchmarkRules]
    assets: Assets

    @property
    def gates(self) -> dict[str, Gates]:
        """What the scores must reach, by variant."""
        reference = load_reference(self.assets.reference) if self.assets.reference else None
        return {name: gates_for(self.benchmark, rules, reference) for name, rules in self.variants.items()}

    def output_tokens(self, sampling: Sampling) -> OutputTokens:
        """Tokens per sample of the reference's answers, within what the gates allow.

        The limits of `sampling` where the answers are others: those of a stand-in, or answers cut by --set.
        """
        mean, within = next(iter(self.variants.values())).output_tokens, self.benchmark.accuracy.tokens_within
        if self.assets.reference:
            mean = load_reference(self.assets.reference)["TOKENS_PER_SAMPLE"]
        if self.benchmark.preparer == "stand-in" or mean > sampling.max_tokens:
            return OutputTokens(max(sampling.min_tokens, 1), sampling.max_tokens, sampling.max_tokens)
        return OutputTokens(mean * (1 - within), mean, min(mean * (1 + within), sampling.max_tokens))

    def require(self) -> None:
        """Raise EnvironmentMissing where something is lacking without which answers cannot be scored."""
        for method in set(self.benchmark.accuracy.scoring.values()):
            if method in EVALUATORS:
                require_evaluator(method)
            elif method == "mbxp":
                require_mbxp()

    def score(self, log: Path, test: str, samples: int) -> dict[str, float]:
        """Scores by metric of the answers in a mlperf_log_accuracy.json to the first `samples` that `test` asks."""
        accuracy = self.benchmark.accuracy
        if accuracy.scoring.get("") in EVALUATORS:
            inputs = Inputs(log, self.assets.source(test), self.assets.checkpoint, self.assets.livecodebench)
            return evaluate(accuracy.scoring[""], inputs, samples)
        store = open_store(self.assets.store(test))
        return score_answers(
            answers_by_index(read_accuracy_log(log), samples),
            store.targets()[:samples],
            store.kinds()[:samples],
            decoder(self.assets.checkpoint),
            accuracy,
            workers=len(os.sched_getaffinity(0)),
        )

    def verdicts(self, scores: Mapping[str, float]) -> dict[str, list[str]]:
        """The gates that `scores` miss, by variant."""
        return {
            name: [f"{verdict}" for verdict in judge(scores, gates) if not verdict.passed]
            for name, gates in self.gates.items()
        }

    def judge(self, run: Path, samples: int, *, enforce: bool) -> RunResult:
        """Score a run, write its accuracy.txt, hold it to the gates of any variant; else, unless enforced, note it."""
        log = parse_detail(run / DETAIL)
        scores = self.score(run / ACCURACY, "accuracy", samples)
        write_accuracy(run / ACCURACY_REPORT, scores)
        missed = self.verdicts(scores)
        lines = [f"accuracy of {name}: {line}" for name, failed in missed.items() for line in failed]
        binding = enforce and all(missed.values())
        reasons = [f"LoadGen error: {error}" for error in log.errors] + (lines if binding else [])
        tail = "" if enforce else " (not enforced at this profile)"
        return _verdict(reasons, scores, [] if binding else [line + tail for line in lines])


def load_reference(file: Path) -> dict[str, float]:
    """The scores of the original checkpoint, for a benchmark that is gated by them."""
    scores: dict[str, float] = json.loads(file.read_text())["scores"]
    return scores


def gather(
    log: Path, scenario: str, benchmark: Benchmark, test: ComplianceTest, score: Callable[[], Mapping[str, float]]
) -> Evidence:
    """What a run of a compliance test left in its mlperf_log_accuracy.json.

    Args:
        score: scores the answers by metric, in percent; asked for only by a test of accuracy.

    Raises:
        ConfigError: the log cannot be read.
    """
    return Evidence(
        answers=read_accuracy_log(log),
        scenario=scenario,
        eos_ids=benchmark.sampling.stop_token_ids,
        bounds=test.bounds,
        score=lambda: score()["EXACT_MATCH"],
    )


def judge_compliance(
    run: Path, name: str, test: ComplianceTest, evidence: Evidence, *, issued: int, enforce: bool
) -> RunResult:
    """Our own verification of a compliance test of `issued` queries, and the file that the checker wants.

    Bounds on scores and lengths bind only where accuracy does (`enforce`); that answers are true always binds.
    """
    log = parse_detail(run / DETAIL)
    verdict = TESTS[name](evidence)
    (run / test.verdict).write_text(verdict.render())
    failed = [f"{name}: {failure}" for failure in verdict.failures]
    binding = enforce or not test.bounds
    reasons = [f"LoadGen error: {error}" for error in log.errors] + (failed if binding else [])
    asked = min(test.audit["accuracy_log_sampling_target"], issued)
    found = len(evidence.answers)
    if found != asked or log.mode != "PerformanceOnly":
        reasons.append(f"{name}: {found} answers of mode {log.mode}, audit.config asks for {asked} in performance")
    return _verdict(reasons, {}, [] if binding else [f"{line} (not enforced at this profile)" for line in failed])
