"""Speculative decoding is allowed only where and as the rules of the round allow it."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from asked import options
from gpu_settings import HERE, all_cases

from harness_llm.config.benchmark import load_benchmark
from harness_llm.config.plan import resolve
from harness_llm.config.request import Request
from harness_llm.config.rules import load_round, round_names
from harness_llm.config.speculation import draft_folder, with_speculation
from harness_llm.errors import ConfigError
from harness_llm.paths import MODELS_VARIABLE, Workspace
from harness_llm.pipeline.engine_settings.engine_checks import candidate, check_by_vllm
from harness_llm.pipeline.engine_settings.resolution import resolve_candidates
from harness_llm.prepare.preparation import preparation_of
from harness_llm.prepare.provision import missing_parts
from harness_llm.prepare.published import PublishedPreparation
from harness_llm.runs.fingerprint import fingerprint

SWITCH = "harness_config.speculative_decoding"
MTP = {"method": "mtp", "num_speculative_tokens": 3, "draft_sample_method": "greedy"}
HEAD = "gpt-oss-120b-Eagle3-long-context"
# The shape of the head, by the sizes of its tensors.
SHAPE = {
    "architectures": ["LlamaForCausalLMEagle3"],
    "model_type": "llama",
    "hidden_size": 2880,
    "intermediate_size": 17280,
    "head_dim": 64,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "num_hidden_layers": 1,
    "vocab_size": 201088,
    "draft_vocab_size": 201088,
    "torch_dtype": "bfloat16",
}


@pytest.fixture
def models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(MODELS_VARIABLE, str(tmp_path))
    return tmp_path


def ask(model: str, scenarios: str = "Interactive", *, speculating: str = "Interactive", **words: Any) -> Request:
    given = {"model": model, "gpu": "b200", "scenarios": scenarios, "set": [f"{SWITCH}={speculating}"]}
    return resolve(options(**(given | words)), HERE)


def write_head(models: Path, **more: Any) -> Path:
    folder = models / HEAD
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(SHAPE | more))
    return folder


def test_rounds_allow_two_benchmarks_in_interactive_only() -> None:
    found = {
        (name, variant, scenario): (rule.method, rule.head, rule.tokens)
        for name in round_names()
        for variant, rules in load_round(name).benchmarks.items()
        for scenario, rule in rules.speculation.items()
    }
    eagle = ("eagle3", f"nvidia/{HEAD}", 3)
    assert found == {
        ("v6.0", "deepseek-r1", "Interactive"): ("mtp", "", 3),
        ("v6.1", "deepseek-r1", "Interactive"): ("mtp", "", 3),
        ("v6.1", "gpt-oss-120b", "Interactive"): eagle,
    }


@pytest.mark.parametrize(
    ("model", "scenarios", "speculating", "words", "allowed"),
    [
        ("llama2-70b", "Interactive", "Interactive", {}, "no scenario of this benchmark in this round"),
        ("deepseek-r1", "Offline", "Offline", {}, "Interactive"),
        ("deepseek-r1", "Interactive", "Interactive,Server", {"division": "open"}, "Interactive"),
        ("gpt-oss-120b", "Interactive", "Interactive", {"round": "v6.0"}, "no scenario"),
        ("deepseek-r1", "Offline", "Interactive", {"round": "v5.1"}, "no scenario"),
        (
            "deepseek-r1",
            "Interactive",
            "Interactive",
            {"stand_in": True, "division": "open", "gpu": "cpu"},
            "no scenario",
        ),
    ],
)
def test_speculation_is_refused_where_the_rules_do_not_allow_it(
    model: str, scenarios: str, speculating: str, words: dict[str, Any], allowed: str
) -> None:
    with pytest.raises(ConfigError, match="the rules do not allow speculative decoding here") as caught:
        ask(model, scenarios, speculating=speculating, **words)
    assert caught.value.where == SWITCH
    assert caught.value.expected.startswith(allowed)
    assert "appendix Speculative Decoding" in caught.value.expected


@pytest.mark.parametrize("name", ["speculative_config", "spec_method", "spec_model", "spec_tokens"])
def test_engine_arguments_cannot_enable_speculation(name: str) -> None:
    with pytest.raises(ConfigError, match="engine argument is fixed") as caught:
        ask("deepseek-r1", speculating="", set=[f"llm_config.{name}=x"])
    assert SWITCH in caught.value.expected


@pytest.mark.parametrize("round_", ["v6.0", "v6.1"])
def test_deepseek_speculates_with_the_head_of_its_checkpoint(round_: str) -> None:
    request = ask("deepseek-r1", "Offline,Interactive", round=round_)
    offline, interactive = (plan.config for plan in request.scenarios)
    assert interactive.llm_config["speculative_config"] == MTP
    assert interactive.draft_tokens == 3
    assert "speculative_config" not in offline.llm_config
    assert offline.draft_tokens == 0
    assert request.benchmark.checkpoint.draft == ""


def test_gpt_oss_speculates_with_the_published_head(models: Path) -> None:
    request = ask("gpt-oss-120b")
    (plan,) = request.scenarios
    assert plan.config.llm_config["speculative_config"] == MTP | {"method": "eagle3", "model": str(models / HEAD)}
    assert request.benchmark.checkpoint.draft == HEAD


def test_scenarios_without_speculation_keep_their_fingerprint() -> None:
    plans = [ask("deepseek-r1", "Offline", speculating=on).scenarios[0] for on in ("", "Interactive")]
    one, two = (fingerprint(plan.config, engine="vllm", checkpoint="c", loadgen="6.0.17", machine={}) for plan in plans)
    assert one == two


def test_draft_head_is_required_only_where_it_is_used(models: Path) -> None:
    for speculating, parts in (("", []), ("Interactive", ["draft"])):
        request = ask("gpt-oss-120b", speculating=speculating)
        preparation = preparation_of(request.benchmark, request.workspace, 1)
        assert isinstance(preparation, PublishedPreparation)
        assert [part for part in missing_parts(preparation) if part == "draft"] == parts
        assert preparation.assets.draft == (models / HEAD if parts else None)
    (write_head(models) / "model.safetensors").touch()
    assert "draft" not in missing_parts(preparation)


def test_download_is_the_head_that_the_rules_name() -> None:
    (download,) = [d for d in load_benchmark("gpt-oss-120b", HERE).downloads if d.part == "draft"]
    rule = load_round("v6.1").benchmark("gpt-oss-120b").speculation["Interactive"]
    assert (download.repo, download.folder) == (rule.head, draft_folder(rule.head))
    assert download.of_models


def test_quantized_head_is_refused(models: Path) -> None:
    write_head(models, quantization_config={"quant_method": "fp8"})
    with pytest.raises(ConfigError, match="the draft head is quantized") as caught:
        ask("gpt-oss-120b")
    assert caught.value.where == str(models / HEAD / "config.json")


@pytest.mark.parametrize(
    ("engine", "sets"),
    [("transformers", []), ("replay", []), ("openai", ["server_config.kind=sglang"])],
)
def test_engine_without_speculation_is_refused(engine: str, sets: list[str]) -> None:
    plain = ask("deepseek-r1", speculating="", set=[f"{SWITCH}=Interactive", *sets]).scenarios[0].config
    allowed = load_round("v6.1").benchmark("deepseek-r1").speculation
    with pytest.raises(ConfigError, match=f"the engine {engine} does not support speculative decoding"):
        with_speculation(plain, "Interactive", engine=engine, allowed=allowed, models=Path("models"))
    assert with_speculation(plain, "Interactive", engine="vllm", allowed=allowed, models=Path("models")).draft_tokens


@pytest.mark.slow
def test_doctor_reports_what_it_cannot_check_before_the_download(
    models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("harness_llm.paths.Workspace.cache", property(lambda _: tmp_path))
    (result,) = check_by_vllm(ask("gpt-oss-120b"))
    assert "until its draft head is downloaded" in result.found
    assert result.where == "Interactive: llm_config.speculative_config"
    assert not list(models.glob(HEAD))


@pytest.mark.slow
def test_installed_vllm_accepts_the_arguments_on_every_gpu(models: Path, tmp_path: Path) -> None:
    """And refuses a draft of no tokens, so that the arguments are read."""
    write_head(models)
    workspace, names, candidates = Workspace(HERE.root), [], []
    for case in all_cases():
        allowed = load_round("v6.1").benchmarks.get(case.benchmark.name)
        if case.scenario != "Interactive" or allowed is None or not allowed.speculation:
            continue
        asked = case.engine.harness_config.model_copy(update={"speculative_decoding": ("Interactive",)})
        plain = case.engine.model_copy(update={"harness_config": asked})
        engine = with_speculation(
            plain, "Interactive", engine="vllm", allowed=allowed.speculation, models=workspace.models
        )
        names.append(str(case))
        candidates.append(candidate(engine, case.config, case.gpu))
    wrong = candidates[0].llm_config | {"speculative_config": MTP | {"num_speculative_tokens": 0}}
    candidates.append(candidate(engine.model_copy(update={"llm_config": wrong}), case.config, case.gpu))
    *found, refused = resolve_candidates(candidates, tmp_path / "cache", dict(os.environ))
    assert [(name, r.violations) for name, r in zip(names, found, strict=True)] == [(name, []) for name in names]
    assert len(names) == 19
    assert "num_speculative_tokens" in refused.violations[0].argument + refused.violations[0].found
