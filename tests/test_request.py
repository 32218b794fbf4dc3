from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from asked import filled, options
from workspaces import CLOSED, append, make_workspace

from harness_llm.config.load import Load
from harness_llm.config.options import Options
from harness_llm.config.plan import resolve
from harness_llm.config.request import (
    Request,
    check_request,
    load_request,
    load_requests,
    newest_round,
    require_names,
)
from harness_llm.config.rules import round_names
from harness_llm.errors import ConfigError
from harness_llm.paths import Workspace

WORDS: dict[str, Any] = {"scenarios": "Offline,Server"}


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workspace:
    monkeypatch.setenv("HARNESS_LLM_WORKSPACE", str(tmp_path))
    return make_workspace(tmp_path)


@pytest.fixture
def ask(workspace: Workspace) -> Callable[..., Request]:
    """Resolve what a user types."""
    return lambda **words: resolve(options(**(WORDS | words)), workspace)


def test_missing_options_have_defaults(workspace: Workspace) -> None:
    assert filled(workspace, **WORDS) == Options(
        model="demo",
        gpu="cpu",
        round=round_names()[-1],
        division="open",
        category="datacenter",
        scenarios=("Offline", "Server"),
        profile="smoke",
        engine="vllm",
    )
    assert filled(workspace, **WORDS, gpu="mi300x").profile == "valid"
    assert filled(workspace, **WORDS, model=CLOSED).division == "closed"


def test_scenario_names_ignore_case() -> None:
    assert filled(scenarios="offline, SERVER,singlestream").scenarios == (
        "Offline",
        "Server",
        "SingleStream",
    )


def test_default_round_is_the_newest_with_the_benchmark() -> None:
    assert newest_round(["llama2-70b-99.9"]) == newest_round() == round_names()[-1]
    assert newest_round(["gptj-99.9", "gptj-99"]) == "v5.0"
    with pytest.raises(ConfigError, match="no round has llama9") as caught:
        newest_round(["llama9"])
    assert caught.value.expected == ", ".join(round_names())


@pytest.mark.parametrize(
    ("submitter", "system", "company", "what", "hint"),
    [
        ("", "box", True, "missing --company", "--company Acme"),
        ("Acme", "", True, "missing --system-name", "--system-name my-box"),
        ("", "", False, "missing --system-name", "--system-name"),
        ("Acme Corp", "box", True, "the submitter is not a folder name", "write Acme_Corp"),
        (".hidden", "box", True, "the submitter is not a folder name", "write hidden"),
        ("", "8xH200[SXM]", False, "the system name is not a folder name", "write 8xH200_SXM"),
        ("", "8xH200/2xXeon", False, "the system name is not a folder name", "write 8xH200_2xXeon"),
    ],
)
def test_missing_and_unfit_names_are_refused(submitter: str, system: str, company: bool, what: str, hint: str) -> None:
    choices = options(**(WORDS | {"company": submitter, "system_name": system}))
    with pytest.raises(ConfigError, match=what) as caught:
        require_names(choices, company=company)
    assert hint in caught.value.hint


def test_run_needs_no_company() -> None:
    require_names(options(**(WORDS | {"system_name": "box"})), company=False)


def test_each_scenario_has_its_own_load(ask: Callable[..., Request]) -> None:
    found = ask(model=CLOSED, profile="valid", scenarios="Offline,Server,Interactive,SingleStream", company="Acme",
                system_name="box", division="open")  # fmt: skip
    assert [plan.load for plan in found.scenarios] == [
        Load("Offline", 24576, 24576, 600, 600, 0),
        Load("Server", 24576, 24576, 600, 100, 0),
        Load("Server", 24576, 24576, 600, 40, 0),
        Load("SingleStream", 24576, 24576, 600, 0, 0.02),
    ]
    assert [plan.loadgen_model for plan in found.scenarios] == [
        "llama2-70b",
        "llama2-70b",
        "llama2-70b-interactive",
        "llama2-70b",
    ]
    assert [plan.stream for plan in found.scenarios] == [False, True, True, True]
    assert [plan.target_key for plan in found.scenarios][2:] == [
        "llama2-70b-interactive.Server.target_qps",
        "llama2-70b.SingleStream.target_latency",
    ]
    assert all(not plan.violations for plan in found.scenarios)
    assert found.tests == ("performance", "accuracy", "TEST06")
    assert [found.audit_samples(test) for test in found.tests] == [0, 0, 100]


