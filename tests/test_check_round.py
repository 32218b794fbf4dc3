"""The round by which `check` and `report` judge a tree that names none, and evidence that contradicts it."""

import json
import shutil
from collections.abc import Callable
from html import unescape
from pathlib import Path

import pytest
from command_line import CommandLine, Done
from golden import GOLDEN
from mutations import logged
from runs import write_run
from trees import (
    DESCRIPTION,
    PERFORMANCE,
    SUBMITTER,
    VARIANT,
    Kind,
    build_tree,
    log_text,
    performance_log,
    write,
    write_json,
)

from harness_llm.checker.check import Authority, Finding, Severity, check
from harness_llm.checker.tree_round import choose_round
from harness_llm.config.rules import load_round, round_names
from harness_llm.errors import ConfigError
from harness_llm.submission.places import PROFILE

V60 = Kind(load_round("v6.0"), VARIANT)


@pytest.fixture
def harness(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> CommandLine:
    return CommandLine(monkeypatch, capsys)


@pytest.fixture
def report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, harness: CommandLine) -> Callable[..., Done]:
    monkeypatch.setenv("HARNESS_LLM_WORKSPACE", str(tmp_path / "workspace"))
    return lambda *words: harness("report", *map(str, words), "--output", str(tmp_path / "report.html"))


def page(tmp_path: Path) -> str:
    return unescape((tmp_path / "report.html").read_text())


def named(tmp_path: Path, golden: str, name: str) -> Path:
    """A published tree in a folder of another name."""
    return Path(shutil.copytree(GOLDEN / golden, tmp_path / name))


def errors(tree: Path) -> list[Finding]:
    chosen = choose_round(tree)
    return [f for f in check(tree, load_round(chosen.name), chosen) if f.severity is Severity.ERROR]


@pytest.mark.parametrize("name", ["inference_results", "a-copy", "inference_results_{}", "submissions_{}-main", "{}"])
@pytest.mark.parametrize("round_", ["v5.1", "v6.0"])
def test_published_tree_is_judged_by_its_own_round(
    tmp_path: Path, harness: CommandLine, round_: str, name: str
) -> None:
    done = harness("check", str(named(tmp_path, round_, name.format(round_))))
    assert done.code == 0
    assert "0 errors, " in done.out
    assert done.err.startswith(f"by the rules of round {round_}: layout of ")
    assert f"seeds of {round_} in {3 if round_ == 'v5.1' else 2} performance logs" in done.err
    assert (f"folder name {name.format(round_)}" in done.err) == ("{}" in name)


@pytest.mark.parametrize(
    ("golden", "name", "round_", "found"),
    [
        ("v5.1", "inference_results_6.1", "v5.1", "folder name inference_results_6.1"),
        ("v6.0", "inference_results_v6.1", "v6.0", "folder name inference_results_v6.1"),
        ("v6.0-wrong-seeds", "v6.0-wrong-seeds", "v6.0", "seeds of v5.1 in 4 performance logs"),
    ],
)
def test_contradicting_evidence_is_one_finding(tmp_path: Path, golden: str, name: str, round_: str, found: str) -> None:
    tree = named(tmp_path, golden, name)
    assert choose_round(tree).name == round_
    (finding,) = errors(tree)
    assert (finding.rule, finding.path, finding.found) == ("round", ".", found)
    # The official checker reads no folder name.
    assert finding.authority == (Authority.CHECKER if finding.logs else Authority.CLAUSE)
    assert finding.expected.startswith(f"{round_}: layout of ")
    assert "--round v" in finding.hint


def test_seeds_of_two_rounds_are_one_finding_that_lists_the_logs(tmp_path: Path) -> None:
    tree = named(tmp_path, "v6.0", "tree")
    shutil.copytree(GOLDEN / "v6.0-wrong-seeds" / "closed" / "AMD", tree / "closed" / "AMD")
    (finding,) = errors(tree)
    assert (finding.rule, finding.found) == ("round", "seeds of v5.1 in 3 performance logs")
    assert finding.expected == "v6.0: layout of v6.0 and v6.1, seeds of v6.0 in 2 performance logs"
    assert finding.hint == "if the tree is of v5.1: --round v5.1; else run again with the LoadGen of v6.0"
    assert len(finding.logs) == 3
    assert all(log.startswith(f"{finding.path}/") and log.endswith(PERFORMANCE) for log in finding.logs)


