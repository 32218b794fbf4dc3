from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import yaml
from workspaces import CLOSED, edit, make_workspace

from harness_llm.config.benchmark import load_benchmark
from harness_llm.config.engine_arguments import engine_arguments
from harness_llm.config.engine_config import (
    FIXED,
    REFUSED,
    EngineConfig,
    check_engine_arguments,
    load_config,
)
from harness_llm.config.in_flight import InFlightLimit
from harness_llm.config.violations import refuse_engine, refuse_unproven_servers, refuse_violations, violations
from harness_llm.errors import ConfigError, EnvironmentMissing
from harness_llm.paths import Workspace

KNOWN = {"max_model_len", "max_num_seqs", "enable_prefix_caching", "dtype", *FIXED, *REFUSED}
GOOD: dict[str, Any] = {"max_model_len": 256, "max_num_seqs": 8}


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workspace:
    monkeypatch.setattr(
        "harness_llm.config.engine_config.engine_arguments", lambda: KNOWN | {"max_num_batched_tokens", "enforce_eager"}
    )
    return make_workspace(tmp_path)


def load(workspace: Workspace, *sets: str, scenario: str = "Offline", gpu: str = "cpu") -> EngineConfig:
    return load_config(load_benchmark(CLOSED, workspace), scenario, gpu, sets, workspace)


def write(workspace: Workspace, change: Mapping[str, Mapping[str, Any]]) -> None:
    """Add to the scenario's file."""
    file = workspace.benchmarks / CLOSED / "offline_cpu.yaml"
    edit(file, lambda content: [content.setdefault(section, {}).update(new) for section, new in change.items()])


def test_later_files_override_single_keys(workspace: Workspace) -> None:
    edit(
        workspace.benchmarks / "defaults.yaml",
        lambda content: content.update(llm_config={"max_num_seqs": 1, "dtype": "auto"}),
    )
    write(
        workspace,
        {"llm_config": {"max_num_seqs": 2}, "harness_config": {"backlog": 3}, "env_config": {"A": 1, "B": True}},
    )
    plain = load(workspace)
    assert plain.llm_config["max_num_seqs"] == 2
    assert plain.harness_config.backlog == 3
    assert plain.harness_config.replicas == 1
    assert (plain.env_config["A"], plain.env_config["B"]) == ("1", "1")
    changed = load(workspace, "llm_config.max_num_seqs=4", "harness_config.backlog=5", "env_config.A=b=c")
    assert changed.llm_config["max_num_seqs"] == 4
    assert changed.in_flight_limit == InFlightLimit(4, 5)
    assert changed.env_config["A"] == "b=c"
    assert changed.llm_config["max_model_len"] == plain.llm_config["max_model_len"]


def test_fixed_settings_are_passed_to_the_engine(workspace: Workspace) -> None:
    config = load(workspace, "llm_config.enable_prefix_caching=false")
    assert {name: config.llm_config[name] for name in FIXED} == FIXED
    assert config.llm_config["enable_prefix_caching"] is False
    assert config.sampling == load_benchmark(CLOSED, workspace).sampling


@pytest.mark.parametrize(
    ("setting", "what", "place", "expected", "hint"),
    [
        ("harness_config.replica=2", "a setting is unknown", "harness_config.replica", "", "valid one is replicas"),
        ("harnes_config.replicas=2", "a setting is unknown", "harnes_config", "", "harness_config"),
        ("sampling.max_token=2", "a setting is unknown", "sampling.max_token", "", "valid one is max_tokens"),
        (
            "harness_config.replicas=0",
            "a setting is wrong",
            "harness_config.replicas",
            "greater than or equal to 1",
            "",
        ),
        ("harness_config.replicas=two", "a setting is wrong", "harness_config.replicas", "valid integer", ""),
        ("sampling.max_tokens=", "a setting is wrong", "sampling.max_tokens", "valid integer", ""),
        ("server_config.urls=x", "a setting is unknown", "server_config.urls", "", "valid one is url"),
        ("server_config.url=localhost:8000", "a setting is wrong", "server_config.url", "http://host:port", ""),
        ("server_config.kind=vlm", "a setting is wrong", "server_config.kind", "vllm, trtllm, sglang", ""),
        ("server_config.connections=0", "a setting is wrong", "server_config.connections", "greater than or equal", ""),
        ("llm_config.max_num_seqs=many", "an engine argument is wrong", "llm_config.max_num_seqs", "whole number", ""),
        (
            "llm_config.max_model_len=null",
            "an engine argument is wrong",
            "llm_config.max_model_len",
            "whole number",
            "",
        ),
        ("llm_config.max_num_seqs=true", "an engine argument is wrong", "llm_config.max_num_seqs", "whole number", ""),
        ("llm_config.dtyp=half", "this vLLM has no such engine argument", "llm_config.dtyp", "", "valid one is dtype"),
        ("llm_config.seed=1", "this engine argument is fixed", "llm_config.seed", "LoadGen's seeds", ""),
        (
            "llm_config.model=x",
            "this engine argument is fixed",
            "llm_config.model",
            "names the checkpoint",
            "",
        ),
        (
            "llm_config.speculative_config={num_speculative_tokens: 3}",
            "this engine argument is fixed",
            "llm_config.speculative_config",
            "speculative decoding where the rules allow it",
            "",
        ),
        (
            "llm_config.enable_prefix_caching=true",
            "prefix caching is not allowed",
            "llm_config.enable_prefix_caching",
            "inference_rules.adoc",
            "delete the line",
        ),
    ],
)
@pytest.mark.parametrize("by", ["--set", "file"])
def test_wrong_setting_is_refused_with_a_hint(
    workspace: Workspace, *, by: str, setting: str, what: str, place: str, expected: str, hint: str
) -> None:
    section, _, rest = setting.partition(".")
    key, _, value = rest.partition("=")
    if by == "file":
        write(workspace, {section: {key: yaml.safe_load(value)}})
    with pytest.raises(ConfigError) as caught:
        load(workspace, *([setting] if by == "--set" else []))
    assert what in caught.value.what
    layer = f"--set {setting}" if by == "--set" else str(workspace.benchmarks / CLOSED / "offline_cpu.yaml")
    assert caught.value.where == f"{layer}: {place}"
    assert expected in caught.value.expected
    assert hint in caught.value.hint
    assert caught.value.exit_code == 2


