"""Results of finished LoadGen runs: state, reasons and metrics."""

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from harness_llm.config.assets import Assets
from harness_llm.config.benchmark import Benchmark, Sampling
from harness_llm.config.rules import BenchmarkRules, ComplianceTest
from harness_llm.evaluate.accuracy_file import ACCURACY as ACCURACY_REPORT
from harness_llm.evaluate.accuracy_file import write as write_accuracy
from harness_llm.evaluate.compliance import TESTS, Evidence
from harness_llm.evaluate.decoding import decoder
from harness_llm.evaluate.gates import Gates, gates_for, judge
from harness_llm.evaluate.mbxp.container import require_mbxp
from harness_llm.evaluate.official.script_runner import evaluate, require_accuracy_script
from harness_llm.evaluate.official.scripts import ACCURACY_SCRIPTS, Inputs
from harness_llm.evaluate.score import answers_by_index, score_answers
from harness_llm.loadgen.logs import ACCURACY, DETAIL, DetailLog, parse_detail, read_accuracy_log
from harness_llm.loadgen.prediction import OutputTokens
from harness_llm.protocol.token_store import open_store
from harness_llm.runs.record import State

VERDICT = "LoadGen result INVALID"
# The only reason in the log if early stopping alone makes a run INVALID (loadgen/results.cc:672-695).
TOO_FEW = f"{VERDICT}: early_stopping_met is false"


@dataclass(frozen=True)
class RunResult:
    """Result of one run.

    Attributes:
        reasons: why the run is not VALID.
        notes: warnings that do not change the state.
        metrics: values by name; names end with the unit.
    """

    state: State
    reasons: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    metrics: dict[str, float] = field(default_factory=dict)


def _run_result(reasons: list[str], metrics: dict[str, float], notes: list[str] | None = None) -> RunResult:
    return RunResult(State.INVALID if reasons else State.VALID, reasons, notes or [], metrics)


def judge_performance(run: Path) -> RunResult:
    """Read validity and metrics from LoadGen's log."""
    log = parse_detail(run / DETAIL)
    reasons = [f"LoadGen error: {error}" for error in log.errors]
    if not log.valid:
        reasons += [f"{VERDICT}: {reason}" for reason in log.invalid_reasons or ["no reason given"]]
    return _run_result(reasons, _metrics(log))


def _metrics(log: DetailLog) -> dict[str, float]:
    metrics = {
        "tokens_per_second": log.tokens_per_second,
        "samples_per_second": log.samples_per_second,
        "duration_s": log.duration_s,
        "p99_ttft_ms": log.p99_ttft_ms,
        "p99_tpot_ms": log.p99_tpot_ms,
    }
    return {name: value for name, value in metrics.items() if value is not None}


@dataclass(frozen=True)
class Scorer:
    """Scorer of the accuracy runs of one benchmark.

    Attributes:
        variants: rules of the variants that a result may be packaged as, strictest first.
    """

    benchmark: Benchmark
    variants: Mapping[str, BenchmarkRules]
    assets: Assets

    @property
    def gates(self) -> dict[str, Gates]:
        """Accuracy gates by variant."""
        return {name: gates_for(self.benchmark, rules, self.reference) for name, rules in self.variants.items()}

    @property
    def reference(self) -> dict[str, float]:
        """Scores of the reference model; empty for benchmarks whose gates the round has."""
        return load_reference(self.assets.reference) if self.assets.reference else {}

    def output_tokens(self, sampling: Sampling) -> OutputTokens:
        """Expected tokens per sample: the reference's mean and the range that the gates allow.

        For stand-ins, and for answers shortened by --set, the range of `sampling`.
        """
        mean, within = next(iter(self.variants.values())).output_tokens, self.benchmark.accuracy.tokens_within
        if self.assets.reference:
            mean = load_reference(self.assets.reference)["TOKENS_PER_SAMPLE"]
        if self.benchmark.preparer == "stand-in" or mean > sampling.max_tokens:
            return OutputTokens(max(sampling.min_tokens, 1), sampling.max_tokens, sampling.max_tokens)
        return OutputTokens(mean * (1 - within), mean, min(mean * (1 + within), sampling.max_tokens))

    def require(self) -> None:
        """Raise EnvironmentMissing if a program or package for scoring is missing."""
        for method in set(self.benchmark.accuracy.scoring.values()):
            if method in ACCURACY_SCRIPTS:
                require_accuracy_script(method)
            elif method == "mbxp":
                require_mbxp()

    def score(self, log: Path, test: str, samples: int) -> dict[str, float]:
        """Score the answers in a mlperf_log_accuracy.json to the first `samples` of the data set of `test`."""
        accuracy = self.benchmark.accuracy
        if accuracy.scoring.get("") in ACCURACY_SCRIPTS:
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

    def missed_gates(self, scores: Mapping[str, float]) -> dict[str, list[str]]:
        """Gates that `scores` miss, by variant."""
        return {
            name: [f"{verdict}" for verdict in judge(scores, gates) if not verdict.passed]
            for name, gates in self.gates.items()
        }

    def judge(self, run: Path, samples: int, *, enforce: bool) -> RunResult:
        """Score an accuracy run, write its accuracy.txt and judge it.

        The run passes if the scores meet the gates of at least one variant. If not `enforce`, missed gates are notes.
        """
        log = parse_detail(run / DETAIL)
        scores = self.score(run / ACCURACY, "accuracy", samples)
        write_accuracy(run / ACCURACY_REPORT, scores)
        missed = self.missed_gates(scores)
        lines = [f"accuracy of {name}: {line}" for name, failed in missed.items() for line in failed]
        binding = enforce and all(missed.values())
        reasons = [f"LoadGen error: {error}" for error in log.errors] + (lines if binding else [])
        suffix = "" if enforce else " (not enforced in this profile)"
        return _run_result(reasons, scores, [] if binding else [line + suffix for line in lines])


def load_reference(file: Path) -> dict[str, float]:
    """Read the scores of the original checkpoint, which are the reference of the gates."""
    scores: dict[str, float] = json.loads(file.read_text())["scores"]
    return scores


def gather(
    log: Path, scenario: str, benchmark: Benchmark, test: ComplianceTest, score: Callable[[], Mapping[str, float]]
) -> Evidence:
    """Collect the evidence of a compliance run from its mlperf_log_accuracy.json.

    Args:
        score: returns the scores of the answers by metric, in percent; called only by tests of accuracy.

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
    """Judge a compliance run of `issued` queries and write the verdict file that the checker reads.

    Bounds on scores and lengths apply only if accuracy gates do (`enforce`); consistency of answers always does.
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
        reasons.append(f"{name}: {found} answers in mode {log.mode}; audit.config requires {asked} in PerformanceOnly")
    return _run_result(reasons, {}, [] if binding else [f"{line} (not enforced in this profile)" for line in failed])
