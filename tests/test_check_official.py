import os
from pathlib import Path

import pytest
from trees import EVERY_KIND, ROUND, VARIANT, build_tree, performance_log, scenarios_of, write_log

from harness_llm.check import check, exit_code
from harness_llm.check.official import CHECKOUT_VARIABLE, run_official
from harness_llm.errors import EnvironmentMissing

official = pytest.mark.skipif(
    CHECKOUT_VARIABLE not in os.environ,
    reason=f"{CHECKOUT_VARIABLE} names no checkout of mlcommons/inference",
)


def exit_codes(tree: Path) -> list[int]:
    return [v.exit_code for v in run_official(tree, ROUND.round, Path(os.environ[CHECKOUT_VARIABLE]))]


@official
@pytest.mark.parametrize(
    ("division", "scenarios"), [("open", ("Server",)), ("closed", ("Offline", "Server", "Interactive"))]
)
def test_the_official_checker_agrees_on_a_complete_tree(tmp_path, division, scenarios):
    tree = build_tree(tmp_path / "tree", division, scenarios)
    before = sorted(tmp_path.rglob("*"))
    assert check(tree, ROUND) == []
    assert exit_codes(tree) == [0, 0]
    assert sorted(tmp_path.rglob("*")) == before


@official
@pytest.mark.parametrize("division", ["closed", "open"])
@pytest.mark.parametrize(("kind", "category"), EVERY_KIND)
def test_the_official_checker_agrees_on_every_benchmark_of_every_round(tmp_path, kind, category, division):
    tree = build_tree(tmp_path, division, scenarios_of(kind, category), kind, category)
    verdicts = run_official(tree, kind.round.round, Path(os.environ[CHECKOUT_VARIABLE]))
    if kind.rules.offline_samples:
        assert [(v.exit_code, v.errors) for v in verdicts] == [(0, []), (0, [])]
    else:  # it looks the number up all the same, and takes its own KeyError for a fault of the result
        crashes = {e.rpartition("Running ")[2] for v in verdicts for e in v.errors if "Running " in e}
        missing_test06 = {"accuracy_check in ComplianceCheck"} if division == "closed" else set()  # rules/v5.0.yaml
        assert crashes == {"min_query_count_check in PerformanceCheck"} | missing_test06


@official
@pytest.mark.parametrize(
    ("values", "errors", "codes"),
    [
        ({"effective_qsl_rng_seed": 1}, (), [1, 1]),
        ({"result_validity": "INVALID"}, (), [0, 0]),
        ({}, ("queue overrun",), [0, 1]),
    ],
)
def test_what_the_official_checker_misses_is_found_here(tmp_path, values, errors, codes):
    tree = build_tree(tmp_path, "closed")
    run = tree / "closed/Acme/results/2xCPU" / VARIANT / "Server/performance/run_1"
    write_log(run, performance_log("Server") | values, errors)
    assert exit_codes(tree) == codes
    assert exit_code(check(tree, ROUND)) == 1


@official
def test_a_crash_of_the_official_checker_is_shown(tmp_path):
    tree = build_tree(tmp_path, "open")
    (tree / "open/Acme/systems/2xCPU.json").unlink()
    verdicts = run_official(tree, ROUND.round, Path(os.environ[CHECKOUT_VARIABLE]))
    assert [v.arguments for v in verdicts] == [(), ("--submission-exceptions",)]
    assert all(not v.passed and "AttributeError" in v.tail[-1] for v in verdicts)


def test_a_folder_without_the_checker_is_refused(tmp_path):
    with pytest.raises(EnvironmentMissing, match="not there") as error:
        run_official(tmp_path, ROUND.round, tmp_path)
    assert error.value.where == str(tmp_path / "tools" / "submission")