def test_given_round_is_compared_with_the_logs_but_not_with_the_folder_name(
    tmp_path: Path, harness: CommandLine
) -> None:
    tree = str(named(tmp_path, "v6.0", "inference_results_v5.0"))
    done = harness("check", tree, "--round", "v6.0")
    assert (done.code, done.err) == (0, "by the rules of round v6.0: --round\n")
    done = harness("check", tree, "--round", "v6.1", "--json")
    (error,) = (finding for finding in json.loads(done.out)["findings"] if finding["severity"] == "error")
    assert (done.code, error["rule"], len(error["logs"])) == (1, "round", 2)
    assert error["found"] == "seeds of v6.0 in 2 performance logs"


def test_logs_with_unknown_seeds_are_of_the_rounds_with_their_loadgen_version(tmp_path: Path) -> None:
    tree = build_tree(tmp_path / "tree", "closed", ("Offline", "Server"), V60)
    for log in tree.rglob(PERFORMANCE):
        logged(effective_qsl_rng_seed=1)(log)
    assert choose_round(tree).name == "v6.1"  # LoadGen 6.0.15 has the seeds of v6.0 or of v6.1
    tree = Path(tree.rename(tmp_path / "inference_results_v6.0"))
    assert choose_round(tree).source == (
        "layout of v6.0 and v6.1, LoadGen 6.0.15 in 2 performance logs, folder name inference_results_v6.0"
    )
    for log in tree.rglob(PERFORMANCE):
        logged(loadgen_version="6.0.7 @ 0")(log)
    assert choose_round(Path(tree.rename(tmp_path / "tree"))).name == "v6.0"


def test_tree_with_logs_of_no_known_round_needs_the_option(tmp_path: Path, harness: CommandLine) -> None:
    tree = str(GOLDEN / "v4.1")
    done = harness("check", tree)
    assert done.code == 2
    assert "error: unknown round of the tree" in done.err
    assert "found: LoadGen 4.1 in 2 performance logs" in done.err
    assert "hint: rounds before v5.0 are not supported; for a tree of a later round: --round v5.1" in done.err
    assert harness("check", tree, "--round", "v5.0").code == 1


@pytest.mark.parametrize(
    ("folder", "declared", "round_"),
    [("tree", "", round_names()[-1]), ("tree", "v5.0", "v5.0"), ("v6.0", "v5.0", "v5.0"), ("v6.0", "", "v6.0")],
)
def test_tree_without_logs_is_judged_by_its_profile_or_folder_name(
    tmp_path: Path, folder: str, declared: str, round_: str
) -> None:
    home = tmp_path / folder / "open" / "Acme"
    home.mkdir(parents=True)
    if declared:
        write_json(home / PROFILE, {"profile": "valid", "round": declared})
    assert choose_round(tmp_path / folder).name == round_


def test_tree_with_unreadable_logs_has_no_readable_log(tmp_path: Path, harness: CommandLine) -> None:
    write(tmp_path / "tree/open/Acme/results/2xCPU/tiny/Offline" / PERFORMANCE, "no log")
    done = harness("check", str(tmp_path / "tree"))
    assert done.err == "by the rules of round v6.1: the newest, because the tree has no readable log\n"


@pytest.mark.parametrize("name", ["6.0", "V6.0", "v6.0"])
def test_round_is_accepted_in_each_spelling(harness: CommandLine, name: str) -> None:
    done = harness("check", str(GOLDEN / "v6.0"), "--round", name)
    assert (done.code, done.err) == (0, "by the rules of round v6.0: --round\n")


def test_report_to_a_folder_is_refused(tmp_path: Path, harness: CommandLine) -> None:
    done = harness("report", str(GOLDEN / "v6.0"), "--output", str(tmp_path))
    assert done.code == 2
    assert "error: a folder, not a file" in done.err
    assert f"where: {tmp_path}\n" in done.err
    assert list(tmp_path.iterdir()) == []


