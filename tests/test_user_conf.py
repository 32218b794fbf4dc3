import json
import subprocess
import sys
from pathlib import Path

import pytest
from golden import GOLDEN
from hypothesis import given
from hypothesis import strategies as st
from real_loadgen import loadgen_environment, needs_loadgen

from harness_llm.config.user_conf import KEYS, OPEN_ONLY_KEYS, Key, Kind, Name, Number, UserConf, parse
from harness_llm.errors import ConfigError

MODELS = (
    "llama2-70b",
    "llama2-70b-interactive",
    "llama3_1-8b",
    "llama3_1-8b-edge",
    "llama3_1-8b-interactive",
)
GOLDEN_CONFS = sorted(GOLDEN.rglob("user.conf"))


def read(*lines: str) -> UserConf:
    return parse("\n".join(lines), "user.conf", MODELS)


@pytest.mark.parametrize(
    ("line", "expected", "hint"),
    [
        ("*.Server.target_qps=100", "spaces around the =", "write: *.Server.target_qps = 100"),
        ("*.Server.target_qps =100", "spaces around the =", "write: *.Server.target_qps = 100"),
        ("*.Server.target_qps", "model.scenario.key = value", "write: *.Server.target_qps = NUMBER"),
        ("*.Server.target_qps = ", "model.scenario.key = value", "write: *.Server.target_qps = NUMBER"),
        ("*.Server.target_qps = 5 6", "one value", "write: *.Server.target_qps = 5"),
        ("*.Server.target_qps = 5 # fast", "without a comment", "write: *.Server.target_qps = 5"),
        ("hello world", "model.scenario.key = value", "delete the line, or write it as a comment: # hello world"),
        ("#half the rate", "a space after the #", "write: # half the rate"),
        ("target_qps = 5", "model.scenario.key", "write: *.Server.target_qps = 5"),
        ("*.Server.target_qps = fast", Kind.NUMBER, "write: *.Server.target_qps = NUMBER"),
        ("*.Server.target_qps = 0", Kind.NUMBER, "write: *.Server.target_qps = NUMBER"),
        ("*.Server.target_qps = nan", Kind.NUMBER, "write: *.Server.target_qps = NUMBER"),
        ("*.Server.min_duration = 6e5", Kind.INTEGER, "write: *.Server.min_duration = 600000"),
        ("*.Server.min_query_count = 010", Kind.INTEGER, "write: *.Server.min_query_count = 10"),
        ("*.Server.min_query_count = 2147483648", Kind.INTEGER, "NUMBER"),
        ("*.Server.coalesce_queries = 2", Kind.FLAG, "NUMBER"),
        ("*.*.target_latency = 1.5", Kind.INTEGER, "NUMBER"),
        ("*.Server.target_qsp = 5", "target_qps", "the nearest key is target_qps"),
        ("llama2-70.Server.target_qps = 5", "llama2-70b", "the nearest model is llama2-70b"),
        ("*.Servr.target_qps = 5", "Server", "the nearest scenario is Server"),
        ("*.Interactive.target_qps = 5", "Server", "write: MODEL-interactive.Server.target_qps = 5"),
        ("llama2-70b.Interactive.target_qps = 5", "", "write: llama2-70b-interactive.Server.target_qps = 5"),
        ("*.Offline.coalesce_queries = 1", "coalesce_queries for Server", "delete the line"),
        ("*.*.schedule_rng_seed = 1", "embedded mlperf.conf", "delete the line"),
        ("*.*.accuracy_log_sampling_target = 9", "audit.config", "delete the line"),
        ("*.*.mode = 1", "the test sets it", "delete the line"),
    ],
)
def test_line_that_loadgen_would_misread_is_refused(line: str, expected: str, hint: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read("# targets", "", "*.*.min_duration = 600000", line)
    assert caught.value.where == "user.conf:4"
    assert expected in caught.value.expected
    assert hint in caught.value.hint


def test_repeated_setting_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"\*\.Server\.target_qps is set twice") as caught:
        read("*.Server.target_qps = 5", "*.Server.target_qps = 6")
    assert caught.value.where == "user.conf:2"


def test_setting_of_a_scenario_overrides_that_of_a_model() -> None:
    lines = {
        "llama2-70b.Server.min_query_count = 1": 1,
        "*.Server.min_query_count = 2": 2,
        "llama2-70b.*.min_query_count = 3": 3,
        "*.*.min_query_count = 4": 4,
    }
    for left in range(len(lines)):
        conf = read(*list(lines)[left:])
        assert conf.lookup("llama2-70b", "Server", "min_query_count") == left + 1
    assert conf.lookup("llama2-70b", "Server", "target_qps") is None


def test_run_gets_its_own_settings_and_the_overrides() -> None:
    conf = read(
        "*.Server.target_qps = 5",
        "llama2-70b.Offline.target_qps = 9.5",
        "*.*.min_duration = 600000",
        "llama2-70b-interactive.Server.target_qps = 2",
        "*.SingleStream.target_latency = 100",
    )
    offline = conf.for_run("llama2-70b", "Offline", {"min_duration": 1000, "min_query_count": 10})
    assert sorted(offline.render().splitlines()) == [
        "llama2-70b.Offline.min_duration = 1000",
        "llama2-70b.Offline.min_query_count = 10",
        "llama2-70b.Offline.target_qps = 9.5",
    ]
    assert conf.for_run("llama2-70b-interactive", "Server", {}).lookup(
        "llama2-70b-interactive", "Server", "target_qps"
    ) == pytest.approx(2)


