"""calibration.md follows from the files of the checkpoint."""

import json
from pathlib import Path
from typing import Any

import pytest

from harness_llm.config.benchmark import load_benchmark
from harness_llm.config.checkpoint import QUANTIZATION, write_record
from harness_llm.errors import ConfigError
from harness_llm.paths import CHECKOUT, Workspace
from harness_llm.submission.calibration import (
    Quantization,
    describe,
    measurements,
    read_quantization,
    render_calibration,
)
from harness_llm.submission.engine_formats import EngineFormats, read_formats

BENCHMARK = load_benchmark("demo", Workspace(CHECKOUT))

TOOL = {"name": "llmcompressor", "version": "0.14.0.1"}
FP8 = {"type": "float", "num_bits": 8, "symmetric": True, "group_size": None, "block_structure": None}
WEIGHTS: dict[str, Any] = {**FP8, "strategy": "channel", "dynamic": False, "observer": "memoryless_minmax"}
PER_TOKEN: dict[str, Any] = {**FP8, "strategy": "token", "dynamic": True, "observer": None}
PER_TENSOR: dict[str, Any] = {**FP8, "strategy": "tensor", "dynamic": False, "observer": "static_minmax"}
NO_RECORD = "The checkpoint has no record of its calibration data."


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


def quantized(
    activations: dict[str, Any] | None, kv_cache: dict[str, Any] | None = None, **record: Any
) -> Quantization:
    """A checkpoint with a record of ours."""
    return Quantization({"source": "5" * 64, **record}, {"quantization_config": config(activations, kv_cache)})


def served(environment: dict[str, str] | None = None, server: dict[str, Any] | None = None, **arguments: Any) -> dict:
    """The fingerprint of a run of vLLM, or of a server where one is named."""
    return {
        "engine": "openai" if server else "vllm",
        "llm_config": {"max_num_seqs": 64, **arguments},
        "env_config": environment or {},
        **({"server_config": {"kind": "vllm", "url": [], "command": "", **server}} if server else {}),
    }


def engine_section(fingerprints: dict[str, dict], model: dict[str, Any] | None = None) -> str:
    engines = {scenario: read_formats(fingerprint, model or {}) for scenario, fingerprint in fingerprints.items()}
    document = render_calibration(BENCHMARK, Quantization({}, model or {}, engines))
    assert "No tensor is quantized" not in document
    return section(document, "By the engine")


def section(document: str, title: str) -> str:
    return document.split(f"\n## {title}\n\n")[1].split("\n\n## ", maxsplit=1)[0]


def test_own_quantization_is_described_completely(tmp_path: Path) -> None:
    made = {"recipe": {"scheme": "FP8_DYNAMIC", "targets": "Linear"}, "tool": TOOL, "source": "5" * 64}
    checkpoint = write_checkpoint(tmp_path / "fp8", config(PER_TOKEN), **made)
    document = render_calibration(BENCHMARK, read_quantization(checkpoint, {}))
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
    assert read_quantization(checkpoint, {}).record["files"]["config.json"] in details


def test_static_scales_are_described_with_their_calibration_set(tmp_path: Path) -> None:
    bare = render_calibration(BENCHMARK, quantized(PER_TENSOR))
    assert section(bare, "Calibration data") == NO_RECORD
    told = render_calibration(BENCHMARK, quantized(PER_TENSOR, calibration={"file": "cal.pkl", "samples": 1000}))
    assert section(told, "Calibration data") == "- file: cal.pkl\n- samples: 1000"


def test_weight_and_cache_formats_are_described() -> None:
    document = render_calibration(BENCHMARK, quantized(None, PER_TENSOR))
    assert section(document, "Activations") == "Activations are not quantized."
    assert "one scale per tensor" in section(document, "KV cache")
    assert section(document, "Calibration data") == NO_RECORD


def test_measurements_name_the_served_weight_format() -> None:
    int4 = Quantization({"recipe": {"weights": "int4"}}, engines={"Server": EngineFormats(weights="fp8")})
    for scenario, weights in (("Offline", "int4"), ("Server", "fp8")):
        changed = measurements(BENCHMARK, int4, scenario)
        assert changed == BENCHMARK.measurements | {"weight_data_types": weights}


def test_gptq_is_not_described_as_rounding_to_nearest() -> None:
    document = render_calibration(BENCHMARK, quantized(PER_TOKEN, recipe={"algorithm": "gptq"}))
    assert "rounded column by column" in section(document, "Weights")
    assert "rounded to the nearest number" in section(document, "Activations")


def test_scale_without_an_observer_names_none() -> None:
    text = " ".join(describe(PER_TENSOR | {"observer": None}))
    assert text.endswith("Scales are computed once and stored.")


def test_foreign_checkpoint_is_described_by_its_configuration(tmp_path: Path) -> None:
    quark = {"quant_method": "quark", "global_quant_config": {"weight": {"dtype": "fp8_e4m3"}}}
    document = render_calibration(BENCHMARK, read_quantization(write_checkpoint(tmp_path / "quark", quark), {}))
    assert "provided in quantized form" in document
    assert section(document, "Calibration data") == NO_RECORD
    assert "dtype: fp8_e4m3" in section(document, "quantization_config of the checkpoint")


def test_unchanged_published_checkpoint_is_described_as_published(tmp_path: Path) -> None:
    checkpoint = write_checkpoint(tmp_path / "bf16", None)
    document = render_calibration(BENCHMARK, read_quantization(checkpoint, {"Offline": served(dtype="bfloat16")}))
    assert "No tensor is quantized" in document
    assert "##" not in document


