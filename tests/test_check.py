import shutil
from collections import Counter
from collections.abc import Sequence

import pytest
from golden import EVERY_GOLDEN
from trees import (
    ALL_SCENARIOS,
    DESCRIPTION,
    EVERY_KIND,
    ROUND,
    SCORES,
    SCORES_FILE,
    SECOND_NS,
    SUBMITTER,
    SYSTEM,
    VARIANT,
    Home,
    Kind,
    R,
    accuracy_log,
    build_tree,
    hashed,
    passing_scores,
    performance_log,
    scenarios_of,
    write,
    write_json,
    write_log,
)

from harness_llm.checker.check import Authority, Severity, check, exit_code
from harness_llm.checker.submission_tree import official_name
from harness_llm.config.rules import load_round
from harness_llm.errors import ConfigError
from harness_llm.evaluate.accuracy_file import render
from harness_llm.loadgen.logs import DETAIL
from harness_llm.submission.places import PROFILE


@pytest.mark.parametrize(
    ("division", "scenarios"),
    [
        ("open", ("Server",)),
        ("open", ALL_SCENARIOS),
        ("closed", ("Offline", "Interactive")),
        ("closed", ALL_SCENARIOS),
    ],
)
def test_complete_tree_has_no_finding(tmp_path, division, scenarios):
    findings = check(build_tree(tmp_path, division, scenarios), ROUND)
    assert findings == []
    assert exit_code(findings) == 0


def test_finding_has_all_fields(tmp_path):
    tree = build_tree(tmp_path, "open")
    Home(tree, "open").scores(hashed(str(SCORES).replace("44.5", "np.float64(44.5)")))
    (finding,) = check(tree, ROUND)
    assert "ROUGE1" in finding.found
    assert "np.float64(44.5)" in finding.found
    assert "'rouge1'" in finding.expected
    assert all((finding.citation, finding.what, finding.hint))
    assert exit_code([finding]) == 1


def test_missing_log_key_is_named(tmp_path):
    tree = build_tree(tmp_path, "open")
    Home(tree, "open").performance(effective_qsl_rng_seed=None)
    (finding,) = check(tree, ROUND)
    assert finding.expected == "effective_qsl_rng_seed"


SMALL = {
    "effective_performance_sample_count": 2048,
    "effective_accuracy_sample_count": 2048,
    "effective_min_duration_ms": 10_000,
}


@pytest.mark.parametrize(
    ("profile", "severity"), [("smoke", Severity.SCALE), ("fast", Severity.SCALE), ("valid", Severity.ERROR)]
)
def test_small_sample_counts_are_accepted_in_smoke_trees_only(tmp_path, profile, severity):
    tree = build_tree(tmp_path, "open", ("Server",))
    home = Home(tree, "open")
    write_json(home.path / PROFILE, {"profile": profile, "benchmark": "tiny"})
    home.performance(**SMALL)
    home.accuracy(**SMALL)
    findings = check(tree, ROUND)
    small = {f.rule: f.severity for f in findings if f.scale}
    assert small == dict.fromkeys(["performance-samples", "min-duration", "accuracy-samples"], severity)
    others = [(f.rule, f.severity, f.path) for f in findings if not f.scale]
    smoke = [("not-submittable", Severity.WARNING, f"open/{SUBMITTER}/{PROFILE}")]
    assert others == ([] if profile == "valid" else smoke)
    assert exit_code(findings) == (1 if profile == "valid" else 0)


def test_smoke_tree_is_checked_for_everything_but_size(tmp_path):
    tree = build_tree(tmp_path, "open", ("Server",))
    home = Home(tree, "open")
    write_json(home.path / PROFILE, {"profile": "smoke"})
    home.performance(result_validity="INVALID")
    findings = check(tree, ROUND)
    assert [f.rule for f in findings if f.severity is Severity.ERROR] == ["loadgen-valid"]


def test_tree_with_a_broken_profile_is_no_smoke_tree(tmp_path):
    tree = build_tree(tmp_path, "open", ("Server",))
    home = Home(tree, "open")
    write(home.path / PROFILE, "smoke")
    home.performance(effective_min_duration_ms=10_000)
    assert sorted((f.rule, f.severity) for f in check(tree, ROUND)) == [
        ("min-duration", Severity.ERROR),
        ("profile", Severity.WARNING),
    ]