def test_own_tree_in_a_folder_of_another_round_is_an_error(tmp_path: Path) -> None:
    tree = build_tree(tmp_path / "inference_results_6.1", "closed")
    write_json(tree / "closed" / SUBMITTER / PROFILE, {"profile": "valid", "round": "v6.1"})
    assert errors(tree) == []
    (finding,) = errors(Path(tree.rename(tmp_path / "inference_results_6.0")))
    assert (finding.rule, finding.found) == ("round", "folder name inference_results_6.0")


@pytest.mark.parametrize("name", ["rocm6.0", "vllm-0.6.0", "6.0.1", "v6.05", "results-of-2026"])
def test_other_numbers_in_the_folder_name_are_no_round(tmp_path: Path, name: str) -> None:
    assert errors(build_tree(tmp_path / name, "closed")) == []


def test_tree_without_measurements_is_judged_by_its_seeds(tmp_path: Path) -> None:
    tree = named(tmp_path, "v5.1", "tree")
    shutil.rmtree(tree / "closed" / "AMD" / "measurements")
    assert {finding.rule for finding in errors(tree)} == {"measurements-file", "measurements-beside"}


def test_results_of_unjudged_benchmarks_are_evidence(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    write_json(tree / "closed" / SUBMITTER / DESCRIPTION, {})
    folder = tree / "closed" / SUBMITTER / "results/2xCPU/resnet/Offline"
    write(folder / PERFORMANCE, log_text(performance_log("Offline", V60)))
    assert choose_round(tree).name == "v6.0"


@pytest.mark.parametrize("below", ["closed", "closed/AMD", "closed/AMD/results", ".."])
@pytest.mark.parametrize("command", ["check", "report"])
def test_folder_in_or_above_a_tree_is_refused_with_the_tree(
    tmp_path: Path, harness: CommandLine, command: str, below: str
) -> None:
    tree = named(tmp_path, "v5.1", "tree")
    done = harness(command, str((tree / below).resolve()))
    assert done.code == 2
    assert f"hint: name {tree}\n" in done.err


def test_folder_without_submitters_is_refused(tmp_path: Path) -> None:
    (tmp_path / "tree" / "closed").mkdir(parents=True)
    for tree, what in ((tmp_path / "tree", "no submission tree"), (tmp_path / "none", "no such tree")):
        with pytest.raises(ConfigError, match=what) as caught:
            check(tree, V60.round)
        assert "closed/<submitter>/" in caught.value.expected
        assert caught.value.hint == "name the folder with closed/ or open/"


def test_report_is_judged_by_the_round_of_the_tree(tmp_path: Path, report: Callable[..., Done]) -> None:
    done = report(GOLDEN / "v5.1")
    source = (
        "by the rules of round v5.1: layout of v5.0 and v5.1, seeds of v5.1 in 3 performance logs, folder name v5.1"
    )
    assert (done.code, done.err) == (0, f"{source}\n")
    text = page(tmp_path)
    assert f"submission tree, checked {source}" in text
    assert "The check finds no error. 0 errors, 1 warning." in text
    assert f"harness-llm check {GOLDEN / 'v5.1'}<" in text


def test_report_uses_the_given_round(tmp_path: Path, report: Callable[..., Done]) -> None:
    done = report(GOLDEN / "v6.0", "--round", "v6.1")
    assert (done.code, done.err) == (0, "by the rules of round v6.1: --round\n")
    text = page(tmp_path)
    assert "2 results: 2 INVALID." in text
    assert "correct the errors below. 1 error, 1 warning." in text  # one finding on both results
    assert f"harness-llm check {GOLDEN / 'v6.0'} --round v6.1<" in text


def test_report_of_runs_refuses_a_round(tmp_path: Path, report: Callable[..., Done]) -> None:
    write_run(tmp_path / "workspace" / "build" / "logs", "Offline", "performance")
    done = report(tmp_path / "workspace" / "build" / "logs", "--round", "v6.1")
    assert done.code == 2
    assert "--round is for submission trees" in done.err
