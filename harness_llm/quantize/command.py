"""`harness-llm quantize`: a benchmark's checkpoint, quantized in the environment that can."""

import sys
from pathlib import Path

from harness_llm.assets import Report
from harness_llm.benchmarks import load_benchmark
from harness_llm.errors import ConfigError, EnvironmentMissing
from harness_llm.stage import run_stage
from harness_llm.workspace import CHECKOUT, Workspace

QUANTIZER = CHECKOUT / ".venv-quantize" / "bin" / "python"  # has llm-compressor


def quantize(model: str, report: Report, workspace: Workspace | None = None) -> None:
    """Quantize the original checkpoint of `model`, and say on standard output where the result lies.

    Raises:
        ConfigError: the benchmark serves its checkpoint as it is.
        EnvironmentMissing: checkpoint or environment is not there.
        RunFailed: the quantization failed; its log is named.
    """
    workspace = workspace or Workspace()
    checkpoint = load_benchmark(model, workspace).checkpoint
    original, quantized = (workspace.models / name for name in (checkpoint.original, checkpoint.quantized))
    if original == quantized:
        raise ConfigError(f"{model} serves its checkpoint as it is published", where=str(original))
    if not (original / "config.json").is_file():
        raise EnvironmentMissing(
            f"the checkpoint of {model} is not there",
            where=str(original),
            hint=f"harness-llm download --model {model} --part model",
        )
    quantize_checkpoint(original, quantized, workspace, report)
    sys.stdout.write(f"{quantized}\n")


def quantize_checkpoint(
    original: Path, quantized: Path, workspace: Workspace, report: Report, python: Path = QUANTIZER
) -> None:
    """FP8 of `original` in `quantized`, by `python`; raises as `quantize`."""
    if not python.is_file():
        raise EnvironmentMissing("the environment to quantize in is not there", where=str(python), hint="make setup")
    command = [str(python), "-m", "harness_llm.quantize.fp8", "--checkpoint", str(original), "--output", str(quantized)]
    run_stage(command, workspace.stage_log("quantize"), report)
