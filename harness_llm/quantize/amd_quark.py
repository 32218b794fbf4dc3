"""Quark's recipes, in its own format, which vLLM reads; runs in `.venv-quark`.

The arguments are those of AMD's quantize_quark.py, whose sources are not part of the package: models/quantization.yaml
has the command. It compiles operators when it first runs, so that it needs a C++ compiler.
"""

from pathlib import Path

import torch
from quark.torch import LLMTemplate, ModelQuantizer, export_safetensors
from transformers import AutoModelForCausalLM, AutoTokenizer

from harness_llm.checkpoint import TRAINING
from harness_llm.quantize.job import Job, run_job


def quantize(job: Job, folder: Path) -> None:
    """Write the quantized checkpoint of `job` into `folder`."""
    recipe = job.recipe
    devices = "auto" if torch.cuda.is_available() else None  # over all accelerators, as --multi_gpu
    model = AutoModelForCausalLM.from_pretrained(job.checkpoint, dtype="auto", device_map=devices).eval()
    config = LLMTemplate.get(model.config.model_type).get_config(
        scheme=recipe.scheme,
        algorithm=recipe.algorithm or None,
        kv_cache_scheme=recipe.kv_cache or None,
        exclude_layers=list(recipe.ignore),
    )
    prompts = [{"input_ids": torch.tensor([prompt], device=model.device)} for prompt in job.prompts()]
    quantizer = ModelQuantizer(config, multi_device=bool(devices))
    frozen = quantizer.freeze(quantizer.quantize_model(model, prompts))
    with torch.no_grad():
        export_safetensors(frozen, folder)
    (folder / TRAINING).unlink(missing_ok=True)  # Quark copies what it does not know, a record of other weights too
    AutoTokenizer.from_pretrained(job.checkpoint).save_pretrained(folder)


if __name__ == "__main__":
    run_job(quantize, "amd-quark")
