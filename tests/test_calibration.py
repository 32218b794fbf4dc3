"""The document on quantization says what the checkpoint's files say."""

import json
from pathlib import Path
from typing import Any

import pytest

from harness_llm.benchmarks import load_benchmark
from harness_llm.checkpoint import QUANTIZATION, write_record
from harness_llm.errors import ConfigError
from harness_llm.package.calibration import describe, measurements, read_quantization, render_calibration
from harness_llm.workspace import CHECKOUT, Workspace

BENCHMARK = load_benchmark("demo", Workspace(CHECKOUT))

TOOL = {"name": "llmcompressor", "version": "0.14.0.1"}
FP8 = {"type": "float", "num_bits": 8, "symmetric": True, "group_size": None, "block_structure": None}
WEIGHTS: dict[str, Any] = {**FP8, "strategy": "channel", "dynamic": False, "observer": "memoryless_minmax"}
PER_TOKEN: dict[str, Any] = {**FP8, "strategy": "token", "dynamic": True, "observer": None}
PER_TENSOR: dict[str, Any] = {**FP8, "strategy": "tensor", "dynamic": False, "observer": "static_minmax"}


def config(activations: dict[str, Any] | None, kv_cache: dict[str, Any] | None = None) -> dict[str, Any]:
    return {
        "quant_method": "compressed-tensors",
        "config_groups": {
            "group_0": {"targets": ["Linear"], "weights": WEIGHTS, "input_activations": activations},
        },
        "kv_cache_scheme": kv_cache,
        "ignore": ["lm_head"],
    }


def write_checkpoint(folder: Path, quantization: dict[str, Any] | None, **record: Any) -> Path:
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"quantization_config": quantization} if quantization else {}))
    if record:
        write_record(folder, QUANTIZATION, **record)
    return folder


def section(document: str, title: str) -> str:
    return document.split(f"\n## {title}\n\n")[1].split("\n\n## ", maxsplit=1)[0]


def test_a_record_of_ours_is_told_in_full(tmp_path: Path) -> None:
    made = {"recipe": {"scheme": "FP8_DYNAMIC", "targets": "Linear"}, "tool": TOOL, "source": "5" * 64}
    checkpoint = write_checkpoint(tmp_path / "fp8", config(PER_TOKEN), **made)
    document = render_calibration(BENCHMARK, read_quantization(checkpoint))
    assert document.startswith("# Quantization of demo\n")
    assert "llmcompressor 0.14.0.1, an open-source library" in document
    assert "one scale per output channel" in section(document, "Weights")
    assert "scale = m / 448" in section(document, "Weights")
    assert "one scale per token. Scales are computed from the values" in section(document, "Activations")
    assert section(document, "Calibration data").startswith("None:")
    details = section(document, "Additional details")
    assert "lm_head" in details
    assert "5" * 64 in details
    assert "scheme: FP8_DYNAMIC" in details
    assert read_quantization(checkpoint)["files"]["config.json"] in details


def test_static_scales_are_not_said_to_need_no_data(tmp_path: Path) -> None:
    record = {"source": "5" * 64, "config": config(PER_TENSOR)}
    assert (
        section(render_calibration(BENCHMARK, record), "Calibration data") == "It is not recorded with the checkpoint."
    )
    record |= {"calibration": {"file": "cal.pkl", "samples": 1000}}
    assert section(render_calibration(BENCHMARK, record), "Calibration data") == "- file: cal.pkl\n- samples: 1000"


def test_weights_alone_and_the_cache_are_told() -> None:
    document = render_calibration(BENCHMARK, {"source": "5" * 64, "config": config(None, kv_cache=PER_TENSOR)})
    assert section(document, "Activations") == "They are not quantized."
    assert "one scale per tensor" in section(document, "KV cache")
    assert section(document, "Calibration data") == "It is not recorded with the checkpoint."


def test_measurements_name_the_weights_that_were_served() -> None:
    assert measurements(BENCHMARK, {}) == BENCHMARK.measurements
    changed = measurements(BENCHMARK, {"recipe": {"weights": "int4"}})
    assert changed == BENCHMARK.measurements | {"weight_data_types": "int4"}


def test_gptq_does_not_round_to_the_nearest() -> None:
    record = {"source": "5" * 64, "config": config(PER_TOKEN), "recipe": {"algorithm": "gptq"}}
    document = render_calibration(BENCHMARK, record)
    assert "rounded column by column" in section(document, "Weights")
    assert "rounded to the nearest number" in section(document, "Activations")


def test_a_scale_without_an_observer_names_none() -> None:
    text = " ".join(describe(PER_TENSOR | {"observer": None}))
    assert text.endswith("Scales are computed once and stored.")


def test_a_checkpoint_of_others_speaks_for_itself(tmp_path: Path) -> None:
    quark = {"quant_method": "quark", "global_quant_config": {"weight": {"dtype": "fp8_e4m3"}}}
    document = render_calibration(BENCHMARK, read_quantization(write_checkpoint(tmp_path / "quark", quark)))
    assert "quantized before it came here" in document
    assert section(document, "Calibration data") == "It is not recorded with the checkpoint."
    assert "dtype: fp8_e4m3" in section(document, "Its quantization_config")


def test_a_checkpoint_as_it_came_is_said_to_be_one(tmp_path: Path) -> None:
    document = render_calibration(BENCHMARK, read_quantization(write_checkpoint(tmp_path / "bf16", None)))
    assert "Nothing is quantized" in document
    assert "##" not in document


def test_a_checkpoint_that_was_changed_is_refused(tmp_path: Path) -> None:
    checkpoint = write_checkpoint(tmp_path / "fp8", config(PER_TOKEN), source="5" * 64)
    (checkpoint / "config.json").write_text("{} ")
    with pytest.raises(ConfigError, match="damaged"):
        read_quantization(checkpoint)


@pytest.mark.parametrize(
    ("changes", "said", "unsaid"),
    [
        ({"type": "int", "num_bits": 4}, "INT4, symmetric", "448"),
        ({"strategy": "group", "group_size": 128}, "one scale per group of 128 values", "channel"),
        ({"symmetric": False}, "with a zero point", "m /"),
        ({"observer": "mse"}, "the observer is `mse`", "m /"),
        ({"scale_dtype": "torch.uint8"}, "stored as torch.uint8", "m /"),
        ({"num_bits": 6}, "float of 6 bits", "m /"),
    ],
)
def test_numbers_are_described_and_formulas_not_guessed(changes: dict[str, Any], said: str, unsaid: str) -> None:
    text = " ".join(describe(WEIGHTS | changes))
    assert said in text
    assert unsaid not in text
