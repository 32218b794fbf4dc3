"""Quantization of the demo with each recipe: duration, size, and accuracy.

    python -m benchmarks.quantization --recipes int8 gptq-w4a16 --samples 2048

vLLM's CPU build answers if it can serve the checkpoint, in single precision or else bfloat16; otherwise transformers
answers. Recipes that are not allowed on CPUs are measured, too. Checkpoints are written to
build/quantization. The table goes to stderr; the last line on stdout is one JSON document.
"""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console

from benchmarks.answers import AnswerSpec
from harness_llm.config.assets import prepare
from harness_llm.config.benchmark import Benchmark, load_benchmark
from harness_llm.config.checkpoint import QUANTIZATION, read_record
from harness_llm.config.engine_config import EngineConfig, load_config
from harness_llm.config.rules import load_round
from harness_llm.errors import HarnessError, RunFailed
from harness_llm.evaluate.decoding import decoder
from harness_llm.evaluate.gates import gates_for, judge
from harness_llm.evaluate.run_result import load_reference
from harness_llm.evaluate.score import score_answers
from harness_llm.hardware.gpus import NO_ACCELERATOR
from harness_llm.paths import CHECKOUT, Workspace
from harness_llm.pipeline.panel import Panel
from harness_llm.prepare.demo.stages import DemoPreparation
from harness_llm.prepare.quantize.job import Job
from harness_llm.prepare.quantize.quantize import PROGRAMS, calibration_set, quantize_checkpoint
from harness_llm.prepare.quantize.recipes import Recipe, load_recipes
from harness_llm.prepare.stage import ENVIRONMENT
from harness_llm.protocol.token_store import open_store

SAMPLES = 2048
DEMO, SCENARIO, ROUND = "demo", "Offline", "v6.1"


class Way(NamedTuple):
    """One way to serve a checkpoint."""

    engine: str
    dtype: str


WAYS = (Way("vllm", "float32"), Way("vllm", "bfloat16"), Way("transformers", "float32"))


@dataclass(frozen=True)
class Row:
    """Result of one recipe.

    Attributes:
        seconds: to quantize, without the program's start.
        size_bytes: of the weights.
        served_by: the first way that could serve; `refused` contains the errors of the ways before.
        misses: gates of the demo that the scores miss.
    """

    recipe: str
    seconds: float
    size_bytes: int
    scores: Mapping[str, float]
    served_by: str
    refused: Mapping[str, str]
    misses: Sequence[str]


@dataclass(frozen=True)
class RecipeContext:
    """Shared by all recipes: the demo, its FP32 scores over the first `samples`, and the engine configuration."""

    benchmark: Benchmark
    workspace: Workspace
    samples: int
    reference: Mapping[str, float]
    config: EngineConfig
    panel: Panel

    @property
    def preparation(self) -> DemoPreparation:
        """Preparation of the demo, with the paths of its parts."""
        return DemoPreparation(self.benchmark, self.workspace, self.samples)

    def measure(self, recipe: Recipe) -> Row:
        """Quantize, serve and score."""
        checkpoint = self._quantize(recipe)
        record = read_record(checkpoint, QUANTIZATION) or {}
        refused: dict[str, str] = {}
        for way in WAYS:
            try:
                answers = self._answers(recipe, checkpoint, way)
            except RunFailed as error:
                refused[" ".join(way)] = error.found
                continue
            scores = self._score(checkpoint, answers)
            size = _size(checkpoint)
            return Row(recipe.name, record["seconds"], size, scores, " ".join(way), refused, self.misses(scores))
        raise RunFailed(f"no engine serves {recipe.name}", where=str(checkpoint), found=json.dumps(refused, indent=1))

    def misses(self, scores: Mapping[str, float]) -> list[str]:
        """Return the demo's gates that `scores` miss."""
        rules = load_round(ROUND).benchmark(self.benchmark.variants[0])
        gates = gates_for(self.benchmark, rules, self.reference)
        return [str(verdict) for verdict in judge(scores, gates) if not verdict.passed]

    def _quantize(self, recipe: Recipe) -> Path:
        report, output = self.panel.stage, self.workspace.build / "quantization" / recipe.name
        samples = calibration_set(self.benchmark, self.workspace, report) if recipe.calibration else None
        job = Job(checkpoint=self.preparation.assets.original, output=output, recipe=recipe, calibration=samples)
        quantize_checkpoint(job, self.workspace, report)
        return output

    def _answers(self, recipe: Recipe, checkpoint: Path, way: Way) -> list[list[int]]:
        self.panel.stage(f"{recipe.name}: {self.samples} answers by {' '.join(way)}", None)
        output = checkpoint.with_suffix(".json")
        spec = AnswerSpec(
            engine=way.engine,
            checkpoint=checkpoint,
            llm_config=self.config.llm_config | {"dtype": way.dtype},
            sampling=self.config.sampling,
            store=self.preparation.store,
            samples=self.samples,
            output=output,
        )
        # Quark reads its own format, and transformers calls Quark.
        python = PROGRAMS["quark"].python if (recipe.tool, way.engine) == ("quark", "transformers") else sys.executable
        _run([str(python), "-m", "benchmarks.answers", spec.model_dump_json()], self.config.env_config)
        answers: list[list[int]] = json.loads(output.read_text())
        return answers

    def _score(self, checkpoint: Path, answers: Sequence[Sequence[int]]) -> dict[str, float]:
        store = open_store(self.preparation.store)
        targets, kinds = store.targets()[: self.samples], store.kinds()[: self.samples]
        return score_answers(answers, targets, kinds, decoder(checkpoint), self.benchmark.accuracy)