@pytest.mark.parametrize(
    ("key", "value"),
    [("qsl_rng_seed", 1), ("min_durations", 1), ("min_duration", 1.5), ("min_duration", True)],
)
def test_wrong_override_is_refused(key: str, value: float) -> None:
    with pytest.raises(ConfigError):
        read().for_run("llama2-70b", "Server", {key: value})


@pytest.mark.parametrize(
    ("line", "open_only"),
    [
        ("*.Server.ttft_latency = 2000", True),
        ("*.Server.target_latency = 10", True),
        ("*.*.target_latency = 10", True),
        ("*.*.use_token_latencies = 0", True),
        ("*.SingleStream.target_latency_percentile = 90", True),
        ("*.SingleStream.target_latency = 10", False),
        ("*.Server.target_qps = 10", False),
    ],
)
def test_latency_settings_are_for_the_open_division_only(line: str, open_only: bool) -> None:
    assert read(line).open_only() == ([line.partition(" ")[0]] if open_only else [])


def test_targets_are_allowed_in_the_closed_division() -> None:
    assert "target_latency" in OPEN_ONLY_KEYS["Server"]
    assert "target_qps" not in OPEN_ONLY_KEYS["Offline"]


@pytest.mark.parametrize("path", GOLDEN_CONFS, ids=lambda p: "-".join(p.parts[-6:-1]))
def test_published_user_confs_are_read(path: Path) -> None:
    assert parse(path.read_text(), str(path), MODELS).values


_VALUES: dict[Kind, st.SearchStrategy[Number]] = {
    Kind.FLAG: st.integers(0, 1),
    Kind.INTEGER: st.integers(0, 2**31 - 1),
    Kind.NUMBER: st.one_of(st.integers(1, 10**12), st.floats(min_value=0, exclude_min=True, allow_infinity=False)),
}


@st.composite
def settings(draw: st.DrawFn) -> tuple[Name, Number]:
    scenario = draw(st.sampled_from(sorted(KEYS)))
    key = draw(st.sampled_from(sorted(KEYS[scenario])))
    return Name(draw(st.sampled_from(["*", *MODELS])), scenario, key), draw(_VALUES[KEYS[scenario][key].kind])


@given(st.lists(settings(), unique_by=lambda setting: setting[0]))
def test_rendered_settings_are_read_back(items: list[tuple[Name, Number]]) -> None:
    conf = UserConf(dict(items))
    assert parse(conf.render(), "user.conf", MODELS) == conf


_LOADGEN = """
import json, sys
import mlperf_loadgen
settings = mlperf_loadgen.TestSettings()
settings.FromConfig(*sys.argv[1:4])
names = json.loads(sys.argv[4])
print(json.dumps({name: getattr(settings, name) for name in names}))
"""


def loadgen_takes(folder: Path, text: str, model: str, scenario: str) -> dict[str, float]:
    """The fields of TestSettings that KEYS names, as LoadGen sets them; it takes one file per process."""
    path = folder / "user.conf"
    path.write_text(text)
    names = json.dumps([key.attribute for key in KEYS[scenario].values()])
    command = [sys.executable, "-c", _LOADGEN, str(path), model, scenario, names]
    environment = loadgen_environment()
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=folder, env=environment)
    taken: dict[str, float] = json.loads(done.stdout)
    return taken


def _value(key: Key) -> Number:
    """One that no mlperf.conf holds."""
    return {Kind.FLAG: 0, Kind.INTEGER: 12345, Kind.NUMBER: 67.5}[key.kind]


@needs_loadgen
@pytest.mark.parametrize("scenario", sorted(KEYS))
@pytest.mark.parametrize("low", [True, False])
def test_loadgen_reads_every_rendered_key(tmp_path: Path, scenario: str, low: bool) -> None:
    """Each key, twice with different values, so that no default hides a key that LoadGen passes over."""
    values = {name: _value(key) + (0 if low else 1) for name, key in KEYS[scenario].items()}
    values |= dict.fromkeys(("use_token_latencies", "infer_token_latencies"), 1)
    conf = read().for_run("llama2-70b", scenario, values)
    taken = loadgen_takes(tmp_path, conf.render(), "llama2-70b", scenario)
    for name, key in KEYS[scenario].items():
        assert taken[key.attribute] == pytest.approx(values[name] * key.factor), name


@needs_loadgen
@pytest.mark.parametrize(
    ("model", "scenario", "qps"),
    [("llama2-70b", "Server", 7.25), ("llama2-70b-interactive", "Server", 3), ("llama2-70b", "Offline", 11)],
)
def test_loadgen_reads_the_same_from_the_file_of_a_run(tmp_path: Path, model: str, scenario: str, qps: float) -> None:
    conf = read(
        "*.*.min_duration = 700000",
        "llama2-70b.*.min_duration = 800000",
        "*.Server.min_duration = 900000",
        "*.Server.target_qps = 7.25",
        "llama2-70b-interactive.Server.target_qps = 3",
        "*.Offline.target_qps = 11",
    )
    whole, run = (
        loadgen_takes(tmp_path, c.render(), model, scenario) for c in (conf, conf.for_run(model, scenario, {}))
    )
    assert whole == run
    assert run[KEYS[scenario]["target_qps"].attribute] == pytest.approx(qps)