def test_network_division_requires_more_fields_and_a_sut_name(tmp_path):
    tree = build_tree(tmp_path, "network", ("Offline", "Server"))
    home = Home(tree, "network")
    home.edit(DESCRIPTION, {"is_network": "true"})
    missing = [f.rule for f in check(tree, ROUND)]
    assert missing == ["system-field"] * (len(ROUND.system.network) - 1) + ["network-sut"] * 2
    home.edit(DESCRIPTION, dict.fromkeys(ROUND.system.network, "x") | {"is_network": "true"})
    for scenario in ("Offline", "Server"):
        home.performance(scenario, sut_name="Network SUT over TCP")
    assert check(tree, ROUND) == []


def beyond_any_result(kind: Kind, division: str, scenarios: Sequence[str]) -> Counter[str]:
    """What today's official checker rejects whatever was measured: gptj, of v5.0."""
    gaps = ["checker-gap"] * (kind.rules.offline_samples is None)
    return Counter(
        [*gaps, *["compliance"] * (len(kind.rules.checker_compliance) * len(scenarios) * (division == "closed"))]
    )


@pytest.mark.parametrize("division", ["closed", "open"])
@pytest.mark.parametrize(("kind", "category"), EVERY_KIND)
def test_complete_tree_of_every_benchmark_of_every_round_has_no_finding(tmp_path, kind, category, division):
    findings = check(build_tree(tmp_path, division, scenarios_of(kind, category), kind, category), kind.round)
    assert Counter(f.rule for f in findings) == beyond_any_result(kind, division, scenarios_of(kind, category))


def test_v5_layout_accepts_both_names_of_the_measurements(tmp_path):
    kind = Kind(load_round("v5.1"), VARIANT)
    home = build_tree(tmp_path, "closed", kind=kind) / "closed" / SUBMITTER
    folder = home / f"measurements/{SYSTEM}/{VARIANT}/Offline"
    file = folder / f"{SYSTEM}_Offline.json"
    for name in (f"{SYSTEM}.json", f"{SYSTEM}_other.json"):
        file = file.rename(folder / name)
        assert check(tmp_path, kind.round) == []
    file.rename(folder / "measurements.json")
    (finding,) = check(tmp_path, kind.round)
    assert (finding.rule, finding.path) == (
        "measurements-file",
        str((folder / f"{SYSTEM}_Offline.json").relative_to(tmp_path)),
    )


LLAMA_8B = Kind(load_round("v5.1"), "llama3.1-8b")
EDGE = Kind(ROUND, "llama3.1-8b-edge")
GPTJ = Kind(load_round("v5.0"), "gptj-99.9")
GPT_OSS = Kind(ROUND, "gpt-oss-120b")
INTERACTIVE = Kind(load_round("v5.0"), "llama2-70b-interactive-99")
MIXTRAL = Kind(load_round("v6.0"), "mixtral-8x7b")


@pytest.mark.parametrize(
    ("kind", "scenario", "log", "found"),
    [
        (GPTJ, "Server", {"result_inferred_completed_tokens_per_second": None}, ["metric"]),
        (GPTJ, "Offline", {"result_inferred_tokens_per_second": None}, ["metric"]),
        (GPTJ, "Offline", {"effective_samples_per_query": 1}, []),
        (GPTJ, "Server", {"effective_target_latency_ns": 0}, ["latency-settings"]),
        (GPTJ, "Server", {"result_99.00_percentile_latency_ns": 20 * SECOND_NS}, ["latency"]),
        (GPTJ, "Server", {"result_first_token_99.00_percentile_latency_ns": 9 * SECOND_NS}, []),
        (INTERACTIVE, "Server", {"result_first_token_99.00_percentile_latency_ns": SECOND_NS}, ["latency"]),
        (INTERACTIVE, "Server", {"requested_server_tpot_latency": 200_000_000}, ["latency-settings"]),
        (LLAMA_8B, "Offline", {"requested_use_token_latencies": False}, ["token-latencies"]),
        (GPT_OSS, "Offline", {"effective_performance_sample_count": 4395}, ["performance-samples"]),
    ],
)
def test_each_benchmark_is_checked_by_its_own_rules(tmp_path, kind, scenario, log, found):
    tree = build_tree(tmp_path, "closed", ("Offline", "Server"), kind)
    values = {k: v for k, v in (performance_log(scenario, kind) | log).items() if v is not None}
    write_log(tree / "closed" / SUBMITTER / R / kind.variant / scenario / "performance/run_1", values)
    rules = Counter(f.rule for f in check(tree, kind.round))
    assert rules - beyond_any_result(kind, "closed", ("Offline", "Server")) == Counter(found)


