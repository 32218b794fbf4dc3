"""documentation/calibration.md: how a checkpoint was quantized, at a level where it can be done again.

What was done stands in two places of the checkpoint's folder: the record of our own stage, and the quantization_config
that the checkpoint's maker wrote for the engine (in the format of compressed-tensors, where we were the maker).
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from harness_llm.benchmarks import Benchmark
from harness_llm.checkpoint import QUANTIZATION, quantization_config, read_record
from harness_llm.package.rendering import render

# Names of number formats, and the largest value of each; compressed_tensors, quantization/quant_args.py.
_FORMATS = {
    ("float", 8): ("FP8 (E4M3)", 448.0),
    ("float", 4): ("FP4 (E2M1)", 6.0),
    ("int", 8): ("INT8", 127.5),
    ("int", 4): ("INT4", 7.5),
}
_SHARERS = {
    "tensor": "tensor",
    "channel": "output channel",
    "token": "token",
    "group": "group of {group_size} values",
    "tensor_group": "group of {group_size} values, and one more per tensor",
    "block": "block of {block_structure} values",
}
_ROUNDINGS = {
    "": "rounded to the nearest number of the format",
    "gptq": "rounded column by column, the error of each made good in those that follow, so that the layer's outputs "
    "for the calibration data change least (GPTQ)",
}
_EXTREMES = ("memoryless_minmax", "static_minmax")  # observers that keep extremes; llmcompressor/observers/min_max.py


def read_quantization(checkpoint: Path) -> dict[str, Any]:
    """What is known of how `checkpoint` was quantized: our record, and `config`, its quantization_config.

    Empty for a checkpoint that is not quantized; without our record for one that others quantized.

    Raises:
        ConfigError: the checkpoint is no longer what the record says.
    """
    config = quantization_config(checkpoint)
    return (read_record(checkpoint, QUANTIZATION) or {}) | ({"config": config} if config else {})


def measurements(benchmark: Benchmark, record: Mapping[str, Any]) -> dict[str, str]:
    """What measurements.json says of `benchmark`: its own facts, and the weights as the record has them.

    Args:
        record: from `read_quantization`.
    """
    weights = record.get("recipe", {}).get("weights")
    return benchmark.measurements | ({"weight_data_types": weights} if weights else {})


def render_calibration(benchmark: Benchmark, record: Mapping[str, Any]) -> str:
    """The document on the checkpoint of `benchmark`.

    Args:
        record: from `read_quantization`.
    """
    config: dict[str, Any] = record.get("config") or {}
    ours = config.get("quant_method") == "compressed-tensors"
    groups = list(config["config_groups"].values()) if ours else []
    recipe = record.get("recipe") or {}
    kv_cache = config.get("kv_cache_scheme") if ours else None
    return render(
        "calibration.md.j2",
        benchmark=benchmark,
        record=record,
        weights=_descriptions(groups, "weights", recipe.get("algorithm", "")),
        activations=_descriptions(groups, "input_activations"),
        kv_cache=describe(kv_cache) if kv_cache else [],
        calibration=record.get("calibration") or {},
        calibrated=_is_calibrated(groups, kv_cache),
        untouched=config.get("ignore") or recipe.get("ignore") or [],
        recipe=_yaml(recipe),
        foreign="" if ours else _yaml(config),
    )


def describe(numbers: Mapping[str, Any], algorithm: str = "") -> list[str]:
    """How one kind of tensor is quantized, a sentence each, from its arguments in compressed-tensors' format.

    Args:
        algorithm: what chose the numbers; rounding to the nearest if empty.
    """
    kind, bits = numbers["type"], numbers["num_bits"]
    name, largest = _FORMATS.get((kind, bits), (f"{kind} of {bits} bits", None))
    sharer = _SHARERS.get(numbers["strategy"], numbers["strategy"]).format(**numbers)
    way = "symmetric" if numbers["symmetric"] else "with a zero point"
    stored = f", stored as {numbers['scale_dtype']}" if numbers.get("scale_dtype") else ""
    return [f"{name}, {way}, one scale per {sharer}{stored}.", _origin(numbers), *_formula(numbers, largest, algorithm)]


def _origin(numbers: Mapping[str, Any]) -> str:
    if numbers["dynamic"]:
        return "Scales are computed from the values themselves while serving; nothing is calibrated."
    observer = f"; the observer is `{numbers['observer']}`" if numbers["observer"] else ""
    return f"Scales are computed once and stored{observer}."


def _formula(numbers: Mapping[str, Any], largest: float | None, algorithm: str) -> Iterator[str]:
    """Of symmetric scales from extremes, as dynamic ones are too, that are no numbers of a format of their own."""
    rounding = _ROUNDINGS[algorithm]
    plain = numbers["dynamic"] or numbers["observer"] in _EXTREMES
    if largest and plain and numbers["symmetric"] and not numbers.get("scale_dtype"):
        yield (
            f"With m the largest absolute value that shares a scale, scale = m / {largest:g}, and a value x is stored "
            f"as x / scale, {rounding}."
        )


def _descriptions(groups: Sequence[Mapping[str, Any]], tensors: str, algorithm: str = "") -> list[dict[str, Any]]:
    return [{"targets": g["targets"], "sentences": describe(g[tensors], algorithm)} for g in groups if g.get(tensors)]


def _is_calibrated(groups: Sequence[Mapping[str, Any]], kv_cache: Mapping[str, Any] | None) -> bool:
    """Scales that are fixed before any activation is seen can only come from samples."""
    seen = [*(group.get("input_activations") for group in groups), kv_cache]
    return any(numbers and not numbers["dynamic"] for numbers in seen)


def _yaml(document: object) -> str:
    return yaml.safe_dump(document, sort_keys=False, allow_unicode=True).strip() if document else ""
