from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from workspaces import CLOSED, edit, make_workspace

from harness_llm.config.benchmark import benchmark_names, load_benchmark
from harness_llm.config.rules import load_round, round_names
from harness_llm.errors import ConfigError
from harness_llm.paths import CHECKOUT, Workspace

# Longest prompts of the published data sets, in token ids: openshift-psap/performance-dashboard 7100702,
# mlperf-data/summaries and datasets/summaries.
LONGEST_PUBLISHED = {
    "llama2-70b": 1021,
    "llama3.1-405b": 19988,
    "llama3.1-8b": 2540,
    "mixtral-8x7b": 1948,
    "deepseek-r1": 3140,
    "gpt-oss-120b": 15330,
}


@pytest.mark.parametrize("name", LONGEST_PUBLISHED)
def test_published_prompts_are_within_the_limit(name: str) -> None:
    assert LONGEST_PUBLISHED[name] <= load_benchmark(name, Workspace(CHECKOUT)).dataset.longest_prompt


@pytest.mark.parametrize("name", benchmark_names(Workspace(CHECKOUT)))
def test_every_benchmark_is_part_of_a_round(name: str) -> None:
    benchmark = load_benchmark(name, Workspace(CHECKOUT))
    assert benchmark.name == name
    assert all(any(variant in load_round(n).benchmarks for n in round_names()) for variant in benchmark.variants)


@pytest.mark.parametrize("name", benchmark_names(Workspace(CHECKOUT)))
def test_test_may_have_its_own_samples_and_sampling(name: str) -> None:
    benchmark = load_benchmark(name, Workspace(CHECKOUT))
    for test in ("performance", *benchmark.sampling_of):
        expected = benchmark.sampling.model_dump() | benchmark.sampling_of.get(test, {})
        assert benchmark.sampling_for(test).model_dump() == expected


def test_unknown_benchmark_lists_the_benchmarks(tmp_path: Path) -> None:
    workspace = make_workspace(tmp_path)
    with pytest.raises(ConfigError, match="unknown benchmark llama9") as caught:
        load_benchmark("llama9", workspace)
    assert caught.value.expected == ", ".join(benchmark_names(workspace))
    assert caught.value.where == str(tmp_path / "models" / "llama9" / "benchmark.yaml")


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (lambda facts: facts.update(tittle="x"), "tittle"),
        (lambda facts: facts["sampling"].update(temprature=1), "sampling.temprature"),
        (lambda facts: facts.pop("variants"), "variants"),
        (lambda facts: facts["accuracy"].update(metrics=["BLEU"]), "accuracy.metrics"),
    ],
)
def test_wrong_file_is_named_with_the_key(tmp_path: Path, change: Callable[[dict[str, Any]], None], named: str) -> None:
    workspace = make_workspace(tmp_path)
    file = tmp_path / "models" / CLOSED / "benchmark.yaml"
    edit(file, change)
    with pytest.raises(ConfigError, match="a benchmark file is wrong") as caught:
        load_benchmark(CLOSED, workspace)
    assert caught.value.where == str(file)
    assert named in caught.value.found


def test_invalid_yaml_is_refused(tmp_path: Path) -> None:
    workspace = make_workspace(tmp_path)
    file = tmp_path / "models" / CLOSED / "benchmark.yaml"
    file.write_text("name: [toy\n")
    with pytest.raises(ConfigError, match="invalid YAML") as caught:
        load_benchmark(CLOSED, workspace)
    assert caught.value.where == str(file)
    assert "line 2" in caught.value.found
