"""`harness-llm quantize`: quantize a benchmark's checkpoint by a recipe, in the environment of the recipe's tool."""

import sys
from pathlib import Path
from typing import NamedTuple

from harness_llm.config.assets import Report
from harness_llm.config.benchmark import Benchmark, load_benchmark
from harness_llm.config.checkpoint import file_digest, is_complete
from harness_llm.config.commands import command
from harness_llm.errors import ConfigError, EnvironmentMissing
from harness_llm.hardware.gpus import NO_ACCELERATOR, detect_gpu, load_gpus
from harness_llm.paths import ENVIRONMENTS, Workspace, installed_by
from harness_llm.prepare.datasets.convert import convert
from harness_llm.prepare.quantize.job import CalibrationSet, Job
from harness_llm.prepare.quantize.recipes import Tool, load_recipes, require_format
from harness_llm.prepare.stage import run_stage
from harness_llm.protocol.token_store import open_store


class _Program(NamedTuple):
    python: Path
    module: str
    target: str


# `.venv-cuda` pairs with `.venv-quantize-cuda`, where llm-compressor uses the GPUs.
_BUILD = "-cuda" if Path(sys.prefix).name.endswith("-cuda") else ""
PROGRAMS: dict[Tool, _Program] = {
    "llmcompressor": _Program(
        ENVIRONMENTS / f".venv-quantize{_BUILD}" / "bin" / "python",
        "harness_llm.prepare.quantize.llm_compressor",
        "setup",
    ),
    "quark": _Program(
        ENVIRONMENTS / ".venv-quark" / "bin" / "python", "harness_llm.prepare.quantize.quark_recipe", "quark"
    ),
}


def quantize(model: str, recipe_name: str, gpu: str, report: Report, workspace: Workspace | None = None) -> None:
    """Quantize the original checkpoint of `model`, replace the served checkpoint, and print its path.

    Args:
        recipe_name: empty: the default recipe of `gpu`.
        gpu: accelerator that will serve the checkpoint; empty: the detected one.

    Raises:
        ConfigError: the benchmark serves the published checkpoint, the recipe is unknown or not supported by `gpu`, or
            the calibration set is an evaluation set.
        EnvironmentMissing: checkpoint, calibration set or environment is missing, or the checkpoint is incomplete.
        RunFailed: the quantization failed; `where` is its log.
    """
    workspace = workspace or Workspace()
    benchmark = load_benchmark(model, workspace)
    checkpoint = benchmark.checkpoint
    original, quantized = (workspace.models / name for name in (checkpoint.original, checkpoint.quantized))
    if original == quantized:
        raise ConfigError(f"{model} needs no quantization: it serves the published checkpoint", where=str(original))
    gpu = gpu or detect_gpu(workspace=workspace) or NO_ACCELERATOR
    recipe = load_recipes(benchmark, workspace).choose(recipe_name, gpu)
    require_format(recipe, gpu, load_gpus(workspace))
    if not is_complete(original):
        raise EnvironmentMissing(
            f"missing checkpoint of {model}",
            where=str(original),
            expected="config.json and all weights",
            hint=_command_for(benchmark, "model"),
        )
    job = Job(
        checkpoint=original,
        output=quantized,
        recipe=recipe,
        calibration=calibration_set(benchmark, workspace, report) if recipe.calibration else None,
    )
    quantize_checkpoint(job, workspace, report)
    sys.stdout.write(f"{quantized}\n")


def quantize_checkpoint(job: Job, workspace: Workspace, report: Report, python: Path | None = None) -> None:
    """Run `job` with `python` (default: the interpreter of the tool's environment); raises as `quantize`."""
    python = require_tool(job.recipe.tool, python)
    if job.calibration:
        job.prompts()  # raises before the tool starts
    module = PROGRAMS[job.recipe.tool].module
    run_stage([str(python), "-m", module, job.model_dump_json()], workspace.stage_log("quantize"), report)


def require_tool(tool: Tool, python: Path | None = None) -> Path:
    """Return `python`, by default the interpreter of the environment of `tool`.

    Raises:
        EnvironmentMissing: it is not installed.
    """
    program = PROGRAMS[tool]
    python = python or program.python
    if not python.is_file():
        raise EnvironmentMissing(f"missing environment of {tool}", where=str(python), hint=installed_by(program.target))
    return python


def calibration_set(benchmark: Benchmark, workspace: Workspace, report: Report) -> CalibrationSet:
    """Return the official calibration set of `benchmark`; inference_rules.adoc allows no other data.

    Raises:
        ConfigError: the file is an evaluation set of the benchmark.
        EnvironmentMissing: the file is missing.
    """
    dataset, data = benchmark.dataset, workspace.data
    file = data / dataset.calibration
    if not file.exists():
        raise EnvironmentMissing(
            f"missing calibration set of {benchmark.name}",
            where=str(file),
            hint=_command_for(benchmark, "calibration"),
        )
    for samples in dataset.sets.values():
        if (data / samples.file).exists() and _identity(data / samples.file) == _identity(file):
            raise ConfigError(
                "calibration set is an evaluation set",
                where=f"models/{benchmark.name}/benchmark.yaml, dataset.calibration",
                expected="the official calibration set of the benchmark",
                found=f"{dataset.calibration}, the samples of {samples.file}",
            )
    if benchmark.preparer != "published":
        return CalibrationSet(file=dataset.calibration, store=file)
    report(f"converting {file.name}", None)
    tokenizer = workspace.models / benchmark.checkpoint.original / "tokenizer.json"
    return CalibrationSet(
        file=dataset.calibration,
        store=convert(dataset.source, file, tokenizer, dataset.longest_prompt, truncate=True),
    )


def _command_for(benchmark: Benchmark, part: str) -> str:
    """Return the command that downloads or makes a part of `benchmark`."""
    if benchmark.preparer == "published":
        return command("download", model=benchmark.name, part=part)
    return command("submit", model=benchmark.name)


def _identity(samples: Path) -> str:
    """Return the sha256 of a published file, or of a token store made on this machine."""
    return open_store(samples).digest if samples.is_dir() else file_digest(samples)
