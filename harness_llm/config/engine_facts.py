"""Facts of one scenario that select vLLM's backends, resolved as vLLM resolves them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from harness_llm.config.model_shape import Config, model_dtype
from harness_llm.hardware.gpus import Gpu

FP8_CACHES = ("fp8", "fp8_e4m3")


@dataclass(frozen=True)
class Facts:
    """Facts that select a backend.

    Attributes:
        platform: cuda or rocm.
        architecture: as in models/gpus.yaml, such as sm_90.
        dtype: of activations.
        kv_cache_dtype: `auto` is 16 bits.
        kv_scales: whether the checkpoint contains scales of an FP8 KV cache.
        mla: whether the model has multi-head latent attention.
        attention_backend: empty if vLLM selects one.
    """

    platform: str
    architecture: str
    dtype: str
    kv_cache_dtype: str
    kv_scales: bool
    mla: bool
    attention_backend: str


def resolve_facts(config: Config, llm_config: Mapping[str, Any], gpu: Gpu) -> Facts:
    """The facts of `llm_config` for the model of `config` on `gpu`."""
    return Facts(
        platform=gpu.platform,
        architecture=gpu.architecture,
        dtype=compute_dtype(config, llm_config),
        kv_cache_dtype=cache_dtype(config, llm_config),
        kv_scales=has_cache_scales(config),
        mla="kv_lora_rank" in config,
        attention_backend=str(llm_config.get("attention_backend") or ""),
    )


def compute_dtype(config: Config, llm_config: Mapping[str, Any]) -> str:
    """The dtype of activations and of unquantized weights."""
    named = {"auto": model_dtype(config), "half": "float16", "float": "float32"}
    own = str(llm_config.get("dtype", "auto"))
    return named.get(own, own)


def cache_dtype(config: Config, llm_config: Mapping[str, Any]) -> str:
    """The dtype of the KV cache; `auto` is that of activations."""
    own = str(llm_config.get("kv_cache_dtype", "auto"))
    return _declared_cache(config) if own == "auto" else own


def has_cache_scales(config: Config) -> bool:
    """Whether the checkpoint contains scales of an FP8 KV cache."""
    return bool(_scheme(config) or _quantization(config).get("kv_cache_quant_config"))


def weight_bits(config: Config) -> float:
    """Bits of a quantized weight, with its scales."""
    quantization = _quantization(config)
    if quantization.get("quant_method") == "mxfp4" or quark_dtype(quantization) == "fp4":
        return 4 + 8 / 32  # 8 bits of scale per 32 weights (OCP MX)
    if quantization:
        groups = quantization.get("config_groups", {}).values()
        return next((_bits(group["weights"]) for group in groups), 8.0)
    return 16


def _bits(weights: Mapping[str, Any]) -> float:
    """Bits of a weight in compressed-tensors' format; a group of weights has a scale of 8 bits."""
    group = weights.get("group_size") or 0
    return float(weights["num_bits"] + (8 / group if group > 0 else 0))


def _quantization(config: Config) -> Mapping[str, Any]:
    return config.get("quantization_config") or {}


def _scheme(config: Config) -> Mapping[str, Any]:
    return _quantization(config).get("kv_cache_scheme") or {}


def _declared_cache(config: Config) -> str:
    """The dtype that vLLM reads from llm-compressor's checkpoints if no argument sets it (attention.py)."""
    return "fp8" if _scheme(config) else "auto"


def quark_dtype(quantization: Mapping[str, Any]) -> str:
    """The dtype of weights in Quark's format; empty for other formats."""
    weight = (quantization.get("global_quant_config") or {}).get("weight") or {}
    return str(weight.get("dtype", ""))
