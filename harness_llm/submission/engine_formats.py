"""Number formats that the engine chooses: load-time quantization and the KV cache.

The calibration document must disclose them (inference_rules.adoc, "Weight Definition and Quantization").
Paths refer to vLLM 0.30.0.
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
# Unquantized formats of the KV cache; all other names of vLLM's CacheDType (config/cache.py) are quantized.
_PLAIN_CACHES = ("auto", "bfloat16", "float16")
_CACHES = {"fp8": "FP8 (E4M3)", "fp8_e4m3": "FP8 (E4M3)", "fp8_e5m2": "FP8 (E5M2)", "nvfp4": "NVFP4"}
_SCALED_WHEN_WRITTEN = "per_token_head"  # kv_cache_uses_per_token_head_scales
# Names of settings that choose a number format; the document lists all of them that are set.
_FORMAT = re.compile(r"quant|dtype|fp8|fp4|fp6|int8|int4|mxfp", re.IGNORECASE)
_EXPLAINED = ("dtype", "kv_cache_dtype", "quantization")
_OFF = ("", "0", "false", "none", "auto", "null")


@dataclass(frozen=True)
class EngineFormats:
    """Number formats of the engine in one scenario.

    Attributes:
        dtype: of tensors that are not quantized; empty if unknown.
        weights: method of load-time quantization of the weights; empty without.
        quantized: one sentence for each kind of tensor that the engine quantizes.
        draft: one sentence on the draft head; empty without speculative decoding.
        unknown: why the list may be incomplete; empty if it is complete.
    """

    dtype: str = ""
    weights: str = ""
    quantized: tuple[str, ...] = ()
    draft: str = ""
    unknown: str = ""


def read_formats(fingerprint: Mapping[str, Any], model: Mapping[str, Any]) -> EngineFormats:
    """Read the number formats of the engine from the fingerprint of a run.

    Args:
        fingerprint: of the run, from `fingerprint.fingerprint`.
        model: config.json of the checkpoint.
    """
    engine = fingerprint["engine"]
    if unknown := _unknown(fingerprint):
        return EngineFormats(quantized=tuple(_settings(fingerprint)), unknown=unknown)
    if engine == REPLAY:
        return EngineFormats()
    arguments = fingerprint["llm_config"]
    if engine not in (_VLLM, *(name for name, facts in ENGINES.items() if facts.serves)):
        return EngineFormats(dtype=_loaded_dtype(model, arguments))
    weights = "" if model.get("quantization_config") else str(arguments.get("quantization") or "")
    sentences = (*_weights(weights), *_cache(arguments, model), *_settings(fingerprint))
    return EngineFormats(compute_dtype(model, arguments), weights, sentences, _draft(arguments))


def _unknown(fingerprint: Mapping[str, Any]) -> str:
    """Number formats are known only for vLLM, and only if harness-llm started it."""
    server = fingerprint.get("server_config") or {}
    if server.get("url"):
        return f"the servers {', '.join(server['url'])} were not started by harness-llm"
    if server.get("command"):
        return f"the server was started by the command `{server['command']}`"
    kind = ENGINES[fingerprint["engine"]].kind or server.get("kind", _VLLM)
    return "" if kind == _VLLM else f"harness-llm cannot read the number formats of {kind} servers"


def _loaded_dtype(model: Mapping[str, Any], arguments: Mapping[str, Any]) -> str:
    """The dtype in which transformers loads a checkpoint: its own, also float32; empty if config.json has none."""
    own = str(arguments.get("dtype", "auto"))
    return str(model.get("dtype") or model.get("torch_dtype") or "") if own == "auto" else own


def _weights(method: str) -> Iterator[str]:
    if method:
        yield (
            f"vLLM quantizes the weights of linear layers at load time, by its method `{method}` "
            f"(`quantization: {method}`), without calibration data."
        )


def _draft(arguments: Mapping[str, Any]) -> str:
    """The rules forbid quantization of the draft head (inference_rules.adoc, appendix Speculative Decoding)."""
    speculation = arguments.get("speculative_config")
    if not speculation:
        return ""
    if head := speculation.get("model"):
        return (
            f"The draft head `{Path(head).name}` proposes tokens. It is served in its published format, not quantized."
        )
    return f"The checkpoint's own draft head (`method: {speculation['method']}`) proposes tokens, in its stored format."


def _cache(arguments: Mapping[str, Any], model: Mapping[str, Any]) -> Iterator[str]:
    name = cache_dtype(model, arguments)
    if name in _PLAIN_CACHES:
        return
    skipped = arguments.get("kv_cache_dtype_skip_layers")
    but = f", except in layers {', '.join(map(str, skipped))}" if skipped else ""
    yield f"The KV cache is stored in {_CACHES.get(name, name)} (`kv_cache_dtype: {name}`){but}. {_scales(name, model)}"


def _scales(name: str, model: Mapping[str, Any]) -> str:
    """Source of the scales (model_executor/layers/quantization/kv_cache.py)."""
    if _SCALED_WHEN_WRITTEN in name:
        return "Each token and head has its own scale, computed when it is written, without calibration."
    queries = "If attention is computed in this format, queries are quantized too."
    if has_cache_scales(model):
        return f"Scales of keys and values are read from the checkpoint. {queries}"
    return f"The checkpoint stores no scales of keys and values, so all scales are 1.0, without calibration. {queries}"


def _settings(fingerprint: Mapping[str, Any]) -> Iterator[str]:
    """Yield one sentence for each further setting that chooses a number format."""
    arguments = {key: value for key, value in _flat(fingerprint["llm_config"]) if key not in _EXPLAINED}
    variables = {**fingerprint.get("inherited", {}), **fingerprint["env_config"]}
    for name, value in sorted((arguments | variables).items()):
        if _FORMAT.search(name) and str(value).lower() not in _OFF:
            yield f"Further setting: `{name}: {value if isinstance(value, str) else json.dumps(value)}`."


def _flat(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{key}.")
        elif value not in (None, [], False):
            yield f"{prefix}{key}", value
