"""Model shapes from config.json, for the sizes of weights and KV cache."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

Config = Mapping[str, Any]


@dataclass(frozen=True)
class ModelShape:
    """Shapes of a decoder; sizes in elements.

    Attributes:
        windowed_layers: layers with attention to only the last `window` tokens.
        latent: elements that MLA caches per token and layer, instead of keys and values; 0 without MLA.
        quantized_weights: weights of the linear layers, with experts.
        other_weights: embeddings and output layer, which have 16 bits.
    """

    layers: int
    windowed_layers: int
    window: int
    kv_heads: int
    head_size: int
    latent: int
    hidden: int
    intermediate: int
    vocabulary: int
    quantized_weights: int
    other_weights: int


def read_shape(config: Config) -> ModelShape:
    """The shape of a GPT-J, Llama, Mixtral, GPT-OSS or DeepSeek-V3 model.

    Raises:
        KeyError: config.json has another structure.
    """
    if config["model_type"] == "gptj":
        config = _as_llama(config)
    heads, hidden = config["num_attention_heads"], config["hidden_size"]
    head_size = config.get("head_dim") or hidden // heads
    kinds = config.get("layer_types") or []
    layers, vocabulary = config["num_hidden_layers"], config["vocab_size"]
    return ModelShape(
        layers=layers,
        windowed_layers=kinds.count("sliding_attention"),
        window=config.get("sliding_window") or 0,
        kv_heads=config["num_key_value_heads"],
        head_size=head_size,
        latent=config["kv_lora_rank"] + config["qk_rope_head_dim"] if "kv_lora_rank" in config else 0,
        hidden=hidden,
        intermediate=config["intermediate_size"],
        vocabulary=vocabulary,
        quantized_weights=layers * _attention(config, head_size) + _feed_forward(config),
        other_weights=vocabulary * hidden * (1 if config.get("tie_word_embeddings") else 2),
    )


def model_dtype(config: Config) -> str:
    """The dtype in config.json; vLLM uses bfloat16 without one, and for 32 bits."""
    found = str(config.get("dtype") or config.get("torch_dtype") or "bfloat16")
    return "bfloat16" if found == "float32" else found


def _as_llama(config: Config) -> Config:
    """The config of a GPT-J model with the keys of Llama's."""
    hidden = config["n_embd"]
    return {
        **config,
        "hidden_size": hidden,
        "num_hidden_layers": config["n_layer"],
        "num_attention_heads": config["n_head"],
        "num_key_value_heads": config["n_head"],
        "intermediate_size": config.get("n_inner") or 4 * hidden,
    }


def _attention(config: Config, head_size: int) -> int:
    """Weights of one attention layer."""
    heads, hidden = config["num_attention_heads"], config["hidden_size"]
    if "kv_lora_rank" not in config:
        return int(2 * hidden * head_size * (heads + config["num_key_value_heads"]))
    query, latent = config["q_lora_rank"], config["kv_lora_rank"]
    nope, rope, value = config["qk_nope_head_dim"], config["qk_rope_head_dim"], config["v_head_dim"]
    down = hidden * (query + latent + rope)
    up = heads * (query * (nope + rope) + latent * (nope + value))
    return int(down + up + heads * value * hidden)


def _feed_forward(config: Config) -> int:
    """Weights of the feed-forward parts of all layers."""
    hidden, layers = config["hidden_size"], config["num_hidden_layers"]
    dense = (2 if config["model_type"] == "gptj" else 3) * hidden * config["intermediate_size"]
    if "n_routed_experts" in config:
        experts = config["n_routed_experts"] + config["n_shared_experts"]
        sparse = 3 * hidden * config["moe_intermediate_size"] * experts
        first = config["first_k_dense_replace"]
        return int(first * dense + (layers - first) * sparse)
    return int(layers * dense * config.get("num_local_experts", 1))
