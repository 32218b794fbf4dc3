"""TEST07, TEST09 and the common parts of compliance tests; test_test06.py has TEST06."""

import json
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harness_llm.config.inference_checkout import CHECKOUT_VARIABLE
from harness_llm.config.rules.rounds import load_round, round_names
from harness_llm.errors import ConfigError
from harness_llm.evaluate.compliance import TESTS, Evidence, Verdict, test07, test09
from harness_llm.loadgen.logs import Answer, read_accuracy_log

ROUND = load_round("v6.1")
THRESHOLD = 60.698
BOUNDS = {"min_output_tokens": 3.5, "max_output_tokens": 4.5}


@pytest.mark.parametrize(
    ("score", "passed"), [(60.698, True), (83.13, True), (60.6979, False), (0.0, False), (math.nan, False)]
)
def test_test07_compares_the_score_with_the_threshold(score: float, passed: bool) -> None:
    verdict = test07.Verdict(score, THRESHOLD)
    assert verdict.passed is passed
    assert verdict.failures == ([] if passed else [f"accuracy {score:.10g} below the threshold 60.698"])
    assert verdict.render() == (
        f"Accuracy score: {score}\nAccuracy threshold: 60.698\n"
        f"Accuracy check pass: {passed}\nTEST {'PASS' if passed else 'FAIL'}\n"
    )


@pytest.mark.parametrize(
    ("lengths", "failed"),
    [([4, 4], None), ([3, 4], None), ([4, 5], None), ([1, 7], None), ([3, 3, 4], "Min"), ([4, 5, 5], "Max")],
)
def test_test09_compares_the_mean_length_with_both_bounds(lengths: list[int], failed: str | None) -> None:
    verdict = test09.verify(lengths, BOUNDS)
    assert verdict.passed is (failed is None)
    assert len(verdict.failures) == (0 if verdict.passed else 1)
    lines = verdict.render().splitlines()
    assert [line for line in lines if line.endswith(" check pass: False")] == (
        [f"{failed} check pass: False"] if failed else []
    )
    assert lines[-1] == ("TEST PASS" if verdict.passed else "TEST FAIL")


def test_test09_failure_names_the_mean_and_the_bounds() -> None:
    assert test09.verify([3, 3, 4], BOUNDS).failures == [
        "mean answer length 3.33 tokens, outside 3.5 to 4.5"
    ]  # fmt: skip


def test_log_without_answers_is_refused() -> None:
    with pytest.raises(ConfigError, match="no answers in the log"):
        test09.verify([], BOUNDS)


def evidence(test: str, lengths: list[int], score: float = 61.0, eos: int = 2) -> Evidence:
    """Of an Offline run whose answers have `lengths`: 10, 11, 12 and so on."""
    ids = [np.arange(10, 10 + length, dtype=np.int32) for length in lengths]
    answers = [Answer(i, i, own, len(own), None) for i, own in enumerate(ids)]
    return Evidence(answers, "Offline", {eos}, ROUND.compliance[test].bounds, lambda: score)


@pytest.mark.parametrize(
    ("test", "good", "bad"),
    [
        ("TEST06", evidence("TEST06", [3]), evidence("TEST06", [3], eos=11)),
        ("TEST07", evidence("TEST07", [3]), evidence("TEST07", [3], score=60.0)),
        ("TEST09", evidence("TEST09", [1278, 1279]), evidence("TEST09", [1, 2])),
    ],
)
def test_passing_verdict_has_the_lines_that_the_checker_requires(test: str, good: Evidence, bad: Evidence) -> None:
    assert _holds(TESTS[test](good), test)
    assert not _holds(TESTS[test](bad), test)


def _holds(verdict: Verdict, test: str) -> bool:
    lines = verdict.render().splitlines()
    assert verdict.passed is (not verdict.failures)
    return verdict.passed and all(set(group) & set(lines) for group in ROUND.compliance[test].passes)


def test_only_test07_scores_answers() -> None:
    def scored() -> float:
        raise AssertionError

    for test in ("TEST06", "TEST09"):
        TESTS[test](Evidence(evidence(test, [3]).answers, "Offline", {2}, ROUND.compliance[test].bounds, scored))


def test_every_compliance_test_of_every_round_is_implemented() -> None:
    assert {test for name in round_names() for test in load_round(name).compliance} == set(TESTS)


@pytest.mark.parametrize("test", TESTS)
def test_audit_config_contains_the_settings_of_the_round(test: str) -> None:
    lines = ROUND.compliance[test].audit_config.splitlines()
    assert lines == [f"*.*.{key} = {value}" for key, value in ROUND.compliance[test].audit.items()]
    assert lines[0] == "*.*.mode = 2"


@pytest.mark.inference
class TestOfficialScripts:
    """compliance/TEST07|TEST09/run_verification.py on the same runs."""

    @pytest.mark.parametrize("score", [60.698, 60.6, 83.13, 0.0])
    def test_official_script_agrees_on_accuracy(self, tmp_path: Path, score: float) -> None:
        (tmp_path / "scores.txt").write_text(f"{{'exact_match': {score}}}\n")
        script = f"{sys.executable} -c \"print(open('{tmp_path / 'scores.txt'}').read())\""
        report = _official(tmp_path, "TEST07", "--accuracy-script", script, "--accuracy-threshold", str(THRESHOLD))
        assert [line for line in report if line.startswith(("Accuracy ", "TEST "))] == (
            test07.Verdict(score, THRESHOLD).render().splitlines()
        )

    @pytest.mark.parametrize("lengths", [[4, 4, 4, 4], [3, 4, 3, 4], [2, 2, 9, 1], [1, 1, 1, 1], [9, 9, 9, 9]])
    def test_official_script_agrees_on_length(self, tmp_path: Path, lengths: list[int]) -> None:
        bounds = ("--min-output-tokens", "3.5", "--max-output-tokens", "4.5")
        report = _official(tmp_path, "TEST09", *bounds, lengths=lengths)
        logged = [len(answer.ids) for answer in read_accuracy_log(tmp_path / "mlperf_log_accuracy.json")]
        ours = test09.verify(logged, BOUNDS).render().splitlines()
        assert list(dict.fromkeys(line for line in report if line in ours)) == ours


def _official(folder: Path, test: str, *arguments: str, lengths: Any = (2,)) -> list[str]:
    """The verdict of the official script, whose packed files are those of the round."""
    entries = [{"seq_id": i, "qsl_idx": i, "data": "0a000000" * n, "token_count": n} for i, n in enumerate(lengths)]
    (folder / "mlperf_log_accuracy.json").write_text(json.dumps(entries))
    for name in ("mlperf_log_detail.txt", "mlperf_log_summary.txt"):
        (folder / name).write_text("a log\n")
    script = Path(os.environ[CHECKOUT_VARIABLE]) / "compliance" / test / "run_verification.py"
    command = [sys.executable, str(script), "-c", str(folder), "-o", str(folder / "out"), *arguments]
    subprocess.run(command, cwd=folder, check=False, capture_output=True)
    packed, facts = folder / "out" / test, ROUND.compliance[test]
    found = {path.relative_to(packed).as_posix() for path in packed.rglob("*") if path.is_file()}
    assert found == {facts.verdict, *facts.packed}
    return (packed / facts.verdict).read_text().splitlines()
