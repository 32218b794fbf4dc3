import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from real_loadgen import needs_loadgen, real_issued, real_settings

from harness_llm.config.rules import Round, load_round, round_names
from harness_llm.errors import ConfigError, EnvironmentMissing
from harness_llm.loadgen.logs import parse_detail
from harness_llm.loadgen.settings import compare, expected_settings
from harness_llm.loadgen.versions import loadgen_folder, loadgen_version

ROUNDS = [load_round(name) for name in round_names()]
DETAIL = "mlperf_log_detail.txt"
SHORT = """\
*.*.min_duration = 0
*.*.min_query_count = 10
*.*.sample_concatenate_permutation = 0
*.Server.target_qps = 1000
"""


def runs() -> list[object]:
    """Every benchmark of every round in every scenario, once where variants are one to LoadGen."""
    found = {}
    for round_ in ROUNDS:
        for rules in round_.benchmarks.values():
            scenarios = {s for own in rules.scenarios.values() for s in (*own.required, *own.optional)}
            for scenario in scenarios - {"Offline"}:
                found[f"{round_.round}-{rules.loadgen_model(scenario)}-{scenario}"] = (round_, rules, scenario)
    return [pytest.param(*run, id=name) for name, run in sorted(found.items())]


@needs_loadgen
@pytest.mark.parametrize("round_", ROUNDS, ids=lambda r: r.round)
@pytest.mark.parametrize("scenario", ["Offline", "Server"])
def test_loadgen_of_a_round_has_its_seeds_and_version(tmp_path: Path, round_: Round, scenario: str) -> None:
    assert real_issued(tmp_path, SHORT, "llama2-70b", scenario, samples=64, test="performance", round_=round_)
    log = parse_detail(tmp_path / DETAIL)
    compare(SimpleNamespace(**log.seeds), round_.loadgen.seeds)
    assert log.loadgen_version == loadgen_version(round_) == round_.loadgen.version
    assert log.errors == []
    for other in ROUNDS:
        if other is not round_:
            with pytest.raises(ConfigError, match="LoadGen's seeds differ from the round's"):
                compare(SimpleNamespace(**log.seeds), other.loadgen.seeds)


@needs_loadgen
@pytest.mark.parametrize(("round_", "rules", "scenario"), runs())
def test_loadgen_of_a_round_has_settings_of_its_benchmarks(tmp_path: Path, round_: Round, rules, scenario: str) -> None:
    model, loadgen = rules.loadgen_model(scenario), round_.scenarios[scenario]
    settings = SimpleNamespace(**real_settings(tmp_path, "", model, loadgen, round_))
    compare(settings, expected_settings({}, scenario=scenario, loadgen_scenario=loadgen, rules=rules, round_=round_))
    if loadgen == "Server":
        assert settings.server_target_latency_ns == rules.answer_latency_ms.get(scenario, 0) * 1_000_000
    if rules.accuracy_samples:
        assert settings.accuracy_sample_count_override == rules.accuracy_samples


@pytest.mark.parametrize(
    ("installed", "found"), [([], "none"), (["6.0.16"], "6.0.16"), (["6.0.16", "6.0.17"], "6.0.16, 6.0.17")]
)
def test_loadgen_of_another_round_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, installed: list[str], found: str
) -> None:
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    folder = tmp_path / "loadgen" / "6.0.17"
    for version in installed:
        metadata = folder / f"mlcommons_loadgen-{version}.dist-info" / "METADATA"
        metadata.parent.mkdir(parents=True)
        metadata.write_text(f"Metadata-Version: 2.1\nName: mlcommons_loadgen\nVersion: {version}\n")
    for ask in (loadgen_folder, loadgen_version):
        with pytest.raises(EnvironmentMissing, match=r"LoadGen of round v6\.1 is not installed") as caught:
            ask(load_round("v6.1"))
        assert caught.value.where == str(folder)
        assert caught.value.expected == "mlcommons-loadgen 6.0.17"
        assert sorted(caught.value.found.split(", ")) == found.split(", ")
        assert caught.value.hint == "make setup"
