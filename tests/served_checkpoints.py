"""Tiny checkpoints of each architecture, quantized by the recipes, and loaded by vLLM."""

import json
import os
import subprocess
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from harness_llm.config.benchmark import benchmark_names, load_benchmark
from harness_llm.paths import CHECKOUT, Workspace
from harness_llm.prepare.quantize.job import CalibrationSet, Job
from harness_llm.prepare.quantize.quantize import PROGRAMS
from harness_llm.prepare.quantize.recipes import Recipe, load_recipes
from harness_llm.protocol.token_store import write_store

HERE = Workspace(CHECKOUT)
TESTS = Path(__file__).parent
Case = tuple[str, str]
"""An architecture, and the name of a recipe."""
ARCHITECTURES = {  # of the benchmarks whose checkpoint is quantized before it is served
    "llama2-70b": "llama-fp16",
    "llama2-70b-interactive": "llama-fp16",
    "llama3.1-405b": "llama-bf16",
    "llama3.1-8b": "llama-bf16",
    "llama3.1-8b-edge": "llama-bf16",
    "mixtral-8x7b": "mixtral",
}


def default_recipes() -> dict[Case, Recipe]:
    """The default recipe of each accelerator, for one benchmark of each architecture."""
    found: dict[Case, Recipe] = {}
    for name in benchmark_names(HERE):
        benchmark = load_benchmark(name, HERE)
        if benchmark.preparer != "published" or benchmark.checkpoint.original == benchmark.checkpoint.quantized:
            continue
        recipes = load_recipes(benchmark, HERE)
        for recipe in {*recipes.accelerators.values()}:
            found.setdefault((ARCHITECTURES[name], recipe), recipes.recipes[recipe])
    return dict(sorted(found.items()))


RECIPES = default_recipes()


def has_tool(case: Case) -> bool:
    """Whether the environment of the recipe's tool is installed."""
    return PROGRAMS[RECIPES[case].tool].python.is_file()


def quantized(cases: Collection[Case], published: Mapping[str, Path], folder: Path) -> dict[Case, Path]:
    """Checkpoints that the recipes of `cases` make, one process for each tool; without those of a missing tool."""
    import tiny_checkpoints  # noqa: PLC0415 - loads torch

    calibration = folder / "calibration.store"
    prompts = [[(31 * row + 7 * place) % tiny_checkpoints.VOCABULARY for place in range(48)] for row in range(8)]
    write_store(calibration, prompts)
    made = {case: folder / "-".join(case) for case in cases if has_tool(case)}
    for tool, program in PROGRAMS.items():
        jobs = [
            _job(RECIPES[case], published[case[0]], output, calibration)
            for case, output in made.items()
            if RECIPES[case].tool == tool
        ]
        if jobs:
            file = folder / f"{tool}.json"
            file.write_text(json.dumps([job.model_dump(mode="json") for job in jobs]))
            run(program.python, "quantize_jobs.py", program.module.rpartition(".")[2], str(file))
    return made


def _job(recipe: Recipe, checkpoint: Path, output: Path, calibration: Path) -> Job:
    amount = {"samples": 8, "sequence_length": 32} if recipe.calibration else None
    return Job(
        checkpoint=checkpoint,
        output=output,
        recipe=Recipe.model_validate(recipe.model_dump() | {"calibration": amount}),
        calibration=CalibrationSet(file="calibration", store=calibration) if amount else None,
    )


def loaded(
    python: Path, folders: Sequence[Path], environment: Mapping[str, str] | None = None
) -> dict[Path, dict[str, Any]]:
    """What load_checkpoints.py reports of each checkpoint, with the vLLM of `python`."""
    printed = run(python, "load_checkpoints.py", *map(str, folders), environment=environment)
    return {Path(name): facts for name, facts in json.loads(printed.splitlines()[-1]).items()}


def run(python: Path, program: str, *arguments: str, environment: Mapping[str, str] | None = None) -> str:
    """Standard output of a program beside this file."""
    quiet = {"PYTHONPATH": str(CHECKOUT), "HF_HUB_OFFLINE": "1", "VLLM_LOGGING_LEVEL": "ERROR"}
    done = subprocess.run(
        [str(python), str(TESTS / program), *arguments],
        env=os.environ | quiet | dict(environment or {}),
        capture_output=True,
        text=True,
        check=False,
    )
    assert not done.returncode, done.stderr[-3000:]
    return done.stdout