@pytest.mark.parametrize(
    ("kind", "metric"),
    [
        *((GPTJ, metric) for metric in ("ROUGE1", "GEN_LEN")),
        *((LLAMA_8B, metric) for metric in ("ROUGELSUM", "GEN_LEN")),
        *((MIXTRAL, metric) for metric in ("GSM8K", "MBXP", "TOKENS_PER_SAMPLE")),
        (Kind(load_round("v6.0"), "llama3.1-405b"), "EXACT_MATCH"),
    ],
)
def test_every_metric_has_a_gate(tmp_path, kind, metric):
    tree = build_tree(tmp_path, "closed", ("Offline", "Server"), kind)
    file = tree / "closed" / SUBMITTER / R / kind.variant / "Offline" / SCORES_FILE
    good, always = passing_scores(kind), beyond_any_result(kind, "closed", ("Offline", "Server"))
    for score, rule in ((kind.rules.gates[metric] * 0.9999, "gate"), (kind.rules.limits.get(metric, 0) + 1, "gate")):
        if score > 1:
            write(file, hashed(render(good | {metric: score})))
            assert Counter(f.rule for f in check(tree, kind.round)) - always == {f"accuracy-{rule}": 1}
    write(file, hashed(render({name: score for name, score in good.items() if name != metric})))
    assert Counter(f.rule for f in check(tree, kind.round)) - always == {"accuracy-metric": 1}


def test_accuracy_set_may_differ_in_size(tmp_path):
    tree = build_tree(tmp_path, "closed", ("Offline", "Server"), GPT_OSS)
    folder = tree / "closed" / SUBMITTER / R / GPT_OSS.variant / "Offline/accuracy"
    write_log(folder, accuracy_log("Offline", GPT_OSS) | {"effective_accuracy_sample_count": GPT_OSS.rules.samples})
    (finding,) = check(tree, ROUND)
    assert (finding.rule, finding.expected) == ("accuracy-samples", "4395 samples")


@pytest.mark.parametrize(("category", "found"), [("edge", []), ("datacenter,edge", [])])
def test_edge_system_may_infer_offline_from_single_stream(tmp_path, category, found):
    tree = build_tree(tmp_path, "closed", ("Offline", "SingleStream"), EDGE, category)
    results = tree / "closed" / SUBMITTER / R / EDGE.variant
    for folder in ("performance/run_1", "accuracy"):
        (results / "Offline" / folder / DETAIL).write_bytes((results / "SingleStream" / folder / DETAIL).read_bytes())
    assert [f.rule for f in check(tree, ROUND)] == found


@pytest.mark.parametrize("name", ["llama3_1-8b", "llama3_1-8b-edge", "llama3_1-405b"])
def test_folder_names_are_mapped_as_by_the_official_checker(tmp_path, name):
    kind = Kind(load_round("v6.0"), name.replace("_", "."))
    category = next(iter(kind.rules.scenarios))
    tree = build_tree(tmp_path, "closed", scenarios_of(kind, category), kind, category)
    folder = tree / "closed" / SUBMITTER / R / kind.variant
    folder.rename(folder.with_name(name))
    assert check(tree, kind.round) == []


