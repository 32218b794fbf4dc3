from pathlib import Path
from types import SimpleNamespace

import pytest
from real_loadgen import needs_loadgen, real_settings

from harness_llm.config.profile import load_profile
from harness_llm.config.rules import Round, load_round
from harness_llm.config.user_conf import UserConf, parse
from harness_llm.errors import ConfigError
from harness_llm.loadgen.settings import compare, expected_settings
from harness_llm.paths import CHECKOUT, Workspace

ROUND = load_round("v6.1")
RULES = ROUND.benchmark("llama2-70b-99.9")
TARGETS = (CHECKOUT / "code" / "user_cpu.conf").read_text()


def read(text: str, scenario: str) -> tuple[str, str, UserConf]:
    """LoadGen's model and scenario, and the file of one run."""
    model, loadgen = RULES.loadgen_model(scenario), ROUND.scenarios[scenario]
    return model, loadgen, parse(text, "user.conf", {model, RULES.loadgen_name}).for_run(model, loadgen, {})


def expect(conf: UserConf, scenario: str, round_: Round = ROUND) -> dict[str, int | float]:
    values = {name.key: value for name, value in conf.values.items()}
    return expected_settings(
        values, scenario=scenario, loadgen_scenario=ROUND.scenarios[scenario], rules=RULES, round_=round_
    )


def with_seed(seed: int) -> Round:
    seeds = ROUND.loadgen.seeds | {"schedule_rng_seed": seed}
    return ROUND.model_copy(update={"loadgen": ROUND.loadgen.model_copy(update={"seeds": seeds})})


@needs_loadgen
@pytest.mark.parametrize("profile", ["smoke", "valid"])
@pytest.mark.parametrize("scenario", ["Offline", "Server", "Interactive", "SingleStream"])
def test_loadgen_reads_the_settings_of_every_run(tmp_path: Path, scenario: str, profile: str) -> None:
    models = {RULES.loadgen_model(s) for s in ("Server", "Interactive")}
    whole = parse(TARGETS, "user.conf", models)
    model, loadgen = RULES.loadgen_model(scenario), ROUND.scenarios[scenario]
    samples = {"smoke": 2048, "valid": RULES.samples}[profile]
    conf = load_profile(profile, Workspace(CHECKOUT)).user_conf(whole, model, loadgen, samples, RULES.samples)
    settings = SimpleNamespace(**real_settings(tmp_path, conf.render(), model, loadgen))
    compare(settings, expect(conf, scenario))
    assert settings.performance_sample_count_override == samples
    assert settings.min_duration_ms == {"smoke": 500, "valid": ROUND.min_duration_ms}[profile]


@needs_loadgen
@pytest.mark.parametrize("latency", ["4.1", "8.2", "1.001", "0.3", "20"])
def test_loadgen_reads_fractions_of_a_millisecond(tmp_path: Path, latency: str) -> None:
    model, loadgen, conf = read(f"*.SingleStream.target_latency = {latency}\n", "SingleStream")
    compare(SimpleNamespace(**real_settings(tmp_path, conf.render(), model, loadgen)), expect(conf, "SingleStream"))


@needs_loadgen
def test_seeds_of_another_round_are_refused(tmp_path: Path) -> None:
    model, loadgen, conf = read("*.Offline.target_qps = 5\n", "Offline")
    settings = SimpleNamespace(**real_settings(tmp_path, conf.render(), model, loadgen))
    with pytest.raises(ConfigError, match="LoadGen's seeds differ from the round's") as caught:
        compare(settings, expect(conf, "Offline", with_seed(1)))
    assert caught.value.exit_code == 2
    assert caught.value.where == "schedule_rng_seed"
    assert caught.value.expected == "schedule_rng_seed = 1"
    assert caught.value.found == f"schedule_rng_seed = {ROUND.loadgen.seeds['schedule_rng_seed']}"
    assert "make setup" in caught.value.hint


@needs_loadgen
def test_line_ignored_by_loadgen_is_an_error(tmp_path: Path) -> None:
    """The file on disk lost its spaces after it was checked."""
    model, loadgen, conf = read("*.Server.target_qps = 100\n", "Server")
    settings = SimpleNamespace(**real_settings(tmp_path, conf.render().replace(" = ", "="), model, loadgen))
    with pytest.raises(ConfigError, match="settings differ from user") as caught:
        compare(settings, expect(conf, "Server"))
    assert caught.value.expected == "server_target_qps = 100"
    assert caught.value.found == "server_target_qps = 1.0"


@needs_loadgen
def test_model_unknown_to_loadgen_is_an_error(tmp_path: Path) -> None:
    _, loadgen, conf = read("*.Server.target_qps = 100\n", "Server")
    text = conf.render().replace("llama2-70b", "llama2-70b-99.9")
    settings = SimpleNamespace(**real_settings(tmp_path, text, "llama2-70b-99.9", loadgen))
    with pytest.raises(ConfigError, match="settings differ from user") as caught:
        compare(settings, expect(conf, "Server"))
    assert "use_token_latencies = 1" in caught.value.expected
    assert "sample_concatenate_permutation = 1" in caught.value.expected
