"""documentation/calibration.md: how weights, activations and KV cache are quantized, so that it can be repeated.

The checkpoint's folder has two sources: the record of our own stage, and the quantization_config that the checkpoint's
maker wrote for the engine (in the format of compressed-tensors, where harness-llm made it). What the engine quantizes
beside that follows from its settings (engine_numbers.py).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from harness_llm.config.benchmark import Benchmark
from harness_llm.config.checkpoint import QUANTIZATION, model_config, read_record
from harness_llm.submission.engine_numbers import EngineNumbers, read_numbers
from harness_llm.submission.templates import render

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


@dataclass(frozen=True)
class Quantization:
    """How numbers are quantized, by the checkpoint's maker and by the engine.

    Attributes:
        record: of our own stage; empty for a checkpoint that others made.
        model: config.json of the checkpoint.
        engines: what the engine does in each scenario.
    """

    record: Mapping[str, Any] = field(default_factory=dict)
    model: Mapping[str, Any] = field(default_factory=dict)
    engines: Mapping[str, EngineNumbers] = field(default_factory=dict)

    @property
    def config(self) -> Mapping[str, Any]:
        """The checkpoint's quantization_config; empty where nothing is quantized."""
        return self.model.get("quantization_config") or {}

    @property
    def none(self) -> bool:
        """Whether it is known that neither checkpoint nor engine is quantized."""
        unused = all(not (numbers.quantized or numbers.unknown) for numbers in self.engines.values())
        return not self.record and not self.config and unused

    @property
    def notices(self) -> list[str]:
        """What the document cannot say, one sentence for each scenario."""
        return [
            f"calibration.md is incomplete for {scenario}: {numbers.unknown}; add what it quantizes"
            for scenario, numbers in self.engines.items()
            if numbers.unknown
        ]


def read_quantization(checkpoint: Path, fingerprints: Mapping[str, Mapping[str, Any]]) -> Quantization:
    """How `checkpoint` was quantized, and what engines quantize when they serve it.

    Args:
        fingerprints: of the runs, by scenario.

    Raises:
        ConfigError: the checkpoint is no longer what the record says.
    """
    model = model_config(checkpoint)
    engines = {scenario: read_numbers(facts, model) for scenario, facts in fingerprints.items()}
    return Quantization(read_record(checkpoint, QUANTIZATION) or {}, model, engines)


def measurements(benchmark: Benchmark, quantization: Quantization, scenario: str) -> dict[str, str]:
    """measurements.json of `benchmark`: its own facts, and the weights as they are served in `scenario`."""
    engine = quantization.engines.get(scenario, EngineNumbers())
    weights = engine.weights or quantization.record.get("recipe", {}).get("weights")
    return benchmark.measurements | ({"weight_data_types": weights} if weights else {})


def render_calibration(benchmark: Benchmark, quantization: Quantization) -> str:
    """The document on the checkpoint of `benchmark` and the engine that serves it."""
    record, config = quantization.record, quantization.config
    ours = config.get("quant_method") == "compressed-tensors"
    groups = list(config["config_groups"].values()) if ours else []
    recipe = record.get("recipe") or {}
    kv_cache = config.get("kv_cache_scheme") if ours else None
    return render(
        "calibration.md.j2",
        benchmark=benchmark,
        nothing=quantization.none,
        record=record,
        served=bool(record or config),
        engines=_grouped(quantization.engines),
        weights=_descriptions(groups, "weights", recipe.get("algorithm", "")),
        activations=_descriptions(groups, "input_activations"),
        kv_cache=describe(kv_cache) if kv_cache else [],
        calibration=record.get("calibration") or {},
        calibrated=_is_calibrated(groups, kv_cache),
        untouched=config.get("ignore") or recipe.get("ignore") or [],
        recipe=_yaml(recipe),
        foreign="" if ours else _yaml(config),
    )


def _grouped(engines: Mapping[str, EngineNumbers]) -> list[dict[str, Any]]:
    """The scenarios that share number formats, and these."""
    groups: dict[EngineNumbers, list[str]] = {}
    for scenario, numbers in engines.items():
        groups.setdefault(numbers, []).append(scenario)
    return [{"scenarios": scenarios, "numbers": numbers} for numbers, scenarios in groups.items()]


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
