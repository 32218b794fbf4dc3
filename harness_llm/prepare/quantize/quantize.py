"""`harness-llm quantize`: a benchmark's checkpoint, quantized by a recipe in the environment of its tool."""

import sys
from pathlib import Path
from typing import NamedTuple

from harness_llm.config.assets import Report
from harness_llm.config.benchmark import Benchmark, load_benchmark
from harness_llm.config.checkpoint import file_digest
from harness_llm.errors import ConfigError, EnvironmentMissing
from harness_llm.hardware.gpus import NO_ACCELERATOR, detect_gpu, load_gpus
from harness_llm.paths import ENVIRONMENTS, Workspace
from harness_llm.prepare.datasets.convert import convert
from harness_llm.prepare.quantize.job import CalibrationSet, Job
from harness_llm.prepare.quantize.recipes import Tool, load_recipes, require_format
from harness_llm.prepare.stage import run_stage
from harness_llm.protocol.token_store import open_store


class _Program(NamedTuple):
    python: Path
    module: str
    made_by: str


# `.venv-cuda` has `.venv-quantize-cuda` beside it: llm-compressor runs on the GPUs there.
_BUILD = "-cuda" if Path(sys.prefix).name.endswith("-cuda") else ""
PROGRAMS: dict[Tool, _Program] = {
    "llmcompressor": _Program(
        ENVIRONMENTS / f".venv-quantize{_BUILD}" / "bin" / "python",
        "harness_llm.prepare.quantize.llm_compressor",
        "make setup",
    ),
    "quark": _Program(
        ENVIRONMENTS / ".venv-quark" / "bin" / "python", "harness_llm.prepare.quantize.quark_recipe", "make quark"
    ),
}


def quantize(model: str, recipe_name: str, gpu: str, report: Report, workspace: Workspace | None = None) -> None:
    """Quantize the original checkpoint of `model`, and say on standard output where the result lies.

    The result takes the place of the checkpoint that is served, whatever recipe that was made by.

    Args:
        recipe_name: the default of `gpu` if empty.
        gpu: the accelerator that will serve it; the one that is found if empty.

    Raises:
        ConfigError: the benchmark serves its checkpoint as it is, there is no such recipe, `gpu` cannot multiply what
            it makes, or its samples are not of the official calibration set.
        EnvironmentMissing: checkpoint, calibration set or environment is not there.
        RunFailed: the quantization failed; its log is named.
    """
    workspace = workspace or Workspace()
    benchmark = load_benchmark(model, workspace)
    checkpoint = benchmark.checkpoint
    original, quantized = (workspace.models / name for name in (checkpoint.original, checkpoint.quantized))
    if original == quantized:
        raise ConfigError(f"{model} serves its checkpoint as it is published", where=str(original))
    gpu = gpu or detect_gpu(workspace=workspace) or NO_ACCELERATOR
    recipe = load_recipes(benchmark, workspace).choose(recipe_name, gpu)
    require_format(recipe, gpu, load_gpus(workspace))
    if not (original / "config.json").is_file():
        raise EnvironmentMissing(
            f"the checkpoint of {model} is not there",
            where=str(original),
            hint=_brings(benchmark, "model"),
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
    """Do `job` by `python`, that of the tool's environment unless it is given; raises as `quantize`."""
    program = PROGRAMS[job.recipe.tool]
    python = python or program.python
    if not python.is_file():
        raise EnvironmentMissing(
            f"the environment of {job.recipe.tool} is not there",
            where=str(python),
            hint=program.made_by,
        )
    if job.calibration:
        job.prompts()
    run_stage([str(python), "-m", program.module, job.model_dump_json()], workspace.stage_log("quantize"), report)


def calibration_set(benchmark: Benchmark, workspace: Workspace, report: Report) -> CalibrationSet:
    """The official calibration set of `benchmark` as a token store: nothing else may be seen (inference_rules.adoc).

    Raises:
        ConfigError: what stands in its place are samples that the benchmark asks.
        EnvironmentMissing: it is not there.
    """
    dataset, data = benchmark.dataset, workspace.data
    file = data / dataset.calibration
    if not file.exists():
        raise EnvironmentMissing(
            f"the calibration set of {benchmark.name} is not there",
            where=str(file),
            hint=_brings(benchmark, "calibration"),
        )
    for samples in dataset.sets.values():
        if (data / samples.file).exists() and _identity(data / samples.file) == _identity(file):
            raise ConfigError(
                "the calibration set is one that queries are asked of",
                where=f"models/{benchmark.name}/benchmark.yaml, dataset.calibration",
                expected="the official calibration set of the benchmark",
                found=f"{dataset.calibration}, the samples of {samples.file}",
            )
    if benchmark.preparer != "published":
        return CalibrationSet(file=dataset.calibration, store=file)
    report(f"converting {file.name}", None)
    tokenizer = workspace.models / benchmark.checkpoint.original / "tokenizer.json"
    return CalibrationSet(
        file=dataset.calibration, store=convert(dataset.source, file, tokenizer, dataset.longest_prompt)
    )


def _brings(benchmark: Benchmark, part: str) -> str:
    """The command that puts a part of `benchmark` in its place."""
    if benchmark.preparer == "published":
        return f"harness-llm download --model {benchmark.name} --part {part}"
    return f"harness-llm submit --model {benchmark.name}"


def _identity(samples: Path) -> str:
    """sha256 of a published file, or of a token store that was made here."""
    return open_store(samples).digest if samples.is_dir() else file_digest(samples)
