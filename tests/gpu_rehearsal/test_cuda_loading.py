"""Checkpoints that vLLM's CPU build cannot load, by its CUDA build: all tensors are loaded by name."""

from pathlib import Path

import pytest
import tiny_checkpoints
from served_checkpoints import RECIPES, has_tool, loaded, quantized
from stubbed_gpus import PYTHON, environment

from harness_llm.hardware.gpus import load_gpus
from harness_llm.paths import CHECKOUT, Workspace
from harness_llm.prepare.quantize.quantize import PROGRAMS

pytestmark = pytest.mark.gpu_rehearsal

GPUS = load_gpus(Workspace(CHECKOUT))
# A CUDA stream needs a device.
NO_STREAM = {"VLLM_DISABLE_SHARED_EXPERTS_STREAM": "1"}
SINKS = ["model.layers.0.self_attn.sinks", "model.layers.1.self_attn.sinks"]


@pytest.mark.parametrize("name", ["deepseek", "gpt-oss"])
def test_every_tensor_of_a_published_checkpoint_is_loaded(name: str, libraries: Path, tmp_path: Path) -> None:
    folder = tiny_checkpoints.make(name, tmp_path / name)
    report = loaded(PYTHON, [folder], {**environment(GPUS["h200"], libraries), **NO_STREAM})[folder]
    assert report["error"] == ""
    # gpt-oss copies its sinks without a loader, which is all that is noted.
    assert report["ignored"] == (SINKS if name == "gpt-oss" else [])


def test_every_tensor_of_an_nvfp4_checkpoint_is_loaded(libraries: Path, tmp_path: Path) -> None:
    case = ("llama-bf16", "nvfp4")
    if not has_tool(case):
        pytest.skip(f"the environment of llmcompressor is missing: make {PROGRAMS[RECIPES[case].tool].target}")
    published = {case[0]: tiny_checkpoints.make(case[0], tmp_path / case[0])}
    folder = quantized([case], published, tmp_path)[case]
    report = loaded(PYTHON, [folder], environment(GPUS["b200"], libraries))[folder]
    assert (report["error"], report["ignored"]) == ("", [])