@pytest.mark.parametrize(
    ("tree", "round_", "rules"),
    [
        ("v5.1", "v5.1", set()),
        ("v6.0", "v6.0", set()),
        ("v6.0-wrong-seeds", "v6.0", {"round"}),
        ("v6.0", "v6.1", {"round"}),
    ],
)
@pytest.mark.parametrize("golden", EVERY_GOLDEN)
def test_published_results_have_no_error_in_their_own_round_only(golden, tree, round_, rules):
    errors = [f for f in check(golden / tree, load_round(round_)) if f.severity is Severity.ERROR]
    assert Counter(f.rule for f in errors) == Counter(rules)


def test_unknown_round_is_refused():
    with pytest.raises(ConfigError, match=r"unknown round v4\.1"):
        load_round("v4.1")


@pytest.mark.parametrize(
    ("name", "official"),
    [
        ("llama2-70b-99", "llama2-70b-99"),  # an official name wins over a mapping
        ("llama3_1-8b", "llama3.1-8b"),
        ("resnet50", "resnet"),
        ("efficientnet-fp32-lite0", "resnet"),
        ("my-llama3_1-405b-fp4", "llama3.1-405b"),
        ("tiny", "llama3.1-8b"),
        ("unknown", "unknown"),
    ],
)
def test_benchmark_name_is_resolved_as_by_the_official_checker(name, official):
    mapping = {"llama2-70b-99": "llama3.1-8b", "tiny": "llama3.1-8b"}
    assert official_name(name, mapping, load_round("v6.0")) == official


@pytest.mark.parametrize("benchmark", ["resnet", "retinanet", "stable-diffusion-xl", "whisper", "dlrm-v3", "rgat"])
@pytest.mark.parametrize("division", ["closed", "open"])
def test_unsupported_benchmark_is_listed_as_not_judged(tmp_path, division, benchmark):
    kind = Kind(load_round("v6.0"), VARIANT)
    tree = build_tree(tmp_path, division, kind=kind)
    home = Home(tree, division)
    shutil.copytree(home.benchmark, home.benchmark.with_name(benchmark))
    results = home.benchmark.with_name(benchmark)
    for file in (*results.rglob("*.txt"), *results.rglob("*.json"), *results.rglob("user.conf")):
        write(file, "of no rule")
    findings = check(tree, kind.round)
    listed = [(f.rule, f.severity, f.authority, f.path, f.found) for f in findings]
    home_path = results.relative_to(tree)
    assert listed == [
        ("scope", Severity.NOT_JUDGED, Authority.SCOPE, str(home_path / scenario), benchmark)
        for scenario in ("Offline", "Server")
    ]
    assert exit_code(findings) == 0
    write(results / "Offline" / ".env", "x")
    write_json(home.path / DESCRIPTION, {})
    assert {"file-name", "system-field"} <= {f.rule for f in check(tree, kind.round)}


def test_results_of_endpoints_are_listed_as_not_judged(tmp_path):
    kind = Kind(ROUND, "llama3.1-8b")
    tree = build_tree(tmp_path, "closed", kind=kind)
    folder = tree / "closed" / SUBMITTER / R / kind.variant / "Server"
    shutil.rmtree(folder)
    write_json(folder / "performance/result_summary.json", {"qps": 1})
    write(folder / "config.yaml", "type: online\n")
    (finding,) = check(tree, kind.round)
    assert (finding.rule, finding.path) == ("scope", str(folder.relative_to(tree)))
    assert "endpoints" in finding.found


def test_server_result_of_the_edge_benchmark_is_a_checker_gap(tmp_path):
    tree = build_tree(tmp_path, "open", ("SingleStream", "Server"), EDGE, "edge")
    (finding,) = check(tree, ROUND)
    assert (finding.rule, finding.authority) == ("checker-gap", Authority.CHECKER)
    assert "/Server/" in finding.path


def test_authority_of_a_finding_decides_its_severity(tmp_path):
    tree = build_tree(tmp_path, "closed")
    Home(tree, "closed").performance(result_validity="INVALID", effective_qsl_rng_seed=1, loadgen_version="1")
    found = {f.rule: (f.authority, f.severity) for f in check(tree, ROUND)}
    assert found == {
        "loadgen-valid": (Authority.CLAUSE, Severity.ERROR),
        "seeds": (Authority.CHECKER, Severity.ERROR),
        "loadgen-version": (Authority.ADVICE, Severity.WARNING),
    }
