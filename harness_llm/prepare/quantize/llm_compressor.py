"""Quantize with llm-compressor to the compressed-tensors format; runs in `.venv-quantize`."""

from pathlib import Path
from typing import Any

from datasets import Dataset
from llmcompressor import oneshot
from llmcompressor.modifiers.gptq import GPTQModifier
from llmcompressor.modifiers.quantization import QuantizationModifier
from transformers import AutoModelForCausalLM, AutoTokenizer

from harness_llm.prepare.quantize.job import Job, run_job
from harness_llm.prepare.quantize.recipes import Recipe

MODIFIERS = {"": QuantizationModifier, "gptq": GPTQModifier}
KV_CACHES: dict[str, dict[str, Any] | None] = {
    "": None,
    "fp8": {"num_bits": 8, "type": "float", "strategy": "tensor", "dynamic": False, "symmetric": True},
}


def quantize(job: Job, folder: Path) -> None:
    """Write the quantized checkpoint of `job` into `folder`."""
    model = AutoModelForCausalLM.from_pretrained(job.checkpoint, dtype="auto")
    oneshot(model=model, recipe=modifier(job.recipe), **samples(job.prompts()))
    model.save_pretrained(folder, save_compressed=True)
    AutoTokenizer.from_pretrained(job.checkpoint).save_pretrained(folder)


def modifier(recipe: Recipe) -> QuantizationModifier | GPTQModifier:
    """Return llm-compressor's modifier for `recipe`."""
    return MODIFIERS[recipe.algorithm](
        targets="Linear",
        scheme=recipe.scheme,
        ignore=list(recipe.ignore),
        kv_cache_scheme=KV_CACHES[recipe.kv_cache],
    )


def samples(prompts: list[list[int]]) -> dict[str, Any]:
    """Return arguments to calibrate on `prompts` in order, with batch size 1: no padding, no truncation."""
    if not prompts:
        return {}
    columns = {"input_ids": prompts, "attention_mask": [[1] * len(prompt) for prompt in prompts]}
    return {
        "dataset": Dataset.from_dict(columns),
        "num_calibration_samples": len(prompts),
        "shuffle_calibration_samples": False,
        "batch_size": 1,
    }


if __name__ == "__main__":
    run_job(quantize, "llmcompressor")