def _run(command: Sequence[str], environment: Mapping[str, str]) -> None:
    variables = {**os.environ, **ENVIRONMENT, **environment}
    done = subprocess.run(command, env=variables, cwd=CHECKOUT, capture_output=True, text=True, check=False)
    if done.returncode:
        errors = [line.strip() for line in done.stderr.splitlines() if "rror" in line and "https://" not in line]
        raise RunFailed("an engine failed", found=f"exit code {done.returncode}: {''.join(errors[-1:])}")


def _size(checkpoint: Path) -> int:
    return sum(file.stat().st_size for file in checkpoint.glob("*.safetensors"))


def _bench(samples: int, panel: Panel) -> RecipeContext:
    workspace = Workspace()
    benchmark = load_benchmark(DEMO, workspace)
    assets = prepare(DemoPreparation(benchmark, workspace, samples), panel.stage)
    reference = load_reference(assets.reference) if assets.reference else {}
    config = load_config(benchmark, SCENARIO, NO_ACCELERATOR, [], workspace)
    return RecipeContext(benchmark, workspace, samples, reference, config, panel)


def _rows(bench: RecipeContext, names: Sequence[str]) -> Iterator[Row]:
    """Yield the original first, with its reference scores."""
    original = bench.preparation.assets.original
    yield Row("none", 0.0, _size(original), bench.reference, "transformers float32", {}, bench.misses(bench.reference))
    recipes = load_recipes(bench.benchmark, bench.workspace)
    for name in names or recipes.recipes:
        yield bench.measure(recipes.choose(name, NO_ACCELERATOR))


def table(rows: Sequence[Row], metrics: Sequence[str]) -> str:
    """Format the rows in Markdown; the first one is the reference of the others."""
    names = ("recipe", "s", "bytes", *metrics, "of FP32", "gate", "served by")
    lines = [names, ("---",) * len(names), *(_columns(row, rows[0].scores, metrics) for row in rows)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _columns(row: Row, reference: Mapping[str, float], metrics: Sequence[str]) -> tuple[str, ...]:
    share = min(row.scores[metric] / reference[metric] for metric in metrics)
    scores = (f"{row.scores[metric]:.2f}" for metric in metrics)
    gate = "; ".join(row.misses) or "passes"
    return (row.recipe, f"{row.seconds:.1f}", f"{row.size_bytes:,}", *scores, f"{share:.2%}", gate, row.served_by)


def run(names: Sequence[str], samples: int, console: Console) -> dict[str, Any]:
    """Measure and report.

    Raises:
        ConfigError: unknown recipe.
        EnvironmentMissing: the environment of a tool is missing.
        RunFailed: quantization failed, or no engine serves the checkpoint.
    """
    bench = _bench(samples, Panel(console))
    rows = list(_rows(bench, names))
    sys.stderr.write(table(rows, bench.benchmark.accuracy.metrics))
    return {"samples": samples, "rows": [asdict(row) for row in rows]}


def main() -> None:
    """Run the benchmark; report errors like the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.quantization", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--recipes", nargs="*", default=[], help="default: all of models/quantization.yaml")
    parser.add_argument("--samples", type=int, default=SAMPLES, help="number of samples (default %(default)s)")
    arguments = parser.parse_args()
    try:
        report = run(arguments.recipes, arguments.samples, Console(stderr=True))
    except HarnessError as error:
        sys.stderr.write(f"error: {error}\n")
        sys.exit(error.exit_code)
    sys.stdout.write(json.dumps(report) + "\n")


if __name__ == "__main__":
    main()
