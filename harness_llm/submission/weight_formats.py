"""Number format of a checkpoint's weights, as `weight_data_types` of measurements.json, from its config.json."""

import re
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from harness_llm.config.checkpoint import QUANTIZATION
from harness_llm.config.engine_facts import quark_dtype
from harness_llm.errors import ConfigError

_DTYPES = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32"}
_METHODS = {"fp8": "fp8", "fbgemm_fp8": "fp8", "mxfp4": "mxfp4"}
_QUARK = {"fp8_e4m3": "fp8", "fp4": "mxfp4", "int8": "int8", "int4": "int4"}
_MODELOPT = {"FP8": "fp8", "NVFP4": "nvfp4"}
# Formats of compressed-tensors that group weights (compressed_tensors, config/base.py CompressionFormat).
_GROUPED = re.compile(r"nvfp4|mxfp4|mxfp8")


def unquantized_format(dtype: str) -> str:
    """Format of weights that have the `dtype` of PyTorch."""
    return _DTYPES.get(dtype, dtype)


def quantized_format(config: Mapping[str, Any], checkpoint: Path) -> str:
    """Format of the weights that `config`, a quantization_config, describes; empty if it quantizes no weights.

    Args:
        checkpoint: folder of the checkpoint, for the error.

    Raises:
        ConfigError: the quantization_config has a structure that harness-llm does not know.
    """
    if not config:
        return ""
    method = config.get("quant_method", "")
    if method == "compressed-tensors":
        return ", ".join(dict.fromkeys(_of_groups(config)))
    bits = f"int{config['bits']}" if "bits" in config else ""  # GPTQ and AWQ
    known = (
        _METHODS.get(method) or _QUARK.get(quark_dtype(config)) or _MODELOPT.get(config.get("quant_algo", "")) or bits
    )
    if not known:
        raise _unknown(method, checkpoint)
    return known


def _of_groups(config: Mapping[str, Any]) -> Iterator[str]:
    for group in config["config_groups"].values():
        if weights := group["weights"]:
            grouped = _GROUPED.match(group.get("format") or config.get("format") or "")
            yield grouped[0] if grouped else f"{'fp' if weights['type'] == 'float' else 'int'}{weights['num_bits']}"


def _unknown(method: str, checkpoint: Path) -> ConfigError:
    record = """'{"files": {}, "recipe": {"weights": "int4"}}'"""
    return ConfigError(
        "unknown number format of the checkpoint's weights, which measurements.json must name",
        where=f"{checkpoint / 'config.json'}, quantization_config",
        expected="the format of compressed-tensors, Quark, ModelOpt, GPTQ, AWQ, FP8 or MXFP4",
        found=f"quant_method {method or 'missing'}",
        hint=f"state the format, for example int4: echo {record} > {shlex.quote(str(checkpoint / QUANTIZATION))}",
    )
