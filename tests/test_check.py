from pathlib import Path

import pytest
from trees import ALL_SCENARIOS, DESCRIPTION, ROUND, SCORES, Home, build_tree, hashed, write, write_json

from harness_llm.check import Severity, check, exit_code
from harness_llm.errors import ConfigError

GOLDEN = Path(__file__).resolve().parents[1].parent / "shared" / "golden"


@pytest.mark.parametrize(
    ("division", "scenarios"),
    [
        ("open", ("Server",)),
        ("open", ALL_SCENARIOS),
        ("closed", ("Offline", "Interactive")),
        ("closed", ALL_SCENARIOS),
    ],
)
def test_a_complete_tree_has_no_finding(tmp_path, division, scenarios):
    findings = check(build_tree(tmp_path, division, scenarios), ROUND)
    assert findings == []
    assert exit_code(findings) == 0


def test_a_finding_says_everything(tmp_path):
    tree = build_tree(tmp_path, "open")
    Home(tree, "open").scores(hashed(str(SCORES).replace("44.5", "np.float64(44.5)")))
    (finding,) = check(tree, ROUND)
    assert "ROUGE1" in finding.found
    assert "np.float64(44.5)" in finding.found
    assert "'rouge1'" in finding.expected
    assert all((finding.clause, finding.what, finding.hint))
    assert exit_code([finding]) == 1


def test_a_missing_key_is_named(tmp_path):
    tree = build_tree(tmp_path, "open")
    Home(tree, "open").performance(effective_qsl_rng_seed=None)
    (finding,) = check(tree, ROUND)
    assert finding.expected == "effective_qsl_rng_seed"


SMALL = {
    "effective_performance_sample_count": 2048,
    "effective_accuracy_sample_count": 2048,
    "effective_min_duration_ms": 10_000,
}


@pytest.mark.parametrize(("profile", "severity"), [("smoke", Severity.SCALE), ("valid", Severity.ERROR)])
def test_only_a_declared_smoke_tree_may_be_small(tmp_path, profile, severity):
    tree = build_tree(tmp_path, "open", ("Server",))
    write_json(tree / "profile.json", {"profile": profile, "benchmark": "tiny"})
    home = Home(tree, "open")
    home.performance(**SMALL)
    home.accuracy(**SMALL)
    findings = check(tree, ROUND)
    small = {f.rule: f.severity for f in findings if f.scale}
    assert small == dict.fromkeys(["performance-samples", "min-duration", "accuracy-samples"], severity)
    others = [(f.rule, f.severity, f.path) for f in findings if not f.scale]
    smoke = [("not-submittable", Severity.WARNING, "profile.json")]
    assert others == (smoke if profile == "smoke" else [])
    assert exit_code(findings) == (1 if profile == "valid" else 0)


def test_a_smoke_tree_must_be_right_but_for_its_size(tmp_path):
    tree = build_tree(tmp_path, "open", ("Server",))
    write_json(tree / "profile.json", {"profile": "smoke"})
    Home(tree, "open").performance(result_validity="INVALID")
    findings = check(tree, ROUND)
    assert [f.rule for f in findings if f.severity is Severity.ERROR] == ["loadgen-valid"]


def test_a_broken_profile_is_no_smoke_tree(tmp_path):
    tree = build_tree(tmp_path, "open", ("Server",))
    write(tree / "profile.json", "smoke")
    Home(tree, "open").performance(effective_min_duration_ms=10_000)
    assert sorted((f.rule, f.severity) for f in check(tree, ROUND)) == [
        ("min-duration", Severity.ERROR),
        ("profile", Severity.ERROR),
    ]


def test_network_asks_for_more_fields_and_a_name(tmp_path):
    tree = build_tree(tmp_path, "network", ("Offline", "Server"))
    home = Home(tree, "network")
    home.edit(DESCRIPTION, {"is_network": "true"})
    missing = [f.rule for f in check(tree, ROUND)]
    assert missing == ["system-field"] * (len(ROUND.system.network) - 1) + ["network-sut"] * 2
    home.edit(DESCRIPTION, dict.fromkeys(ROUND.system.network, "x") | {"is_network": "true"})
    for scenario in ("Offline", "Server"):
        home.performance(scenario, sut_name="Network SUT over TCP")
    assert check(tree, ROUND) == []


def test_a_folder_without_divisions_is_no_tree(tmp_path):
    (finding,) = check(tmp_path, ROUND)
    assert (finding.rule, finding.path) == ("tree", ".")
    with pytest.raises(ConfigError, match="no such tree"):
        check(tmp_path / "none", ROUND)


@pytest.mark.skipif(not GOLDEN.is_dir(), reason="the published results are not beside the checkout")
@pytest.mark.parametrize(
    ("tree", "others"),
    [("v6.0", []), ("v6.0-wrong-seeds", ["benchmark"])],
)
def test_published_results_break_the_rules_of_another_round_alone(tree, others):
    errors = {f.rule for f in check(GOLDEN / tree, ROUND) if f.severity is Severity.ERROR}
    assert errors == {"seeds", *others}