def test_smoke_profile_has_a_small_load(ask: Callable[..., Request]) -> None:
    found = ask(scenarios="Server")
    assert found.samples("accuracy") == 2048
    assert found.scenarios[0].load == Load("Server", 2048, 2048, 0.5, 100, 0, min_query_count=2048)
    assert found.submission.tree_name.endswith("-smoke")


def test_plan_contains_the_settings_of_user_conf(ask: Callable[..., Request], workspace: Workspace) -> None:
    append(workspace.user_confs / "user_cpu.conf", "*.*.min_query_count = 50000\n*.Server.min_duration = 700000\n")
    offline, server = ask(profile="valid").scenarios
    assert offline.load.min_query_count == server.load.min_query_count == 50000
    assert (offline.load.min_duration_s, server.load.min_duration_s) == (600, 700)


def test_open_records_violations(ask: Callable[..., Request]) -> None:
    found = ask(model=CLOSED, division="open", profile="valid", total_sample_count=100)
    assert found.samples("accuracy") == 100
    assert found.scenarios[0].violations == ["100 samples, the benchmark requires 24576"]


def test_user_conf_option_names_another_file(ask: Callable[..., Request], tmp_path: Path) -> None:
    file = tmp_path / "mine.conf"
    file.write_text("*.Offline.target_qps = 7\n")
    assert ask(scenarios="Offline", user_conf=file).scenarios[0].load.target_qps == 7


