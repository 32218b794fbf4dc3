from pathlib import Path

import pytest

from harness_llm.config.profile import load_profile
from harness_llm.config.rules import load_round
from harness_llm.config.user_conf import parse
from harness_llm.errors import ConfigError
from harness_llm.paths import CHECKOUT, Workspace

ROUND = load_round("v6.1")
MODEL = "llama2-70b"
WHERE = Path("user.conf")


def conf(*lines: str):
    return parse("\n".join(("*.*.print_timestamps = 0", *lines)), "user.conf", {MODEL})


def overrides(profile: str, scenario: str, samples: int) -> dict[str, float]:
    found = load_profile(profile, Workspace(CHECKOUT)).user_conf(
        conf(f"*.{scenario}.target_qps = 5") if scenario != "SingleStream" else conf(),
        MODEL,
        scenario,
        samples,
        official=24576,
    )
    return {
        name.key: value for name, value in found.values.items() if name.key not in {"print_timestamps", "target_qps"}
    }


@pytest.mark.parametrize("scenario", ["Offline", "Server"])
def test_smoke_shortens_runs_and_valid_keeps_those_of_the_round(scenario: str) -> None:
    assert overrides("smoke", scenario, 2048) == {
        "min_duration": 500,
        "min_query_count": 2048,
        "performance_sample_count_override": 2048,
    }
    assert overrides("valid", scenario, 24576) == {}
    assert overrides("valid", scenario, 100) == {"min_query_count": 100, "performance_sample_count_override": 100}


@pytest.mark.parametrize(
    ("profile", "samples", "duration"),
    [("test", 5, 0), ("smoke", 2048, 500), ("rehearsal", 512, 500), ("fast", 4916, 120_000)],
)
def test_trees_of_short_profiles_are_marked(profile: str, samples: int, duration: int) -> None:
    assert overrides(profile, "Server", samples) == {
        "min_duration": duration,
        "min_query_count": samples,
        "performance_sample_count_override": samples,
    }
    found = load_profile(profile, Workspace(CHECKOUT))
    assert (found.submittable, found.label, found.packaged) == (False, profile, profile != "test")


def test_valid_profile_with_fewer_samples_is_not_submittable() -> None:
    valid = load_profile("valid", Workspace(CHECKOUT))
    assert valid.label == "valid"
    assert valid.model_copy(update={"min_duration_ms": 1}).label == "valid-lowered"
    assert valid.model_copy(update={"rehearsed": True}).label == "valid-lowered"


def test_only_the_rehearsal_profile_packages_the_replay_engine() -> None:
    for name in ("test", "smoke", "fast", "valid"):
        profile = load_profile(name, Workspace(CHECKOUT))
        profile.check_engine("vllm")
        with pytest.raises(ConfigError, match="the replay engine computes nothing"):
            profile.check_engine("replay")
    rehearsal = load_profile("rehearsal", Workspace(CHECKOUT))
    rehearsal.check_engine("replay")
    with pytest.raises(ConfigError, match="packages runs of the replay engine only"):
        rehearsal.check_engine("vllm")


def test_loadgen_pads_single_stream_samples() -> None:
    assert overrides("smoke", "SingleStream", 2048)["min_query_count"] == 1


@pytest.mark.parametrize(
    ("profile", "requested", "count"),
    [
        ("smoke", None, 2048),
        ("smoke", 10, 10),
        ("valid", None, 24576),
        ("valid", 10, 10),
        ("valid", 10**6, 24576),
        ("test", None, 5),
        ("fast", None, 4916),
        ("fast", 10, 10),
    ],
)
def test_sample_count_option_overrides_the_profile(profile: str, requested: int | None, count: int) -> None:
    assert load_profile(profile, Workspace(CHECKOUT)).sample_count(24576, requested) == count


@pytest.mark.parametrize("line", ["*.*.min_duration = 599999", f"{MODEL}.Server.min_duration = 0"])
def test_valid_refuses_a_shorter_duration(line: str) -> None:
    valid, smoke = (load_profile(name, Workspace(CHECKOUT)) for name in ("valid", "smoke"))
    with pytest.raises(ConfigError, match="min_duration is shorter than the round requires") as caught:
        valid.check_duration(conf(line), MODEL, "Server", ROUND, WHERE)
    assert caught.value.where == "user.conf: Server.min_duration"
    assert caught.value.expected == "at least 600000 ms"
    assert caught.value.found == f"{line.rpartition(' ')[2]} ms"
    smoke.check_duration(conf(line), MODEL, "Server", ROUND, WHERE)


@pytest.mark.parametrize("line", ["*.*.min_duration = 600000", "*.Offline.min_duration = 1", "# nothing"])
def test_valid_accepts_settings_that_the_round_allows(line: str) -> None:
    load_profile("valid", Workspace(CHECKOUT)).check_duration(conf(line), MODEL, "Server", ROUND, WHERE)


def test_unknown_profile_lists_the_profiles() -> None:
    with pytest.raises(ConfigError, match="unknown profile slow") as caught:
        load_profile("slow", Workspace(CHECKOUT))
    assert caught.value.expected == "test, smoke, rehearsal, fast, valid"
