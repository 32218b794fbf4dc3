import pytest

from harness_llm.config.aliases import CHOICES, FLAGS, MAPPED, REFUSED, VALUED, parse_run_args, translate
from harness_llm.errors import ConfigError


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("--scenario Offline", "--scenarios Offline"),
        ("--scenario=Server", "--scenarios Server"),
        ("--device mi300x", "--gpu mi300x"),
        ("--tensor-parallel-size 8", "--set llm_config.tensor_parallel_size=8"),
        ("--batch-size=64", "--set llm_config.max_num_seqs=64"),
        ("--dtype float16", "--set llm_config.dtype=float16"),
        ("--num-workers 2", "--set harness_config.replicas=2"),
    ],
)
def test_each_becomes_one_of_ours(theirs: str, ours: str) -> None:
    assert translate(["run", *theirs.split(), "--model", "demo"]) == ["run", *ours.split(), "--model", "demo"]


def test_every_mapping_is_tested() -> None:
    assert len(MAPPED) == 6


def test_what_is_ours_stays_as_it_is() -> None:
    words = ["-v", "submit", "--scenarios", "Offline", "--set=llm_config.dtype=float32", "--set", "a.b=c d", ""]
    assert translate(words) == words


@pytest.mark.parametrize("option", sorted(REFUSED))
@pytest.mark.parametrize("form", ["{} /models/x", "{}=/models/x"])
def test_what_has_no_counterpart_is_refused_with_what_takes_its_place(option: str, form: str) -> None:
    with pytest.raises(ConfigError) as caught:
        translate(["run", *form.format(option).split()])
    assert caught.value.what == f"unknown option {option}"
    assert caught.value.hint == REFUSED[option]
    assert caught.value.exit_code == 2


@pytest.mark.parametrize("words", [["--scenario"], ["--scenario="]])
def test_a_value_is_wanted(words: list[str]) -> None:
    with pytest.raises(ConfigError, match="missing value of --scenario"):
        translate(words)


def test_words_of_run_args_stand_where_ours_would() -> None:
    line = ["run", "--run-args", "--benchmarks=gptj  --test_mode 'AccuracyOnly'", "--profile", "test"]
    assert translate(line) == ["run", "--model", "gptj", "--tests", "accuracy", "--profile", "test"]
    assert translate(["run", "--run-args=--fast"]) == ["run", "--profile", "fast"]
    assert translate(["run", "--run-args", ""]) == ["run"]


@pytest.mark.parametrize(
    ("text", "what", "named"),
    [
        ("--core_type=trtllm_endpoint", "unknown option --core_type in RUN_ARGS", [*VALUED, *CHOICES, *FLAGS]),
        ("offline", "unknown option offline in RUN_ARGS", ["--scenarios"]),
        ("--fast=1", "unknown option --fast=1", ["--fast"]),
        (
            "--config_ver=high_accuracy_triton",
            "invalid --config_ver high_accuracy_triton",
            ["default", "high_accuracy"],
        ),
        ("--scenarios", "missing value of --scenarios", []),
        ("--benchmarks='gptj", "RUN_ARGS has a quote without its end", []),
    ],
)
def test_other_words_of_run_args_are_refused_by_naming_those_there_are(text: str, what: str, named: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_run_args(text)
    assert caught.value.what.startswith(what)
    assert all(word in caught.value.expected for word in named)
