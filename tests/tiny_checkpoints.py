"""Checkpoints of each architecture with random weights and two layers, in the format that was published."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, models
from transformers import (
    DeepseekV3Config,
    DeepseekV3ForCausalLM,
    GPTJConfig,
    GPTJForCausalLM,
    GptOssConfig,
    LlamaConfig,
    LlamaForCausalLM,
    MixtralConfig,
    MixtralForCausalLM,
    PreTrainedModel,
)

VOCABULARY = 256
HIDDEN = 128
LAYERS = 2
EXPERTS = 4
_COMMON: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": HIDDEN,
    "intermediate_size": 256,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
}


def make(name: str, folder: Path) -> Path:
    """Write the checkpoint `name`, a key of `MAKERS`, into `folder`; returns `folder`."""
    torch.manual_seed(0)
    folder.mkdir(parents=True)
    MAKERS[name](folder)
    tokenizer = Tokenizer(models.WordLevel({f"w{i}": i for i in range(VOCABULARY)}, unk_token="w0"))  # noqa: S106 - no secret
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "PreTrainedTokenizerFast"}))
    return folder


def _saved(model: PreTrainedModel, dtype: torch.dtype, folder: Path) -> None:
    model.to(dtype).save_pretrained(folder)


def _llama(dtype: torch.dtype) -> Callable[[Path], None]:
    return lambda folder: _saved(LlamaForCausalLM(LlamaConfig(**_COMMON)), dtype, folder)


def _mixtral(folder: Path) -> None:
    config = MixtralConfig(**_COMMON, num_local_experts=EXPERTS, num_experts_per_tok=2)
    _saved(MixtralForCausalLM(config), torch.bfloat16, folder)


def _gptj(folder: Path) -> None:
    """GPT-J was published as two or more files of PyTorch's own format, with an index."""
    sizes = {"n_positions": 256, "n_embd": HIDDEN, "n_layer": LAYERS, "n_head": 4, "rotary_dim": 16}
    ends = {"bos_token_id": VOCABULARY - 1, "eos_token_id": VOCABULARY - 1}
    model = GPTJForCausalLM(GPTJConfig(vocab_size=VOCABULARY, **sizes, **ends)).half()
    model.config.architectures = ["GPTJForCausalLM"]
    model.config.save_pretrained(folder)
    tensors = model.state_dict()
    half = len(tensors) // 2
    files = {name: f"pytorch_model-0000{1 if place < half else 2}-of-00002.bin" for place, name in enumerate(tensors)}
    for file in set(files.values()):
        torch.save({name: tensors[name] for name in tensors if files[name] == file}, folder / file)
    index = {"metadata": {}, "weight_map": files}
    (folder / "pytorch_model.bin.index.json").write_text(json.dumps(index))


def _deepseek(folder: Path) -> None:
    """DeepSeek-R1 was published in FP8, a scale for each block of 128 x 128, but for the router."""
    own = {"num_key_value_heads": 4, "q_lora_rank": 128, "kv_lora_rank": 512, "moe_intermediate_size": 128}
    heads = {"qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128}  # kernels know these alone
    experts = {"n_routed_experts": EXPERTS, "num_experts_per_tok": 2, "n_group": 1, "topk_group": 1}
    config = DeepseekV3Config(**_COMMON | own | heads | experts, first_k_dense_replace=1)
    config.topk_method, config.scoring_func = "noaux_tc", "sigmoid"  # as published; transformers has no other
    config.quantization_config = {
        "quant_method": "fp8",
        "fmt": "e4m3",
        "activation_scheme": "dynamic",
        "weight_block_size": [128, 128],
    }
    model = DeepseekV3ForCausalLM(config).bfloat16()
    model.save_pretrained(folder)
    (file,) = folder.glob("*.safetensors")
    tensors = load_file(file)
    for name in [name for name in tensors if name.endswith("_proj.weight") or "_proj_with_mqa.weight" in name]:
        rows, columns = (math.ceil(size / 128) for size in tensors[name].shape)
        tensors[name] = tensors[name].to(torch.float8_e4m3fn)
        tensors[f"{name}_scale_inv"] = torch.ones(rows, columns)
    save_file(tensors, file, {"format": "pt"})


def _gpt_oss(folder: Path) -> None:
    """gpt-oss was published with experts in MXFP4: 32 numbers are a block of 16 bytes and a scale."""
    sizes = {"head_dim": 32, "num_local_experts": EXPERTS, "num_experts_per_tok": 2, "intermediate_size": HIDDEN}
    config = GptOssConfig(**_COMMON | sizes)
    names = ["model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head"]
    config.quantization_config = {"quant_method": "mxfp4", "modules_to_not_convert": names}
    config.architectures = ["GptOssForCausalLM"]
    config.save_pretrained(folder)
    tensors = {f"{name}.weight": _random(VOCABULARY, HIDDEN) for name in ("model.embed_tokens", "lm_head")}
    tensors["model.norm.weight"] = _random(HIDDEN)
    for layer in range(LAYERS):
        own = _gpt_oss_attention() | _gpt_oss_experts()
        tensors |= {f"model.layers.{layer}.{name}": tensor for name, tensor in own.items()}
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})


def _gpt_oss_attention() -> dict[str, torch.Tensor]:
    rows = {"q_proj": HIDDEN, "k_proj": HIDDEN // 2, "v_proj": HIDDEN // 2, "o_proj": HIDDEN}
    weights = {f"self_attn.{name}.weight": _random(size, HIDDEN) for name, size in rows.items()}
    biases = {f"self_attn.{name}.bias": _random(size) for name, size in rows.items()}
    norms = {f"{name}_layernorm.weight": _random(HIDDEN) for name in ("input", "post_attention")}
    return weights | biases | norms | {"self_attn.sinks": _random(4)}


def _gpt_oss_experts() -> dict[str, torch.Tensor]:
    tensors = {"mlp.router.weight": _random(EXPERTS, HIDDEN), "mlp.router.bias": _random(EXPERTS)}
    for name, rows in (("gate_up_proj", 2 * HIDDEN), ("down_proj", HIDDEN)):
        shape = (EXPERTS, rows, HIDDEN // 32)
        tensors[f"mlp.experts.{name}_blocks"] = torch.randint(256, (*shape, 16), dtype=torch.uint8)
        tensors[f"mlp.experts.{name}_scales"] = torch.full(shape, 120, dtype=torch.uint8)
        tensors[f"mlp.experts.{name}_bias"] = _random(EXPERTS, rows)
    return tensors


def _random(*shape: int) -> torch.Tensor:
    return torch.randn(shape, dtype=torch.bfloat16)


MAKERS: dict[str, Callable[[Path], None]] = {
    "llama-fp16": _llama(torch.float16),
    "llama-bf16": _llama(torch.bfloat16),
    "mixtral": _mixtral,
    "gptj": _gptj,
    "deepseek": _deepseek,
    "gpt-oss": _gpt_oss,
}
