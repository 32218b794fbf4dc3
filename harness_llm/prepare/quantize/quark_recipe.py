"""Quantize with AMD's Quark to its own format, which vLLM loads; runs in `.venv-quark`.

The arguments are those of AMD's quantize_quark.py, which Quark's package does not contain (command:
models/quantization.yaml). The first run compiles operators and requires a C++ compiler.
"""

import json
from pathlib import Path

import torch
from quark.torch import LLMTemplate, ModelQuantizer, export_safetensors
from quark.torch.utils.llm import preprocess_for_quantization
from transformers import AutoModelForCausalLM, AutoTokenizer

from harness_llm.config.checkpoint import TRAINING
from harness_llm.prepare.quantize.job import Job, run_job

# Submodule name in transformers 5 and in the published checkpoint, by model type.
PUBLISHED_NAMES = {"mixtral": ("mlp", "block_sparse_moe")}


def quantize(job: Job, folder: Path) -> None:
    """Write the quantized checkpoint of `job` into `folder`."""
    recipe = job.recipe
    devices = "auto" if torch.cuda.is_available() else None  # over all accelerators, as --multi_gpu
    model = AutoModelForCausalLM.from_pretrained(job.checkpoint, dtype="auto", device_map=devices).eval()
    preprocess_for_quantization(model)  # a linear module per expert: transformers 5 fuses experts, which Quark skips
    config = LLMTemplate.get(model.config.model_type).get_config(
        scheme=recipe.scheme,
        algorithm=recipe.algorithm or None,
        kv_cache_scheme=recipe.kv_cache or None,
        exclude_layers=list(recipe.ignore),
    )
    prompts = [{"input_ids": torch.tensor([prompt], device=model.device)} for prompt in job.prompts()]
    quantizer = ModelQuantizer(config, multi_device=bool(devices))
    frozen = quantizer.freeze(quantizer.quantize_model(model, prompts))
    use_published_names(frozen)
    with torch.no_grad():
        export_safetensors(frozen, folder)
    remove_algorithm(folder / "config.json")
    (folder / TRAINING).unlink(missing_ok=True)  # Quark copies this record of the original weights
    AutoTokenizer.from_pretrained(job.checkpoint).save_pretrained(folder)


def use_published_names(model: torch.nn.Module) -> None:
    """Rename submodules as in the published checkpoint, because vLLM loads weights by those names.

    The model cannot run afterwards.
    """
    if names := PUBLISHED_NAMES.get(model.config.model_type):
        own, published = names
        for parent in [module for module in model.modules() if hasattr(module, own)]:
            setattr(parent, published, getattr(parent, own))
            delattr(parent, own)


def remove_algorithm(file: Path) -> None:
    """Remove the algorithm's parameters from config.json.

    vLLM 0.30 raises AttributeError for a value that is a list of objects, as in GPTQ's parameters
    (vllm/model_executor/layers/quantization/quark/quark.py, apply_vllm_mapper). Serving does not need them.
    """
    config = json.loads(file.read_text())
    config["quantization_config"]["algo_config"] = None
    file.write_text(json.dumps(config, indent=2) + "\n")


if __name__ == "__main__":
    run_job(quantize, "amd-quark")
