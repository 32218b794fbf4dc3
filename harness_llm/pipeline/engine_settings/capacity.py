"""Estimate of the KV cache capacity of one replica, from config.json and the GPU's memory.

vLLM measures the memory of weights and activations when it starts; here the peak of activations is an allowance.
"""

from collections.abc import Mapping
from typing import Any

from harness_llm.config.engine_facts import weight_bits
from harness_llm.config.model_shape import Config, ModelShape, read_shape

GIB = 2**30
FIXED_ALLOWANCE = 3 * GIB  # per GPU: CUDA or HIP context, communicators, graphs
ACTIVATION_COPIES = 4  # tensors of hidden and feed-forward size that one layer keeps at the same time
LOGIT_BYTES = 8  # per sequence and vocabulary entry: 32 bits, and a sorted copy for sampling
DEFAULT_UTILIZATION = 0.92  # vllm/config/cache.py of 0.30.0, gpu_memory_utilization
DEFAULT_BATCHED_TOKENS = 2048  # vllm/config/scheduler.py, DEFAULT_MAX_NUM_BATCHED_TOKENS


def cache_bytes(config: Config, llm_config: Mapping[str, Any], memory_gb: int) -> int:
    """Bytes available for the KV cache on each GPU; negative if the weights do not fit.

    Args:
        memory_gb: from models/gpus.yaml; vendors write GB for GiB.
    """
    shape = read_shape(config)
    group = _size(llm_config, "tensor") * _size(llm_config, "pipeline")
    weights = shape.quantized_weights * weight_bits(config) / 8 + shape.other_weights * 2
    usable = memory_gb * GIB * utilization(llm_config)
    return int(usable - weights / group - FIXED_ALLOWANCE - _activations(shape, llm_config))


def utilization(llm_config: Mapping[str, Any]) -> float:
    """Share of each GPU's memory that vLLM uses."""
    return float(llm_config.get("gpu_memory_utilization", DEFAULT_UTILIZATION))


def _activations(shape: ModelShape, llm_config: Mapping[str, Any]) -> float:
    tokens = int(llm_config.get("max_num_batched_tokens") or DEFAULT_BATCHED_TOKENS)
    width = shape.hidden + shape.intermediate / _size(llm_config, "tensor")
    return 2 * ACTIVATION_COPIES * tokens * width + LOGIT_BYTES * int(llm_config["max_num_seqs"]) * shape.vocabulary


def sequence_bytes(config: Config, llm_config: Mapping[str, Any], tokens: float, bytes_per_value: float) -> float:
    """KV cache bytes on each GPU for a sequence of `tokens`; sliding-window layers cache at most their window."""
    shape = read_shape(config)
    stages = _size(llm_config, "pipeline")
    whole = (shape.layers - shape.windowed_layers) * tokens
    windowed = shape.windowed_layers * min(tokens, shape.window)
    return (whole + windowed) / stages * _token_values(shape, _size(llm_config, "tensor")) * bytes_per_value


def _token_values(shape: ModelShape, tensor_parallel: int) -> int:
    """Values per token and layer on each GPU: KV heads are distributed, and replicated if there are fewer than GPUs."""
    if shape.latent:
        return shape.latent
    return 2 * shape.head_size * max(shape.kv_heads // tensor_parallel, 1)


def _size(llm_config: Mapping[str, Any], kind: str) -> int:
    return int(llm_config.get(f"{kind}_parallel_size", 1))
