"""documentation/calibration.md: quantization of weights, activations and KV cache.

Sources: the record of `harness-llm quantize`, the quantization_config of the checkpoint (in the format of
compressed-tensors if harness-llm quantized it), and the engine settings (engine_formats.py).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from harness_llm.config.benchmark import Benchmark
from harness_llm.config.checkpoint import QUANTIZATION, model_config, read_record
from harness_llm.config.model_shape import model_dtype
from harness_llm.submission.engine_formats import EngineFormats, read_formats
from harness_llm.submission.templates import render
from harness_llm.submission.weight_formats import quantized_format, unquantized_format

# Name and largest value of each number format (compressed_tensors, quantization/quant_args.py).
_FORMATS = {
    ("float", 8): ("FP8 (E4M3)", 448.0),
    ("float", 4): ("FP4 (E2M1)", 6.0),
    ("int", 8): ("INT8", 127.5),
    ("int", 4): ("INT4", 7.5),
}
_GRANULARITIES = {
    "tensor": "tensor",
    "channel": "output channel",
    "token": "token",
    "group": "group of {group_size} values",
    "tensor_group": "group of {group_size} values, and a second scale per tensor",
    "block": "block of {block_structure} values",
}
_ROUNDINGS = {
    "": "rounded to the nearest number of the format",
    "gptq": "rounded column by column (GPTQ): later columns compensate the rounding error of earlier ones, which "
    "minimizes the change of the layer's output on the calibration data",
}
_NONE, _QUANTIZED = "none", "quantization"  # weight_transformations, as published
_MINMAX_OBSERVERS = ("memoryless_minmax", "static_minmax")  # llmcompressor/observers/min_max.py


@dataclass(frozen=True)
class Quantization:
    """Quantization of the checkpoint and by the engine.

    Attributes:
        record: written by `harness-llm quantize`; empty for other checkpoints.
        model: config.json of the checkpoint.
        engines: number formats of the engine, by scenario.
        checkpoint: its folder, for error messages.
    """

    record: Mapping[str, Any] = field(default_factory=dict)
    model: Mapping[str, Any] = field(default_factory=dict)
    engines: Mapping[str, EngineFormats] = field(default_factory=dict)
    checkpoint: Path = Path()

    @property
    def config(self) -> Mapping[str, Any]:
        """quantization_config of the checkpoint; empty if it is not quantized."""
        return self.model.get("quantization_config") or {}

    @property
    def unquantized(self) -> bool:
        """Whether neither the checkpoint nor the engine quantizes; False if that is unknown."""
        by_engine = any(formats.quantized or formats.unknown for formats in self.engines.values())
        return not (self.record or self.config or by_engine)

    @property
    def notices(self) -> list[str]:
        """One sentence for each scenario whose quantization the submitter must document."""
        return [
            f"calibration.md is incomplete for {scenario}: {formats.unknown}; document its quantization there"
            ", and correct the weights' format in measurements.json"
            for scenario, formats in self.engines.items()
            if formats.unknown
        ]


def read_quantization(checkpoint: Path, fingerprints: Mapping[str, Mapping[str, Any]]) -> Quantization:
    """Read the quantization of `checkpoint` and of the engines that served it.

    Args:
        fingerprints: of the runs, by scenario.

    Raises:
        ConfigError: a file of the checkpoint differs from its record.
    """
    model = model_config(checkpoint)
    engines = {scenario: read_formats(facts, model) for scenario, facts in fingerprints.items()}
    return Quantization(read_record(checkpoint, QUANTIZATION) or {}, model, engines, checkpoint)


def measurements(benchmark: Benchmark, quantization: Quantization, scenario: str) -> dict[str, str]:
    """Content of measurements.json, with the format of the weights that `scenario` served.

    Raises:
        ConfigError: the format of the checkpoint's weights is unknown.
    """
    engine = quantization.engines.get(scenario, EngineFormats())
    made = engine.weights or quantization.record.get("recipe", {}).get("weights", "")
    stored = "" if made else quantized_format(quantization.config, quantization.checkpoint)
    weights = made or stored or unquantized_format(engine.dtype or model_dtype(quantization.model))
    unchanged = benchmark.measurements | {"weight_data_types": weights, "weight_transformations": _NONE}
    # Some models are published in a quantized format; their benchmarks state it without a transformation.
    if made or (stored and unchanged != benchmark.measurements):
        return unchanged | {"weight_transformations": _QUANTIZED}
    return unchanged


def render_calibration(benchmark: Benchmark, quantization: Quantization) -> str:
    """Render the calibration document of one benchmark."""
    record, config = quantization.record, quantization.config
    compressed_tensors = config.get("quant_method") == "compressed-tensors"
    groups = list(config["config_groups"].values()) if compressed_tensors else []
    recipe = record.get("recipe") or {}
    kv_cache = config.get("kv_cache_scheme") if compressed_tensors else None
    return render(
        "calibration.md.j2",
        benchmark=benchmark,
        unquantized=quantization.unquantized,
        record=record,
        checkpoint_quantized=bool(record or config),
        engines=_grouped(quantization.engines),
        weights=_descriptions(groups, "weights", recipe.get("algorithm", "")),
        activations=_descriptions(groups, "input_activations"),
        kv_cache=describe(kv_cache) if kv_cache else [],
        calibration=record.get("calibration") or {},
        calibrated=_is_calibrated(groups, kv_cache),
        ignored=config.get("ignore") or recipe.get("ignore") or [],
        recipe=_yaml(recipe),
        other_config="" if compressed_tensors else _yaml(config),
    )


def _grouped(engines: Mapping[str, EngineFormats]) -> list[dict[str, Any]]:
    """Group scenarios with equal number formats."""
    groups: dict[EngineFormats, list[str]] = {}
    for scenario, formats in engines.items():
        groups.setdefault(formats, []).append(scenario)
    return [{"scenarios": scenarios, "formats": formats} for formats, scenarios in groups.items()]


def describe(scheme: Mapping[str, Any], algorithm: str = "") -> list[str]:
    """Describe the quantization of one kind of tensor in sentences.

    Args:
        scheme: QuantizationArgs of compressed-tensors.
        algorithm: rounding algorithm; empty for round-to-nearest.
    """
    kind, bits = scheme["type"], scheme["num_bits"]
    name, largest = _FORMATS.get((kind, bits), (f"{kind} of {bits} bits", None))
    granularity = _GRANULARITIES.get(scheme["strategy"], scheme["strategy"]).format(**scheme)
    symmetry = "symmetric" if scheme["symmetric"] else "with a zero point"
    stored = f", stored as {scheme['scale_dtype']}" if scheme.get("scale_dtype") else ""
    summary = f"{name}, {symmetry}, one scale per {granularity}{stored}."
    return [summary, _scale_source(scheme), *_formula(scheme, largest, algorithm)]


def _scale_source(scheme: Mapping[str, Any]) -> str:
    if scheme["dynamic"]:
        return "Scales are computed from the values at run time, without calibration."
    observer = f" (observer `{scheme['observer']}`)" if scheme["observer"] else ""
    return f"Scales are computed once and stored{observer}."


def _formula(scheme: Mapping[str, Any], largest: float | None, algorithm: str) -> Iterator[str]:
    """The formula of symmetric scales from absolute maxima; it does not hold for scales in a reduced format."""
    rounding = _ROUNDINGS[algorithm]
    from_maximum = scheme["dynamic"] or scheme["observer"] in _MINMAX_OBSERVERS
    if largest and from_maximum and scheme["symmetric"] and not scheme.get("scale_dtype"):
        yield (
            f"With m the largest absolute value that shares a scale, scale = m / {largest:g}, and a value x is stored "
            f"as x / scale, {rounding}."
        )


def _descriptions(groups: Sequence[Mapping[str, Any]], tensors: str, algorithm: str = "") -> list[dict[str, Any]]:
    return [{"targets": g["targets"], "sentences": describe(g[tensors], algorithm)} for g in groups if g.get(tensors)]


def _is_calibrated(groups: Sequence[Mapping[str, Any]], kv_cache: Mapping[str, Any] | None) -> bool:
    """Static scales of activations or KV cache require calibration samples."""
    schemes = [*(group.get("input_activations") for group in groups), kv_cache]
    return any(scheme and not scheme["dynamic"] for scheme in schemes)


def _yaml(document: object) -> str:
    return yaml.safe_dump(document, sort_keys=False, allow_unicode=True).strip() if document else ""
