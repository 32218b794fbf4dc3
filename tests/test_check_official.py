import os
import runpy
from pathlib import Path
from typing import Any

import pytest
from golden import EVERY_GOLDEN
from trees import (
    EVERY_KIND,
    ROUND,
    SUBMITTER,
    VARIANT,
    Kind,
    R,
    build_tree,
    performance_log,
    scenarios_of,
    write_json,
    write_log,
)

from harness_llm.checker.check import Authority, Severity, check, exit_code
from harness_llm.checker.official import run_official
from harness_llm.config.inference_checkout import CHECKOUT_VARIABLE
from harness_llm.config.rules import load_round, round_names
from harness_llm.errors import EnvironmentMissing


@pytest.fixture(scope="module")
def constants() -> dict[str, Any]:
    checkout = Path(os.environ[CHECKOUT_VARIABLE])
    return runpy.run_path(str(checkout / "tools/submission/submission_checker/constants.py"))


@pytest.mark.inference
@pytest.mark.parametrize("name", round_names())
def test_every_model_of_the_official_checker_is_judged_or_listed_as_not_judged(constants, name):
    round_, model_config = load_round(name), constants["MODEL_CONFIG"][name]
    assert {*round_.benchmarks, *round_.not_judged} == set(model_config["models"])
    assert not {*round_.benchmarks} & {*round_.not_judged}
    assert model_config["model_mapping"].items() <= round_.aliases.items()
    assert {round_.offline_min_queries} == {
        minima["Offline"] for model, minima in model_config["min-queries"].items() if model in round_.benchmarks
    }


@pytest.mark.inference
@pytest.mark.parametrize("name", round_names())
def test_metrics_equal_those_of_the_official_checker(constants, name):
    round_ = load_round(name)
    for scenario, (rate, result) in round_.metrics.items():
        assert constants["RESULT_FIELD_NEW"][name][scenario] == rate
        fields = constants["RESULT_FIELD_BENCHMARK_OVERWRITE"][name]
        held = {b: r for b, r in round_.benchmarks.items() if r.token_latencies and scenario in fields[b]}
        assert {fields[b][scenario] for b in held} <= {result}


@pytest.mark.inference
@pytest.mark.parametrize("name", round_names())
def test_power_files_and_fields_equal_those_of_the_official_checker(constants, name):
    round_ = load_round(name)
    run = {*constants["REQUIRED_PERF_FILES"], *constants["REQUIRED_PERF_POWER_FILES"]}
    assert {folder: set(files.required) for folder, files in round_.power.items()} == {
        "power": set(constants["REQUIRED_POWER_FILES"]),
        "ranging": run,
        "run_1": run,
    }
    assert set(constants["OPTIONAL_PERF_FILES"]) <= set(round_.power["run_1"].optional)
    assert set(round_.system.power) == set(constants["SYSTEM_DESC_REQUIRED_FIELDS_POWER"])
    nameplate = constants["NAMEPLATE_POWER_PATH"].get(name, "")
    assert round_.nameplate_power == nameplate.removeprefix("{division}/{submitter}/")


def exit_codes(tree: Path) -> list[int]:
    return [v.exit_code for v in run_official(tree, ROUND.round, Path(os.environ[CHECKOUT_VARIABLE]))]


@pytest.mark.inference
@pytest.mark.parametrize(
    ("division", "scenarios"), [("open", ("Server",)), ("closed", ("Offline", "Server", "Interactive"))]
)
def test_official_checker_accepts_a_complete_tree(tmp_path, division, scenarios):
    tree = build_tree(tmp_path / "tree", division, scenarios)
    before = sorted(tmp_path.rglob("*"))
    assert check(tree, ROUND) == []
    assert exit_codes(tree) == [0, 0]
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.inference
@pytest.mark.parametrize("division", ["closed", "open"])
@pytest.mark.parametrize(("kind", "category"), EVERY_KIND)
def test_official_checker_accepts_every_benchmark_of_every_round(tmp_path, kind, category, division):
    tree = build_tree(tmp_path, division, scenarios_of(kind, category), kind, category)
    verdicts = run_official(tree, kind.round.round, Path(os.environ[CHECKOUT_VARIABLE]))
    if kind.rules.offline_samples:
        assert [(v.exit_code, v.errors) for v in verdicts] == [(0, []), (0, [])]
    else:  # it looks the number up all the same, and takes its own KeyError for a fault of the result
        crashes = {e.rpartition("Running ")[2] for v in verdicts for e in v.errors if "Running " in e}
        missing_test06 = {"accuracy_check in ComplianceCheck"} if division == "closed" else set()  # rules/v5.0.yaml
        assert crashes == {"min_query_count_check in PerformanceCheck"} | missing_test06
        found = {(f.rule, f.authority) for f in check(tree, kind.round)}
        gap, test06 = ("checker-gap", Authority.CHECKER), ("compliance", Authority.CHECKER)
        assert found == ({gap, test06} if division == "closed" else {gap})


