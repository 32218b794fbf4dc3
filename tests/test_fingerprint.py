from pathlib import Path
from typing import Any

import pytest
from token_server import TokenServer

from harness_llm.config.benchmark import Sampling
from harness_llm.config.engine_config import EngineConfig, HarnessConfig, ReplayConfig, ServerConfig
from harness_llm.config.servers import server_kinds
from harness_llm.runs import fingerprint as subject_module
from harness_llm.runs.fingerprint import HARDWARE, PACKAGES, SOURCE, fingerprint
from harness_llm.runs.program_source import MEASURING
from harness_llm.runs.record import digest

MACHINE = dict.fromkeys(HARDWARE, "1") | {"operating_system": "Linux", "hw_notes": "on the left"}


def config(**changes: Any) -> EngineConfig:
    facts: dict[str, Any] = {
        "llm_config": {"max_num_seqs": 8},
        "env_config": {"A": "1"},
        "harness_config": HarnessConfig(
            replicas=1,
            backlog=1,
            speculative_decoding=(),
            warm_up_tokens=1,
            loadgen_cpus=1,
            startup_timeout_s=1,
            on_replica_failure="fail",
            heartbeat_timeout_s=1,
            stall_timeout_s=1,
        ),
        "server_config": ServerConfig(kind="vllm", url=(), command="", connections=8, attempts=1),
        "replay_config": ReplayConfig(
            prefill_tokens_per_s=1,
            step_s=1,
            step_s_per_sequence=1,
            output_tokens=2,
            output_spread=0,
            recorded="",
            speeds=(1,),
            processes=1,
        ),
        "sampling": Sampling(temperature=0, min_tokens=1, max_tokens=2, stop_token_ids=(2,)),
    }
    return EngineConfig(**facts | changes)


def facts(changed: EngineConfig | None = None, **changes: Any) -> dict[str, Any]:
    given: dict[str, Any] = {"engine": "vllm", "checkpoint": "c", "loadgen": "6.0.17", "machine": MACHINE}
    return fingerprint(changed or config(), **given | changes)


def test_equal_facts_have_equal_fingerprints() -> None:
    assert digest(facts()) == digest(facts())


@pytest.mark.parametrize(
    "other",
    [
        lambda: facts(config(llm_config={"max_num_seqs": 9})),
        lambda: facts(config(env_config={})),
        lambda: facts(config(harness_config=config().harness_config.model_copy(update={"replicas": 2}))),
        lambda: facts(engine="openai"),
        lambda: facts(checkpoint="d"),
        lambda: facts(loadgen="6.0.16"),
        lambda: facts(machine=MACHINE | {"operating_system": "Plan 9"}),
        lambda: facts(machine=MACHINE | {"other_software_stack": "driver 1"}),
        *(lambda name=name: facts(machine=MACHINE | {name: "2"}) for name in HARDWARE),
    ],
)
def test_every_fact_changes_the_fingerprint(other: Any) -> None:
    assert digest(other()) != digest(facts())


def test_server_settings_count_for_http_engines_only() -> None:
    other = config(server_config=config().server_config.model_copy(update={"url": ("http://127.0.0.1:8000",)}))
    assert digest(facts(other)) == digest(facts())
    assert digest(facts(other, engine="openai")) != digest(facts(engine="openai"))


def test_version_of_a_running_server_counts() -> None:
    found = []
    for version in ("1", "2"):
        with TokenServer(version=version) as server:
            own = config().server_config.model_copy(update={"url": (server.url,)})
            found.append(facts(config(server_config=own), engine="openai"))
    assert [fingerprint["packages"] for fingerprint in found] == [{}, {}]
    assert [server["version"] for fingerprint in found for server in fingerprint["servers"]] == ["1", "2"]
    assert "servers" not in facts(engine="openai")
    assert facts(engine="openai")["packages"] == facts()["packages"]


def test_command_and_api_of_a_kind_of_server_count(monkeypatch: pytest.MonkeyPatch) -> None:
    before = facts(engine="openai"), facts()
    kind = server_kinds()["vllm"]
    changed = {**server_kinds(), "vllm": kind.model_copy(update={"command": "serve"})}
    monkeypatch.setattr(subject_module, "server_kinds", lambda: changed)
    assert facts(engine="openai")["server_kind"]["command"] == "serve"
    assert digest(facts(engine="openai")) != digest(before[0])
    assert digest(facts()) == digest(before[1])


def test_wheel_of_llmboost_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    digests = set()
    for content in (b"1", b"2"):
        wheel = tmp_path / "llmboost.whl"
        wheel.write_bytes(content)
        monkeypatch.setenv("LLMBOOST_WHEEL", str(wheel))
        digests.add(digest(facts(engine="llmboost")))
    assert len(digests) == 2


def test_settings_without_effect_on_results_do_not_count() -> None:
    """Sampling is a fact of the run; notes are for readers."""
    sampling = config().sampling.model_copy(update={"max_tokens": 9})
    assert digest(facts(config(sampling=sampling))) == digest(facts())
    assert digest(facts(machine=MACHINE | {"hw_notes": "on the right"})) == digest(facts())


def test_versions_of_installed_packages_count(monkeypatch: pytest.MonkeyPatch) -> None:
    assert set(facts()["packages"]) <= set(PACKAGES)
    before = digest(facts())
    monkeypatch.setattr("harness_llm.runs.fingerprint.versions", lambda: {"vllm": "0"})
    assert digest(facts()) != before


def test_inherited_variables_count(monkeypatch: pytest.MonkeyPatch) -> None:
    before = digest(facts())
    monkeypatch.setenv("VLLM_CACHE_ROOT", "elsewhere")
    assert digest(facts()) == before
    seen = {before}
    for value in ("", "3"):
        monkeypatch.setenv("GOMP_SPINCOUNT", value)
        assert facts()["inherited"]["GOMP_SPINCOUNT"] == value
        seen.add(digest(facts()))
    assert len(seen) == 3


def test_measuring_source_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    assert facts()[SOURCE] == MEASURING.digest()
    before = digest(facts())
    monkeypatch.setitem(vars(MEASURING), "at_start", "other")
    assert digest(facts()) != before


def test_replay_timing_counts_for_the_replay_engine() -> None:
    other = config(replay_config=config().replay_config.model_copy(update={"step_s": 2}))
    assert digest(facts(other)) == digest(facts())
    assert digest(facts(other, engine="replay")) != digest(facts(engine="replay"))