@pytest.mark.parametrize("text", ["llm_config", "llm_config.dtype", "dtype=half", "=", "llm_config=1"])
def test_set_option_has_the_form_section_key_value(workspace: Workspace, text: str) -> None:
    with pytest.raises(ConfigError, match="invalid --set") as caught:
        load(workspace, text)
    assert caught.value.found == text


@pytest.mark.parametrize("name", ["max_model_len", "max_num_seqs"])
def test_required_settings_are_present(workspace: Workspace, name: str) -> None:
    edit(workspace.benchmarks / CLOSED / "cpu.yaml", lambda content: content["llm_config"].pop(name))
    with pytest.raises(ConfigError, match="an engine argument is missing") as caught:
        load(workspace, "llm_config.dtype=half")
    assert caught.value.where.endswith(f"cpu.yaml: llm_config.{name}")


@pytest.mark.parametrize("text", ["- a list\n", "llm_config: 5\n", "llm_config:\n", "just words\n"])
def test_settings_file_has_sections_of_keys(workspace: Workspace, text: str) -> None:
    file = workspace.benchmarks / CLOSED / "offline_cpu.yaml"
    file.write_text(text)
    with pytest.raises(ConfigError, match="settings must be sections of keys") as caught:
        load(workspace)
    assert caught.value.where == str(file)


def test_invalid_yaml_is_named_with_its_line(workspace: Workspace) -> None:
    file = workspace.benchmarks / CLOSED / "offline_cpu.yaml"
    file.write_text("llm_config:\n\tdtype: half\n")
    with pytest.raises(ConfigError, match="invalid YAML") as caught:
        load(workspace)
    assert caught.value.where == str(file)
    assert "line 2" in caught.value.found
    with pytest.raises(ConfigError, match="invalid YAML") as caught:
        load(workspace, "llm_config.dtype=[", scenario="Server")
    assert caught.value.where == "--set llm_config.dtype=["


def test_gpu_without_settings_lists_those_with_settings(workspace: Workspace) -> None:
    with pytest.raises(ConfigError, match=f"missing settings for {CLOSED} Server on mi300x") as caught:
        load(workspace, scenario="Server", gpu="mi300x")
    assert caught.value.where.endswith("server_mi300x.yaml")
    assert caught.value.expected == "a GPU with settings: cpu"
    assert caught.value.hint == "--gpu cpu, or copy the files of cpu for mi300x"


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_every_refusal_gives_its_reason(name: str) -> None:
    check_engine_arguments(GOOD, "x.yaml", KNOWN)
    with pytest.raises(ConfigError, match="engine argument is fixed") as caught:
        check_engine_arguments({**GOOD, name: 1}, "x.yaml", KNOWN)
    assert caught.value.expected == REFUSED[name]


@pytest.mark.skipif(find_spec("vllm") is None, reason="vLLM is not installed")
def test_installed_vllm_has_every_fixed_and_refused_argument() -> None:
    assert engine_arguments() >= {*FIXED, *REFUSED, *GOOD, "tensor_parallel_size", "dtype", "enable_prefix_caching"}