def test_changed_checkpoint_is_refused(tmp_path: Path) -> None:
    checkpoint = write_checkpoint(tmp_path / "fp8", config(PER_TOKEN), source="5" * 64)
    (checkpoint / "config.json").write_text("{} ")
    with pytest.raises(ConfigError, match="damaged"):
        read_quantization(checkpoint, {})


@pytest.mark.parametrize(
    ("changes", "said", "unsaid"),
    [
        ({"type": "int", "num_bits": 4}, "INT4, symmetric", "448"),
        ({"strategy": "group", "group_size": 128}, "one scale per group of 128 values", "channel"),
        ({"symmetric": False}, "with a zero point", "m /"),
        ({"observer": "mse"}, "(observer `mse`)", "m /"),
        ({"scale_dtype": "torch.uint8"}, "stored as torch.uint8", "m /"),
        ({"num_bits": 6}, "float of 6 bits", "m /"),
    ],
)
def test_number_formats_are_described_without_guessed_formulas(changes: dict[str, Any], said: str, unsaid: str) -> None:
    text = " ".join(describe(WEIGHTS | changes))
    assert said in text
    assert unsaid not in text


def test_cache_quantized_by_the_engine_is_described_by_scenario() -> None:
    text = engine_section(
        {
            "Offline": served(dtype="bfloat16", kv_cache_dtype="fp8"),
            "Server": served(dtype="bfloat16", kv_cache_dtype="fp8"),
            "Interactive": served(dtype="bfloat16"),
        }
    )
    quantized_too, plain = text.split("\n\nInteractive:\n\n")
    assert quantized_too.startswith(
        "Offline, Server:\n\n- Data type of all tensors that are not quantized: bfloat16.\n- The KV cache"
    )
    assert "FP8 (E4M3) (`kv_cache_dtype: fp8`). The checkpoint stores no scales of keys and values" in quantized_too
    assert "The engine quantizes no further tensors" in plain


@pytest.mark.parametrize(
    ("name", "model", "said"),
    [
        (
            "fp8",
            {"quantization_config": config(None, PER_TENSOR)},
            "Scales of keys and values are read from the checkpoint",
        ),
        ("auto", {"quantization_config": config(None, PER_TENSOR)}, "FP8 (E4M3) (`kv_cache_dtype: fp8`)"),
        ("fp8_e5m2", {}, "FP8 (E5M2)"),
        ("int8_per_token_head", {}, "Each token and head has its own scale"),
        ("turboquant_4bit_nc", {}, "stored in turboquant_4bit_nc"),
    ],
)
def test_cache_scales_are_described(name: str, model: dict[str, Any], said: str) -> None:
    assert said in engine_section({"Offline": served(kv_cache_dtype=name)}, model)


def test_weights_quantized_at_load_time_are_described() -> None:
    fingerprint = served(quantization="fp8")
    assert "at load time, by its method `fp8`" in engine_section({"Offline": fingerprint})
    assert read_formats(fingerprint, {}).weights == "fp8"
    assert not read_formats(fingerprint, {"quantization_config": config(PER_TOKEN)}).weights


def test_every_number_format_setting_is_described() -> None:
    environment = {"VLLM_MARLIN_INPUT_DTYPE": "int8", "VLLM_ROCM_QUICK_REDUCE_QUANTIZATION": "NONE", "VLLM_X": "1"}
    text = engine_section({"Offline": served(environment, quantization_config={"moe": {"activation": "mxfp8"}})})
    assert "`quantization_config.moe.activation: mxfp8`" in text
    assert "`VLLM_MARLIN_INPUT_DTYPE: int8`" in text
    assert "QUICK_REDUCE" not in text
    assert "VLLM_X" not in text


@pytest.mark.parametrize(
    ("speculation", "said"),
    [
        ({"method": "mtp"}, "The checkpoint's own draft head (`method: mtp`) proposes tokens"),
        ({"method": "eagle3", "model": "/models/a-head"}, "The draft head `a-head` proposes tokens."),
    ],
)
def test_draft_head_is_named_in_the_speculating_scenario(speculation: dict[str, Any], said: str) -> None:
    text = engine_section(
        {"Interactive": served(kv_cache_dtype="fp8", speculative_config=speculation), "Server": served()}
    )
    speculating, plain = text.split("\n\nServer:\n\n")
    assert said in speculating
    assert "proposes" not in plain


@pytest.mark.parametrize(
    ("server", "said"),
    [
        ({"url": ["http://a:1"]}, "http://a:1 were not started by harness-llm"),
        ({"command": "my-server --fp8"}, "`my-server --fp8`"),
        ({"kind": "sglang"}, "number formats of sglang servers"),
    ],
)
def test_quantization_by_a_foreign_server_is_described_as_unknown(server: dict[str, Any], said: str) -> None:
    fingerprint = served(server=server)
    assert said in engine_section({"Offline": fingerprint})
    quantization = Quantization(engines={"Offline": read_formats(fingerprint, {})})
    assert [said in notice and "incomplete for Offline" in notice for notice in quantization.notices] == [True]


def test_quantization_by_an_own_server_is_described() -> None:
    assert "FP8 (E4M3)" in engine_section({"Offline": served(server={"kind": "vllm"}, kv_cache_dtype="fp8")})
