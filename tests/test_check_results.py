"""The list of judged results at the end of `check`."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from command_line import CommandLine
from golden import GOLDEN
from trees import (
    CLOSED,
    DESCRIPTION,
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
    write_json,
)

from harness_llm.analysis.report.report_page import report_page
from harness_llm.analysis.report.tree_results import read_tree
from harness_llm.checker.check import check
from harness_llm.checker.judged_results import JudgedResult, judged_results
from harness_llm.checker.results_report import render_results
from harness_llm.checker.submission_tree import Tree
from harness_llm.checker.tree_round import choose_round
from harness_llm.config.rules import Round, load_round
from harness_llm.paths import Workspace
from harness_llm.submission.places import PROFILE

GPTJ = Kind(load_round("v5.0"), "gptj-99.9")
EDGE = Kind(ROUND, "llama3.1-8b-edge")


def judged(tree: Path, rules: Round = ROUND) -> list[JudgedResult]:
    return judged_results(Tree(tree, rules), check(tree, rules))


def add_submitter(tree: Path, name: str) -> None:
    """Copy the closed submission of SUBMITTER as one of `name`."""
    home = Path(shutil.copytree(tree / "closed" / SUBMITTER, tree / "closed" / name))
    write(home / DESCRIPTION, (home / DESCRIPTION).read_text().replace(SUBMITTER, name))


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


@pytest.mark.parametrize(
    "fault",
    [
        lambda home: (home / DESCRIPTION).unlink(),
        lambda home: write(home / DESCRIPTION, "{"),
        lambda home: write(home / DESCRIPTION, (home / DESCRIPTION).read_text().replace('"closed"', '"open"')),
        lambda home: shutil.rmtree(home / "src"),
        lambda home: shutil.rmtree(home / CLOSED / "Server"),
        lambda home: [file.unlink() for file in home.glob("documentation/calibration*")],
        lambda home: home.parents[1].rename(home.parents[2] / "inference_results_v6.0"),
    ],
)
def test_error_outside_the_result_makes_its_results_invalid(tmp_path: Path, fault: Callable[[Path], object]) -> None:
    tree = build_tree(tmp_path / "tree", "closed")
    write_json(tree / "closed" / SUBMITTER / PROFILE, {"profile": "valid", "round": ROUND.round})
    add_submitter(tree, "Bolt")
    fault(tree / "closed" / SUBMITTER)
    (tree,) = tmp_path.iterdir()
    chosen = choose_round(tree)
    found = judged_results(Tree(tree, ROUND), check(tree, ROUND, chosen))
    whole_tree = tree.name != "tree"
    assert {(r.verdict, r.errors) for r in found if r.submitter == SUBMITTER} == {("INVALID", 1)}
    assert {(r.verdict, r.errors) for r in found if r.submitter == "Bolt"} == {
        ("INVALID", 1) if whole_tree else ("VALID", 0)
    }


def test_unreadable_mapping_makes_results_with_official_names_invalid(tmp_path: Path) -> None:
    tree = build_tree(tmp_path / "tree", "open", ("Offline",))
    home = Home(tree, "open")
    rename(home.benchmark, home.benchmark.with_name(VARIANT))
    write(home.path / "model_mapping.json", "{")
    assert [(result.verdict, result.errors) for result in judged(tree)] == [("INVALID", 1)]


def test_error_outside_the_results_is_shown_with_each_result_and_counted_once(tmp_path: Path) -> None:
    tree = build_tree(tmp_path / "tree", "closed")
    (tree / "closed" / SUBMITTER / DESCRIPTION).unlink()
    page = read_tree(choose_round(tree))
    assert [(result.state, len(result.findings)) for result in page.results] == [("INVALID", 1)] * 2
    assert page.findings == []
    text = report_page([tree], Workspace(tmp_path)).html
    assert "2 results: 2 INVALID." in text
    assert "1 error, 0 warnings." in text


def test_result_without_a_log_has_no_figure(tmp_path: Path) -> None:
    tree = build_tree(tmp_path / "tree", "closed")
    (tree / "closed" / SUBMITTER / SERVER / PERFORMANCE).unlink()
    result = judged(tree)[1]
    assert (result.verdict, result.figure, result.errors) == ("not judged", None, 1)
    assert "  not judged  " in render_results([result])


def test_findings_are_counted_for_results_of_their_submitter_and_division_only(tmp_path: Path) -> None:
    """Submitters may use the same name for a system, in several divisions."""
    tree = build_tree(tmp_path / "tree", "closed")
    add_submitter(tree, "Bolt")
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


def test_tree_of_unknown_benchmarks_has_0_results_judged(tmp_path: Path, harness: CommandLine) -> None:
    tree = build_tree(tmp_path / "tree", "closed")
    benchmark = Home(tree, "closed").benchmark
    rename(benchmark, benchmark.with_name("my-model"))
    assert harness("check", str(tree)).out.endswith("\n\n0 results judged\n\n1 error, 0 warnings\n\n")
