"""Number formats that an engine uses beside those of the checkpoint: load-time quantization, and the KV cache.

The calibration document has to disclose them too (inference_rules.adoc, "Weight Definition and Quantization").
Paths are of vLLM 0.30.0.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness_llm.config.engine_facts import cache_dtype, compute_dtype, has_cache_scales
from harness_llm.config.engines import ENGINES, REPLAY

_VLLM = "vllm"
# The KV cache in 16 bits; other names of vLLM's CacheDType (config/cache.py) are quantized.
_PLAIN_CACHES = ("auto", "bfloat16", "float16")
_CACHES = {"fp8": "FP8 (E4M3)", "fp8_e4m3": "FP8 (E4M3)", "fp8_e5m2": "FP8 (E5M2)", "nvfp4": "NVFP4"}
_SCALED_WHEN_WRITTEN = "per_token_head"  # kv_cache_uses_per_token_head_scales
# Settings whose names tell that they choose a number format, so that none is left out of the document.
_FORMAT = re.compile(r"quant|dtype|fp8|fp4|fp6|int8|int4|mxfp", re.IGNORECASE)
_EXPLAINED = ("dtype", "kv_cache_dtype", "quantization")
_OFF = ("", "0", "false", "none", "auto", "null")


@dataclass(frozen=True)
class EngineNumbers:
    """What an engine makes of the numbers of a checkpoint.

    Attributes:
        dtype: of what is not quantized; empty where it is not known.
        weights: the method by which the engine quantizes the weights when it loads them; empty where it does not.
        quantized: one sentence for each thing that the engine quantizes.
        draft: one sentence on the head that proposes tokens; empty without speculative decoding.
        unknown: why more may be quantized; empty where all is known.
    """

    dtype: str = ""
    weights: str = ""
    quantized: tuple[str, ...] = ()
    draft: str = ""
    unknown: str = ""


def read_numbers(fingerprint: Mapping[str, Any], model: Mapping[str, Any]) -> EngineNumbers:
    """The number formats of the engine in a run.

    Args:
        fingerprint: of the run, from `fingerprint.fingerprint`.
        model: config.json of the checkpoint.
    """
    engine = fingerprint["engine"]
    if unknown := _unknown(fingerprint):
        return EngineNumbers(quantized=tuple(_settings(fingerprint)), unknown=unknown)
    if engine == REPLAY:
        return EngineNumbers()
    arguments = fingerprint["llm_config"]
    if engine not in (_VLLM, *(name for name, facts in ENGINES.items() if facts.serves)):
        return EngineNumbers(dtype=compute_dtype(model, arguments))
    weights = "" if model.get("quantization_config") else str(arguments.get("quantization") or "")
    sentences = (*_weights(weights), *_cache(arguments, model), *_settings(fingerprint))
    return EngineNumbers(compute_dtype(model, arguments), weights, sentences, _draft(arguments))


def _unknown(fingerprint: Mapping[str, Any]) -> str:
    """Only vLLM's arguments are understood, and only where harness-llm gives them."""
    server = fingerprint.get("server_config") or {}
    if server.get("url"):
        return f"the servers {', '.join(server['url'])} were not started by harness-llm"
    if server.get("command"):
        return f"the server was started by the command `{server['command']}`"
    kind = ENGINES[fingerprint["engine"]].kind or server.get("kind", _VLLM)
    return "" if kind == _VLLM else f"the number formats of {kind} servers are not known to harness-llm"


def _weights(method: str) -> Iterator[str]:
    if method:
        yield (
            f"Weights of linear layers are quantized when vLLM loads them, by its method `{method}` "
            f"(`quantization: {method}`); no data is seen."
        )


def _draft(arguments: Mapping[str, Any]) -> str:
    """The rules forbid to quantize the head (inference_rules.adoc, appendix Speculative Decoding)."""
    speculation = arguments.get("speculative_config")
    if not speculation:
        return ""
    if head := speculation.get("model"):
        return (
            f"Tokens are proposed by the draft head `{Path(head).name}` in its published format; it is not quantized."
        )
    return (
        f"Tokens are proposed by the checkpoint's own head (`method: {speculation['method']}`), as it is stored there."
    )


def _cache(arguments: Mapping[str, Any], model: Mapping[str, Any]) -> Iterator[str]:
    name = cache_dtype(model, arguments)
    if name in _PLAIN_CACHES:
        return
    skipped = arguments.get("kv_cache_dtype_skip_layers")
    but = f", but for the layers {', '.join(map(str, skipped))}" if skipped else ""
    yield f"The KV cache is stored in {_CACHES.get(name, name)} (`kv_cache_dtype: {name}`){but}. {_scales(name, model)}"


def _scales(name: str, model: Mapping[str, Any]) -> str:
    """Where the scales come from (model_executor/layers/quantization/kv_cache.py)."""
    if _SCALED_WHEN_WRITTEN in name:
        return "Each token and head has a scale of its own, computed when it is written; nothing is calibrated."
    queries = "Where attention is computed in this format, queries are quantized too."
    if has_cache_scales(model):
        return f"The scales of keys and values are those that the checkpoint stores. {queries}"
    return f"The checkpoint stores no scales of keys and values, so all are 1.0; nothing is calibrated. {queries}"


def _settings(fingerprint: Mapping[str, Any]) -> Iterator[str]:
    """Further settings that choose number formats, as they were set."""
    arguments = {key: value for key, value in _flat(fingerprint["llm_config"]) if key not in _EXPLAINED}
    variables = {**fingerprint.get("inherited", {}), **fingerprint["env_config"]}
    for name, value in sorted((arguments | variables).items()):
        if _FORMAT.search(name) and str(value).lower() not in _OFF:
            yield f"Set as well: `{name}: {value if isinstance(value, str) else json.dumps(value)}`."


def _flat(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{key}.")
        elif value not in (None, [], False):
            yield f"{prefix}{key}", value
