"""measurements.json names the number format of the served weights, whatever checkpoint is in the folder."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from runs import SUBJECT

from harness_llm.config.benchmark import load_benchmark
from harness_llm.config.checkpoint import model_config
from harness_llm.errors import ConfigError
from harness_llm.fileio import read_yaml
from harness_llm.paths import CHECKOUT, Workspace
from harness_llm.prepare.quantize import quantization_config
from harness_llm.submission.calibration import Quantization, measurements, read_quantization, render_calibration

MODELS = Workspace(CHECKOUT).benchmarks
WRITTEN: dict[str, Any] = json.loads(quantization_config._FILE.read_text())
RECIPES: dict[str, Any] = read_yaml(MODELS / "quantization.yaml")["recipes"]
UNKNOWN = {"quantization_config": {"quant_method": "bitsandbytes", "load_in_4bit": True}}


def stated(model: str, quantization: Quantization) -> tuple[str, str]:
    found = measurements(load_benchmark(model, Workspace(CHECKOUT)), quantization, "Offline")
    return found["weight_data_types"], found["weight_transformations"]


def provided(folder: Path, config: dict[str, Any], engine: str = "vllm", **arguments: Any) -> Quantization:
    """A checkpoint that harness-llm did not quantize, and the engine that served it."""
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    return read_quantization(folder, {"Offline": SUBJECT | {"engine": engine, "llm_config": arguments}})


@pytest.mark.parametrize(
    ("model", "weights"),
    [
        ("llama2-70b", "fp16"),
        ("llama3.1-8b", "bf16"),
        ("llama3.1-405b", "bf16"),
        ("mixtral-8x7b", "bf16"),
        ("deepseek-r1", "fp8"),
        ("gpt-oss-120b", "mxfp4"),
    ],
)
def test_published_checkpoint_is_not_transformed(tmp_path: Path, model: str, weights: str) -> None:
    quantization = provided(tmp_path, model_config(MODELS / model))
    assert stated(model, quantization) == (weights, "none")


@pytest.mark.parametrize("recipe", WRITTEN)
def test_quantized_checkpoint_without_a_record_is_named_as_with_one(tmp_path: Path, recipe: str) -> None:
    quantization = provided(tmp_path, {"quantization_config": WRITTEN[recipe]})
    assert stated("llama2-70b", quantization) == (RECIPES[recipe]["weights"], "quantization")


@pytest.mark.parametrize(
    ("config", "weights"),
    [
        ({"quant_method": "gptq", "bits": 4}, "int4"),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, "nvfp4"),
    ],
)
def test_checkpoints_of_other_tools_are_named(tmp_path: Path, config: dict[str, Any], weights: str) -> None:
    assert stated("gptj", provided(tmp_path, {"quantization_config": config})) == (weights, "quantization")


@pytest.mark.parametrize("model", ["gptj", "gpt-oss-120b"])
def test_recipe_is_a_transformation_of_every_model(model: str) -> None:
    assert stated(model, Quantization({"recipe": {"weights": "fp8"}})) == ("fp8", "quantization")


def test_quantization_of_the_cache_alone_is_none_of_the_weights(tmp_path: Path) -> None:
    (group,) = WRITTEN["fp8-static"]["config_groups"].values()
    config = WRITTEN["fp8-static"] | {"config_groups": {"group_0": group | {"weights": None}}}
    quantization = provided(tmp_path, {"dtype": "bfloat16", "quantization_config": config})
    assert stated("llama2-70b", quantization) == ("bf16", "none")


@pytest.mark.parametrize(
    ("engine", "arguments", "weights"),
    [
        ("vllm", {"quantization": "fp8"}, ("fp8", "quantization")),
        ("vllm", {"dtype": "float16"}, ("fp16", "none")),
        ("vllm", {}, ("bf16", "none")),  # vLLM converts 32 bits
        ("transformers", {}, ("fp32", "none")),
    ],
)
def test_engine_changes_the_format(
    tmp_path: Path, engine: str, arguments: dict[str, Any], weights: tuple[str, str]
) -> None:
    quantization = provided(tmp_path, model_config(MODELS / "gptj"), engine, **arguments)
    assert stated("gptj", quantization) == weights


def test_unknown_format_is_refused_until_it_is_stated(tmp_path: Path) -> None:
    folder = tmp_path / "a checkpoint"
    with pytest.raises(ConfigError, match="unknown number format") as caught:
        stated("llama2-70b", provided(folder, UNKNOWN))
    assert (caught.value.where, caught.value.found) == (
        f"{folder}/config.json, quantization_config",
        "quant_method bitsandbytes",
    )
    subprocess.run(caught.value.hint.partition(": ")[2], shell=True, check=True)  # noqa: S602 - the hint
    quantization = provided(folder, UNKNOWN)
    assert stated("llama2-70b", quantization) == ("int4", "quantization")
    document = render_calibration(load_benchmark("llama2-70b", Workspace(CHECKOUT)), quantization)
    assert "The checkpoint was provided in quantized form" in document