@pytest.mark.parametrize(
    ("words", "what", "expected"),
    [
        ({"scenarios": "Offlin"}, "unknown scenario Offlin", "Offline, Server, Interactive, SingleStream"),
        ({"scenarios": "Offline,offline"}, "a scenario is named twice", ""),
        ({"category": "edge"}, "demo has no category edge", "datacenter"),
        ({"division": "Closed"}, "demo has no division Closed", "open"),
        ({"division": "closed"}, "demo has no division closed", "open"),
        ({"engine": "vlm"}, "demo has no engine vlm", "vllm, transformers, openai, llmboost, replay"),
        ({"round": "v9.0"}, "unknown round v9.0", ", ".join(round_names())),
        ({"profile": "slow"}, "unknown profile slow", "test, smoke, rehearsal, fast, valid"),
    ],
)
def test_unknown_option_values_are_refused(
    ask: Callable[..., Request], words: dict[str, str], what: str, expected: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        ask(**words)
    assert caught.value.what == what
    assert caught.value.expected == expected


@pytest.mark.parametrize("words", [{"profile": "rehearsal"}, {"stand_in": True}])
def test_stand_in_of_the_demo_is_refused(ask: Callable[..., Request], words: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="the demo has no stand-in"):
        ask(**words)


def test_published_benchmark_is_defined_by_files(ask: Callable[..., Request]) -> None:
    found = ask(model="llama2-70b", gpu="mi300x", round="v5.1", scenarios="")
    assert found.options.division == "closed"
    assert found.options.category == "datacenter"
    assert found.options.profile == "valid"
    assert [*found.variants] == ["llama2-70b-99.9", "llama2-70b-99"]
    assert [plan.scenario for plan in found.scenarios] == ["Offline", "Server"]
    assert all(not plan.violations for plan in found.scenarios)


@pytest.mark.parametrize(
    ("model", "category", "scenarios"),
    [("llama3.1-8b-edge", "edge", ("SingleStream", "Offline")), ("gptj", "datacenter", ("Server", "Offline"))],
)
def test_scenarios_and_category_are_those_of_the_benchmark(
    model: str, category: str, scenarios: tuple[str, ...]
) -> None:
    found = filled(model=model, stand_in=True)
    assert found.category == category
    assert set(found.scenarios) == set(scenarios)


def test_benchmark_missing_from_a_round_lists_the_rounds_that_have_it(ask: Callable[..., Request]) -> None:
    with pytest.raises(ConfigError, match=r"round v6\.1 has no benchmark gptj-99\.9") as caught:
        ask(model="gptj", gpu="h200", round="v6.1")
    assert caught.value.hint == "rounds that have it: v5.0"


def test_interactive_is_a_separate_benchmark_in_v5_0(ask: Callable[..., Request]) -> None:
    with pytest.raises(ConfigError, match=r"round v5\.0 has no scenario Interactive for llama2-70b") as caught:
        ask(model="llama2-70b", gpu="h200", round="v5.0", scenarios="Interactive")
    assert caught.value.hint == "--model llama2-70b-interactive"
    own = ask(model="llama2-70b-interactive", gpu="h200", scenarios="Server").scenarios[0]
    assert own.loadgen_model == "llama2-70b-interactive"


def test_beam_search_requires_an_engine_with_it(ask: Callable[..., Request]) -> None:
    with pytest.raises(ConfigError, match="the engine vllm has no beam search") as caught:
        ask(model="gptj", gpu="h200", engine="vllm")
    assert "transformers" in caught.value.expected
    own = ask(model="gptj", gpu="h200")
    assert own.options.engine == "transformers"
    assert not own.scenarios[1].stream
    assert ask(model="gptj", gpu="h200", engine="vllm", division="open", set=("sampling.beams=1",)).scenarios


def test_first_tokens_require_a_streaming_engine(ask: Callable[..., Request]) -> None:
    with pytest.raises(ConfigError, match="the engine transformers reports no first tokens"):
        ask(model="llama3.1-8b", gpu="h200", engine="transformers")


def test_test_with_its_own_samples_sets_the_sample_count_of_loadgen(ask: Callable[..., Request]) -> None:
    found = ask(model="gpt-oss-120b", gpu="h200", division="open", scenarios="Offline", total_sample_count=500)
    [plan] = found.scenarios
    assert found.tests == ("performance", "accuracy", "TEST07", "TEST09")
    whole = ask(model="gpt-oss-120b", gpu="h200", scenarios="Offline")
    assert [whole.samples(test) for test in whole.tests] == [6396, 4395, 990, 6396]
    of = {test: conf.lookup("gpt-oss-120b", "Offline", "performance_sample_count_override")
          for test, conf in whole.scenarios[0].confs.items()}  # fmt: skip
    assert of == {"performance": None, "accuracy": None, "TEST07": 990, "TEST09": None}
    assert plan.confs["accuracy"].lookup("gpt-oss-120b", "Offline", "accuracy_sample_count_override") == 500


def test_high_accuracy_selects_the_strictest_variant_only(ask: Callable[..., Request]) -> None:
    words = {"model": "llama2-70b", "gpu": "h200", "round": "v6.0"}
    assert list(ask(**words).variants) == ["llama2-70b-99.9", "llama2-70b-99"]
    found = ask(**words, high_accuracy=True)
    assert list(found.variants) == found.submission.names == ["llama2-70b-99.9"]


def test_tests_are_named_singly_or_as_compliance(ask: Callable[..., Request]) -> None:
    words = {"model": "gpt-oss-120b", "gpu": "h200"}
    assert ask(**words).requested_tests == ("performance", "accuracy", "TEST07", "TEST09")
    assert ask(**words, tests="compliance,performance").requested_tests == ("performance", "TEST07", "TEST09")
    assert ask(**words, tests="TEST09").requested_tests == ("TEST09",)
    with pytest.raises(ConfigError, match="has no test TEST06"):
        ask(**words, tests="TEST06")
    with pytest.raises(ConfigError, match=r"llama3\.1-8b-edge has no compliance test"):
        ask(model="llama3.1-8b-edge", gpu="h200", scenarios="Offline", tests="compliance")


def test_switching_all_scenarios_off_is_refused(ask: Callable[..., Request]) -> None:
    with pytest.raises(ConfigError, match="no scenario is left to run"):
        ask(scenarios="", scenario_switches=tuple((name, False) for name in ("Offline", "Server", "Interactive")))


def test_devices_become_replicas_of_each_scenario(ask: Callable[..., Request]) -> None:
    assert [plan.config.harness_config.replicas for plan in ask(gpu_count=3).scenarios] == [3, 3]
    with pytest.raises(ConfigError, match="missing LoadGen targets for 2 h100"):
        ask(model="llama2-70b", gpu="h100", gpu_count=2)


def test_status_needs_no_settings_of_this_machine(workspace: Workspace) -> None:
    choices = options(model="llama3.1-405b", gpu="cpu", scenarios="Offline")
    with pytest.raises(ConfigError, match="missing settings for"):
        resolve(choices, workspace)
    assert check_request(load_request(choices, workspace)).rules.samples == 8313


def test_benchmarks_may_have_spaces_between_them_and_a_final_comma() -> None:
    found = load_requests(options(model="llama2-70b, llama3.1-8b,", gpu="h200"), Workspace())
    assert [request.benchmark.name for request in found] == ["llama2-70b", "llama3.1-8b"]