@pytest.mark.inference
def test_official_checker_rejects_server_results_of_the_edge_benchmark(tmp_path):
    kind = Kind(ROUND, "llama3.1-8b-edge")
    tree = build_tree(tmp_path, "open", ("Server",), kind, "edge")
    assert exit_codes(tree) == [1, 1]
    assert [f.rule for f in check(tree, ROUND)] == ["checker-gap"]


@pytest.mark.inference
@pytest.mark.parametrize("name", ["llama2-70b-99", "whisper"])
def test_official_benchmark_name_is_not_mapped(tmp_path, name):
    """The official checker, too, judges a tree of such a name by the benchmark of that name."""
    kind = Kind(load_round("v6.0"), "llama3.1-8b")
    tree = build_tree(tmp_path, "open", ("Offline",), kind)
    home = tree / "open" / SUBMITTER
    (home / R / "tiny").rename(home / R / name)
    write_json(home / "model_mapping.json", {name: kind.variant})
    verdict, _ = run_official(tree, "v6.0", Path(os.environ[CHECKOUT_VARIABLE]))
    assert verdict.exit_code == 1
    found = {f.rule for f in check(tree, kind.round)}
    assert found == ({"scope"} if name == "whisper" else found | {"performance-samples", "accuracy-samples"})


@pytest.mark.inference
@pytest.mark.parametrize(
    ("values", "errors", "codes"),
    [
        ({"effective_qsl_rng_seed": 1}, (), [1, 1]),
        ({"result_validity": "INVALID"}, (), [0, 0]),
        ({}, ("queue overrun",), [0, 1]),
    ],
)
def test_faults_that_the_official_checker_accepts_are_errors(tmp_path, values, errors, codes):
    tree = build_tree(tmp_path, "closed")
    run = tree / "closed/Acme/results/2xCPU" / VARIANT / "Server/performance/run_1"
    write_log(run, performance_log("Server") | values, errors)
    assert exit_codes(tree) == codes
    assert exit_code(check(tree, ROUND)) == 1


@pytest.mark.inference
def test_crash_of_the_official_checker_is_reported(tmp_path):
    tree = build_tree(tmp_path, "open")
    (tree / "open/Acme/systems/2xCPU.json").unlink()
    verdicts = run_official(tree, ROUND.round, Path(os.environ[CHECKOUT_VARIABLE]))
    assert [v.arguments for v in verdicts] == [(), ("--submission-exceptions",)]
    assert all(not v.passed and "AttributeError" in v.tail[-1] for v in verdicts)


@pytest.mark.inference
@pytest.mark.parametrize(
    ("tree", "round_"), [("v5.1", "v5.1"), ("v6.0", "v6.0"), ("v6.0-wrong-seeds", "v6.0"), ("v6.0", "v6.1")]
)
@pytest.mark.parametrize("golden", EVERY_GOLDEN)
def test_published_results_get_the_verdict_of_the_official_checker(golden, tree, round_):
    """And no error beyond it."""
    verdicts = run_official(golden / tree, round_, Path(os.environ[CHECKOUT_VARIABLE]))
    errors = [f for f in check(golden / tree, load_round(round_)) if f.severity is Severity.ERROR]
    assert {v.passed for v in verdicts} == {not errors}
    assert {f.authority for f in errors} <= {Authority.CHECKER}


def test_folder_without_the_official_checker_is_refused(tmp_path):
    with pytest.raises(EnvironmentMissing, match="missing official submission checker") as error:
        run_official(tmp_path, ROUND.round, tmp_path)
    assert error.value.where == str(tmp_path / "tools" / "submission")
