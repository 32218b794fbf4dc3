"""Search spaces: every point complies with the rules and the checks of engine settings."""

import random
from dataclasses import replace

import pytest
from tuning_sessions import SEQS, TOKENS, demo_space, settings_of

from harness_llm.config.engine_arguments import engine_arguments, expected_value
from harness_llm.config.engine_config import FIXED, REFUSED, HarnessConfig
from harness_llm.config.options import Options
from harness_llm.config.plan import resolve
from harness_llm.config.request import Request
from harness_llm.errors import ConfigError
from harness_llm.paths import CHECKOUT, Workspace
from harness_llm.pipeline.engine_settings import engine_checks
from harness_llm.pipeline.tuning.search_space import SearchSpace, load_space, shipped_value
from harness_llm.pipeline.tuning.settings_check import SettingsCheck, with_settings

REPLICAS, TENSOR = "harness_config.replicas", "llm_config.tensor_parallel_size"
GPU_SETTINGS = sorted(
    {(f.parent.name, f.stem.rpartition("_")[2]) for f in CHECKOUT.glob("models/*/*.yaml")} - {("demo", "cpu")}
)
SHIPPED = [(name, gpu) for name, gpu in GPU_SETTINGS if gpu not in {"benchmark", "engine"} and name != "gptj"]


def points(space: SearchSpace, count: int) -> list[dict[str, object]]:
    choice = random.Random(0)  # noqa: S311 - a sample of points
    return [{one.name: choice.choice(one.values) for one in space.parameters} for _ in range(count)]


@pytest.mark.parametrize("engine", ["vllm", "replay"])
@pytest.mark.parametrize(("benchmark", "gpu"), SHIPPED)
def test_every_value_is_accepted_and_every_point_uses_all_devices(benchmark: str, gpu: str, engine: str) -> None:
    scenario = "SingleStream" if benchmark == "llama3.1-8b-edge" else "Offline"
    config = settings_of(benchmark, scenario, gpu)
    space = load_space(engine, config, scenario, accelerated=True)
    for parameter in space.parameters:
        section, _, key = parameter.name.partition(".")
        known = engine_arguments() if section == "llm_config" else HarnessConfig.model_fields
        assert key in known
        assert key not in FIXED | REFUSED
        assert parameter.shipped in parameter.values
        assert shipped_value(config, parameter.name) in {parameter.shipped, None}
        assert section != "llm_config" or not any(expected_value(key, value) for value in parameter.values)
    devices = config.replicas * config.group
    parallel = int(config.llm_config.get("pipeline_parallel_size", 1))
    for point in points(space, 20):
        settings = space.settings(point)
        tensor = int(settings.get(TENSOR) or config.llm_config.get("tensor_parallel_size", 1))
        assert int(settings.get(REPLICAS) or config.replicas) * tensor * parallel == devices


def test_shipped_point_has_no_settings_and_restarts_follow_from_the_arguments() -> None:
    space = demo_space()
    assert space.settings(space.point({})) == {}
    assert not space.needs_restart({}, {"harness_config.backlog": 16})
    assert space.needs_restart({"harness_config.backlog": 16}, {SEQS: 64})


def test_settings_without_effect_are_not_searched() -> None:
    assert "harness_config.backlog" not in {one.name for one in demo_space("Server").parameters}
    names = {one.name for one in demo_space("Offline").parameters}
    assert not names & {TENSOR, "llm_config.max_cudagraph_capture_size"}


def test_batched_tokens_are_not_below_the_sequences() -> None:
    space = demo_space()
    shipped = space.point({})
    assert space.fits(shipped | {TOKENS: 1024})
    assert not space.fits(shipped | {SEQS: 384, TOKENS: 256})


def test_engine_without_a_space_is_refused() -> None:
    with pytest.raises(ConfigError, match="no search space") as error:
        load_space("openai", settings_of("demo", "Offline", "cpu"), "Offline", accelerated=False)
    assert "vllm" in error.value.expected


@pytest.fixture
def closed(monkeypatch: pytest.MonkeyPatch) -> Request:
    """Closed llama2-70b on H200, checked by the rules alone: vLLM's own resolution takes seconds."""
    monkeypatch.setattr(engine_checks, "vllm_installed", lambda: False)
    options = Options(model="llama2-70b", gpu="h200", division="closed", scenarios=("Offline",), system_name="box")
    return resolve(options, Workspace())


def test_settings_beyond_the_memory_are_refused(closed: Request) -> None:
    check = SettingsCheck(closed, "Offline")
    assert not check({SEQS: 512})
    assert "KV cache holds" in check({SEQS: 3 * 704})


def test_settings_that_closed_does_not_allow_are_refused(closed: Request) -> None:
    check = SettingsCheck(closed, "Offline")
    assert "max_model_len" in check({"llm_config.max_model_len": 512})
    assert "prefix caching" in check({"llm_config.enable_prefix_caching": True})


def test_settings_are_on_top_of_those_of_the_request(closed: Request) -> None:
    request = replace(closed, options=replace(closed.options, set=(f"{SEQS}=64", f"{TOKENS}=1024")))
    [plan] = with_settings(request, "Offline", {SEQS: 32}).scenarios
    assert (plan.config.llm_config["max_num_seqs"], plan.config.llm_config["max_num_batched_tokens"]) == (32, 1024)
