"""config.json of the checkpoint that is served, before it is downloaded and quantized."""

import json
from typing import Any

from harness_llm.config.benchmark import Benchmark
from harness_llm.paths import Workspace
from harness_llm.prepare.quantize.quantization_config import written_config
from harness_llm.prepare.quantize.recipes import load_recipes


def served_config(benchmark: Benchmark, gpu: str, workspace: Workspace) -> dict[str, Any] | None:
    """config.json as vLLM will find it; None where it is not known yet.

    That of the checkpoint in its place; else the published one, with the `quantization_config` that the default recipe
    of `gpu` writes.
    """
    checkpoint = benchmark.checkpoint
    file = workspace.models / checkpoint.quantized / "config.json"
    if file.is_file():
        found: dict[str, Any] = json.loads(file.read_text())
        return found
    if not checkpoint.config:
        return None
    config: dict[str, Any] = json.loads((workspace.benchmarks / checkpoint.config).read_text())
    if checkpoint.quantized == checkpoint.original:
        return config
    written = written_config(load_recipes(benchmark, workspace).choose("", gpu))
    return config | {"quantization_config": written} if written else None
