import math
import re
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from golden import GOLDEN

from harness_llm.config.benchmark import Benchmark, load_benchmark
from harness_llm.config.rules.rounds import BenchmarkRules, load_round
from harness_llm.errors import ConfigError, EnvironmentMissing
from harness_llm.evaluate import accuracy_file as report
from harness_llm.evaluate.gates import Gates, gates_for, judge
from harness_llm.paths import Workspace

GOLDEN_REPORTS = sorted(GOLDEN.rglob("accuracy.txt"))
SCORES = {
    "ROUGE1": 44.4312,
    "ROUGE2": 22.0352,
    "ROUGEL": 28.6162,
    "TOKENS_PER_SAMPLE": 294.4,
    "GEN_NUM": 24576,
}


def test_official_checker_reads_accuracy_txt(tmp_path: Path) -> None:
    path = tmp_path / report.ACCURACY
    report.write(path, SCORES)
    assert path.read_text() == (
        "{'rouge1': 44.4312, 'rouge2': 22.0352, 'rougeL': 28.6162, 'tokens_per_sample': 294.4, 'gen_num': 24576}\n"
    )
    assert report.parse(path.read_text(), SCORES) == SCORES


@pytest.mark.parametrize(
    ("metric", "pattern"),  # the official checker's constants.py, ACC_PATTERN
    [
        ("EXACT_MATCH", r".*'exact_match':\s([\d.]+).*"),
        ("GSM8K", r".*'gsm8k':\s([\d.]+).*"),
        ("MBXP", r".*'mbxp':\s([\d.]+).*"),
        ("ROUGELSUM", r".*'rougeLsum':\s+'?([\d.]+)'?.*"),
        ("GEN_LEN", r".*'gen_len':\s([\d.]+).*"),
    ],
)
def test_official_checker_finds_every_metric(metric: str, pattern: str) -> None:
    scores = {"ROUGEL": 21.66661234, metric: 90.1335}
    found = re.match(pattern, report.render(scores))
    assert found
    assert float(found[1]) == 90.1335
    assert report.parse(report.render(scores), scores) == scores
    with pytest.raises(ConfigError, match=f"cannot read {metric}"):
        report.parse(report.render(scores).replace("90.1335", "np.float64(90.1335)"), scores)


@pytest.mark.parametrize("value", [np.float64(44.4), math.nan, math.inf, -1.0, 1e-05, 1e17])
def test_score_that_the_checker_misreads_is_not_written(tmp_path: Path, value: float) -> None:
    with pytest.raises(ConfigError, match="cannot read ROUGE2"):
        report.write(tmp_path / report.ACCURACY, SCORES | {"ROUGE2": value})
    assert not (tmp_path / report.ACCURACY).exists()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{'rouge1': np.float64(44.4)}", "cannot read ROUGE1"),
        ("{'rouge1': nan}", "cannot read ROUGE1"),
        ("{'rouge1': 4e-05}", "cannot read ROUGE1"),
        ("{'rouge1':44.4}", "cannot read ROUGE1"),
        ("{'rouge1': 4.4.4}", "ROUGE1 is not a number"),
        ('{"rouge1": 44.4}', "ROUGE1 is missing"),
        ("hash=abc", "ROUGE1 is missing"),
    ],
)
def test_text_that_the_checker_cannot_read_is_refused(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        report.parse(text, ["ROUGE1"])


def test_last_of_two_lines_counts() -> None:
    assert report.parse("{'rouge1': 1.5}\n{'rouge1': '2.5'}\nhash=ab\n") == {"ROUGE1": 2.5}


def test_published_accuracy_files_pass_the_gates() -> None:
    rules = load_round("v6.1").benchmark("llama2-70b-99.9")
    judged = [path for path in GOLDEN_REPORTS if "llama2-70b-99.9" in path.parts]
    assert judged
    for path in judged:
        scores = report.parse(path.read_text(), rules.gates, str(path))
        assert all(verdict.passed for verdict in judge(scores, Gates(rules.gates, rules.limits)))


@pytest.fixture(scope="module")
def rules() -> BenchmarkRules:
    return load_round("v6.1").benchmark("llama2-70b-99.9")


def benchmark(reference: str | None) -> Benchmark:
    demo = load_benchmark("demo", Workspace())
    return demo.model_copy(update={"accuracy": demo.accuracy.model_copy(update={"reference": reference})})


def test_gates_of_the_round_apply_without_a_reference(rules: BenchmarkRules) -> None:
    gates = gates_for(benchmark(None), rules, SCORES)
    assert gates == Gates(rules.gates, rules.limits)


def test_gates_are_a_share_of_the_reference_scores(rules: BenchmarkRules) -> None:
    scores = {"ROUGE1": 50.0, "ROUGE2": 20.0, "ROUGEL": 40.0, "TOKENS_PER_SAMPLE": 10.0}
    gates = gates_for(benchmark("demo/reference"), rules, scores)
    assert gates.lower == pytest.approx({"ROUGE1": 49.5, "ROUGE2": 19.8, "ROUGEL": 39.6, "TOKENS_PER_SAMPLE": 9.0})
    assert gates.upper == pytest.approx({"TOKENS_PER_SAMPLE": 11.0})


@pytest.mark.parametrize("scores", [None, {}, {"ROUGE1": 50.0, "ROUGEL": 40.0, "TOKENS_PER_SAMPLE": 10.0}])
def test_missing_reference_scores_are_refused(rules: BenchmarkRules, scores: dict[str, float] | None) -> None:
    with pytest.raises(EnvironmentMissing) as caught:
        gates_for(benchmark("demo/reference"), rules, scores)
    assert "ROUGE2" in caught.value.expected


@pytest.mark.parametrize(
    ("change", "failing"),
    [
        ({}, []),
        ({"ROUGE1": 44.3867688}, []),
        ({"ROUGE1": 44.3867}, ["ROUGE1 fails: 44.3867, at least 44.3867688"]),
        ({"TOKENS_PER_SAMPLE": 323.9}, ["TOKENS_PER_SAMPLE fails: 323.9, at most 323.895"]),
        ({"TOKENS_PER_SAMPLE": 265.0}, ["TOKENS_PER_SAMPLE fails: 265, at least 265.005"]),
        ({"ROUGE2": math.nan}, ["ROUGE2 fails: nan, at least 22.0131648"]),
        ({"ROUGEL": None}, ["ROUGEL fails: not scored, at least 28.5875838"]),
    ],
)
def test_failing_metric_is_named(rules: BenchmarkRules, change: Mapping[str, float | None], failing: list[str]) -> None:
    scores = {name: value for name, value in (SCORES | dict(change)).items() if value is not None}
    verdicts = judge(scores, Gates(rules.gates, rules.limits))
    assert [str(verdict) for verdict in verdicts if not verdict.passed] == failing
    assert len(verdicts) == 5