@pytest.mark.parametrize(
    ("sets", "found"),
    [
        ((), []),
        (("sampling.max_tokens=16",), ["sampling.max_tokens is 16, the benchmark requires 1024"]),
        (("sampling.temperature=0.5",), ["sampling.temperature is 0.5, the benchmark requires 0.0"]),
        (("sampling.stop_token_ids=[]",), ["sampling.stop_token_ids is (), the benchmark requires (2,)"]),
        (("llm_config.max_model_len=1120",), []),
        (
            ("llm_config.max_model_len=1119",),
            ["max_model_len 1119 cuts answers: longest prompt and answer are 1120"],
        ),
    ],
)
def test_closed_refuses_violations(workspace: Workspace, sets: tuple[str, ...], found: list[str]) -> None:
    assert violations(load(workspace, *sets), load_benchmark(CLOSED, workspace)) == found
    refuse_violations(found, "open")
    if found:
        with pytest.raises(ConfigError, match="closed does not allow these changes") as caught:
            refuse_violations(found, "closed")
        assert caught.value.found == found[0]
        assert "--division open" in caught.value.hint
    else:
        refuse_violations(found, "closed")


@pytest.mark.parametrize("by", ["--set", "environment"])
def test_each_server_url_has_a_replica(workspace: Workspace, monkeypatch: pytest.MonkeyPatch, *, by: str) -> None:
    urls = "http://a:8000/v1, https://b:9000/"
    if by == "environment":
        monkeypatch.setenv("HARNESS_LLM_SERVER_URL", urls)
    config = load(workspace, *([f"server_config.url={urls}"] if by == "--set" else []))
    assert config.server_config.url == ("http://a:8000", "https://b:9000")
    assert config.replicas == 2
    assert load(workspace, "server_config.url=", "harness_config.replicas=3").replicas == 3


def test_server_url_requires_an_http_engine(workspace: Workspace) -> None:
    config = load(workspace, "server_config.url=http://a:8000")
    refuse_engine("openai", config, stream=True)
    with pytest.raises(ConfigError, match="the engine vllm does not use servers") as caught:
        refuse_engine("vllm", config, stream=True)
    assert "openai" in caught.value.expected


@pytest.mark.parametrize(
    ("setting", "what"),
    [
        ("sampling.beams=4", "has no beam search"),
        ("sampling.stop_sequences={code: [[5]]}", "does not support stop sequences"),
    ],
)
def test_http_engine_refuses_unsupported_settings(workspace: Workspace, setting: str, what: str) -> None:
    with pytest.raises(ConfigError, match=what):
        refuse_engine("openai", load(workspace, setting), stream=True)


@pytest.mark.parametrize(
    ("engine", "settings", "where", "found"),
    [
        ("llmboost", [], "--engine llmboost", "no counters of cache hits"),
        ("openai", ["server_config.kind=triton"], "server_config.kind", "no counters of cache hits"),
        (
            "openai",
            ["server_config.kind=triton", "server_config.url=http://a:8000"],
            "server_config.kind",
            "no counters of cache hits and no version",
        ),
    ],
)
def test_closed_refuses_servers_without_counters_or_version(
    workspace: Workspace, engine: str, settings: list[str], where: str, found: str
) -> None:
    config = load(workspace, *settings)
    refuse_unproven_servers(engine, config, "open")
    with pytest.raises(ConfigError, match=r"closed does not count runs of (triton|llmboost) servers") as caught:
        refuse_unproven_servers(engine, config, "closed")
    assert (caught.value.where, caught.value.found) == (where, found)
    assert caught.value.expected.endswith(": vllm, trtllm, sglang")
    assert "--division open" in caught.value.hint


@pytest.mark.parametrize("url", ["", "http://a:8000"])
@pytest.mark.parametrize("kind", ["vllm", "trtllm", "sglang"])
def test_closed_accepts_servers_with_counters_and_version(workspace: Workspace, kind: str, url: str) -> None:
    config = load(workspace, f"server_config.kind={kind}", f"server_config.url={url}")
    refuse_unproven_servers("openai", config, "closed")


def test_closed_accepts_engines_without_servers(workspace: Workspace) -> None:
    config = load(workspace, "server_config.kind=triton")
    for engine in ("vllm", "transformers", "replay"):
        refuse_unproven_servers(engine, config, "closed")


def test_llmboost_requires_its_wheel(workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    monkeypatch.delenv("LLMBOOST_WHEEL", raising=False)
    with pytest.raises(EnvironmentMissing, match="LLMBoost is not installed"):
        refuse_engine("llmboost", load(workspace), stream=True)
    refuse_engine("llmboost", load(workspace, "server_config.url=http://a:8011"), stream=True)
    wheel = tmp_path / "llmboost.whl"
    wheel.touch()
    monkeypatch.setenv("LLMBOOST_WHEEL", str(wheel))
    refuse_engine("llmboost", load(workspace), stream=True)
