"""The list of judged results at the end of `check`."""

import json
import shutil
from pathlib import Path

import pytest
from command_line import CommandLine
from golden import GOLDEN
from trees import (
    PERFORMANCE,
    ROUND,
    SCORES_FILE,
    SERVER,
    SUBMITTER,
    SYSTEM,
    VARIANT,
    Home,
    Kind,
    build_tree,
    passing_scores,
    rename,
    scenarios_of,
    write,
)

from harness_llm.checker.check import check
from harness_llm.checker.judged_results import JudgedResult, judged_results
from harness_llm.checker.results_report import render_results
from harness_llm.checker.submission_tree import Tree
from harness_llm.config.rules import Round, load_round

GPTJ = Kind(load_round("v5.0"), "gptj-99.9")
EDGE = Kind(ROUND, "llama3.1-8b-edge")


def judged(tree: Path, rules: Round = ROUND) -> list[JudgedResult]:
    return judged_results(Tree(tree, rules), check(tree, rules))


@pytest.fixture
def harness(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> CommandLine:
    return CommandLine(monkeypatch, capsys)


def test_results_of_a_published_tree_are_listed_before_the_counts(harness: CommandLine) -> None:
    lines = harness("check", str(GOLDEN / "v6.0")).out.splitlines()
    scores = "ROUGE1 44.4213, ROUGE2 22.0278, ROUGEL 28.6475, TOKENS_PER_SAMPLE 296.1"
    assert [line.split() for line in lines[-6:]] == [
        ["submitter", "system", "benchmark", "scenario", "verdict", "result", "findings", "accuracy"],
        f"closed/MangoBoost 8xMI300X_2xEPYC_9534 {VARIANT} Offline VALID 27,598.70 tokens/s "
        f"0 errors, 0 warnings {scores}".split(),
        f"closed/MangoBoost 8xMI300X_2xEPYC_9534 {VARIANT} Server VALID 25,463.10 tokens/s "
        "0 errors, 0 warnings ROUGE1 44.4718, ROUGE2 22.0358, ROUGEL 28.668, TOKENS_PER_SAMPLE 295.1".split(),
        [],
        ["0", "errors,", "1", "warning"],
        [],
    ]
    assert len({line.index("VALID") for line in lines[-5:-3]}) == 1


def test_results_are_in_the_json(harness: CommandLine) -> None:
    document = json.loads(harness("check", str(GOLDEN / "v5.1"), "--json").out)
    assert (document["round"], document["round_source"][:25]) == ("v5.1", "layout of v5.0 and v5.1, ")
    assert [(result["scenario"], result["figure"], result["unit"]) for result in document["results"]] == [
        ("Interactive", 8840.42, "tokens/s"),
        ("Offline", 27803.9, "tokens/s"),
        ("Server", 24593.8, "tokens/s"),
    ]
    assert document["results"][0]["scores"]["ROUGE1"] == 44.4542


def test_result_with_an_error_is_invalid_and_counted(tmp_path: Path) -> None:
    tree = build_tree(tmp_path / "tree", "closed")
    write(tree / "closed" / SUBMITTER / SERVER / SCORES_FILE, "no score")
    offline, server = judged(tree)
    assert (offline.verdict, offline.errors, offline.warnings) == ("VALID", 0, 0)
    assert (server.verdict, server.scores) == ("INVALID", {})
    assert server.errors == 1 + len(passing_scores(Kind(ROUND, VARIANT)))  # the hash, and each metric


def test_result_without_a_log_has_no_figure(tmp_path: Path) -> None:
    tree = build_tree(tmp_path / "tree", "closed")
    (tree / "closed" / SUBMITTER / SERVER / PERFORMANCE).unlink()
    result = judged(tree)[1]
    assert (result.verdict, result.figure, result.errors) == ("not judged", None, 1)
    assert "  not judged  " in render_results([result])


def test_findings_are_counted_for_results_of_their_submitter_and_division_only(tmp_path: Path) -> None:
    """Submitters may use the same name for a system, in several divisions."""
    tree = build_tree(tmp_path / "tree", "closed")
    shutil.copytree(tree / "closed" / SUBMITTER, tree / "closed" / "Bolt")
    Home(tree, "closed").performance("Server", result_validity="INVALID")
    assert [(result.submitter, result.errors) for result in judged(tree)] == [
        (SUBMITTER, 0),
        (SUBMITTER, 1),
        ("Bolt", 0),
        ("Bolt", 0),
    ]


def test_name_in_the_open_division_is_shown_with_its_benchmark(tmp_path: Path) -> None:
    results = judged(build_tree(tmp_path / "tree", "open", ("Offline",)))
    assert f" {SYSTEM} tiny as {VARIANT} Offline VALID " in " ".join(render_results(results).split())


def test_figure_is_the_one_that_the_official_checker_reads(tmp_path: Path) -> None:
    inferred = build_tree(tmp_path / "gptj", "closed", ("Offline", "Server"), GPTJ)
    assert [(r.figure, r.unit) for r in judged(inferred, GPTJ.round)] == [
        (50.0 * 69, "tokens/s"),
        (pytest.approx(49.9 * 69), "tokens/s"),
    ]
    edge = build_tree(tmp_path / "edge", "closed", scenarios_of(EDGE, "edge"), EDGE, "edge")
    assert [(r.scenario, r.figure, r.unit) for r in judged(edge)] == [
        ("Offline", 50.0 * 295, "tokens/s"),
        ("SingleStream", 1000.0, "ms"),
    ]


def test_results_out_of_scope_are_not_listed(tmp_path: Path) -> None:
    tree = build_tree(tmp_path / "tree", "closed")
    benchmark = Home(tree, "closed").benchmark
    rename(benchmark, benchmark.with_name("resnet"))
    assert judged(tree) == []
    assert render_results([]) == ""
