"""The benchmark of recipes: engines that load a checkpoint, and recipes below the gate."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from benchmarks.quantization import WAYS, RecipeContext, Row, Way, table
from harness_llm.config.benchmark import load_benchmark
from harness_llm.config.checkpoint import QUANTIZATION, write_record
from harness_llm.config.engine_config import load_config
from harness_llm.errors import RunFailed
from harness_llm.hardware.gpus import NO_ACCELERATOR
from harness_llm.paths import CHECKOUT, Workspace
from harness_llm.pipeline.panel import Panel
from harness_llm.prepare.quantize.recipes import Recipe, load_recipes

HERE = Workspace(CHECKOUT)
DEMO = load_benchmark("demo", HERE)
RECIPE = load_recipes(DEMO, HERE).recipes["int8"]
FULL = {"ROUGE1": 98.0, "ROUGE2": 96.0, "ROUGEL": 98.0, "TOKENS_PER_SAMPLE": 7.0}
POOR = FULL | {"ROUGE2": 48.0}


@dataclass(frozen=True)
class Recorded(RecipeContext):
    """Checkpoint and scores are those of a record; of the ways to serve, the first `failing` cannot."""

    failing: int = 0

    def _quantize(self, recipe: Recipe) -> Path:
        folder = self.workspace.models / recipe.name
        folder.mkdir(parents=True)
        (folder / "model.safetensors").write_bytes(b"x" * 1234)
        write_record(folder, QUANTIZATION, seconds=3.5)
        return folder

    def _answers(self, recipe: Recipe, checkpoint: Path, way: Way) -> list[list[int]]:
        if WAYS.index(way) < self.failing:
            raise RunFailed("an engine failed", found=f"no {way.dtype}")
        return [[1, 2]]

    def _score(self, *_: Any) -> dict[str, float]:
        return POOR


@pytest.fixture
def bench(tmp_path: Path) -> Recorded:
    config = load_config(DEMO, "Offline", NO_ACCELERATOR, [], HERE)
    return Recorded(DEMO, Workspace(tmp_path), 1, FULL, config, Panel(Console(stderr=True)))


@pytest.mark.parametrize(("failing", "served_by"), [(0, "vllm float32"), (2, "transformers float32")])
def test_first_engine_that_can_load_a_checkpoint_serves_it(bench: Recorded, failing: int, served_by: str) -> None:
    row = replace(bench, failing=failing).measure(RECIPE)
    assert (row.served_by, row.seconds, row.size_bytes) == (served_by, 3.5, 1234)
    assert list(row.refused) == ["vllm float32", "vllm bfloat16"][:failing]


def test_checkpoint_that_no_engine_loads_is_an_error_with_the_cause(bench: Recorded) -> None:
    with pytest.raises(RunFailed, match=r"no engine serves int8\n(.*\n)*.*no bfloat16"):
        replace(bench, failing=len(WAYS)).measure(RECIPE)


def test_recipe_below_the_gate_is_marked(bench: Recorded) -> None:
    row = bench.measure(RECIPE)
    assert row.misses == ["ROUGE2 fails: 48, at least 95.04"]
    first = Row("none", 0, 5, FULL, "transformers float32", {}, [])
    *_, good, poor = table([first, replace(first, recipe="good"), row], list(FULL)).splitlines()
    assert good == "| good | 0.0 | 5 | 98.00 | 96.00 | 98.00 | 7.00 | 100.00% | passes | transformers float32 |"
    assert " | 50.00% | ROUGE2 fails: 48, at least 95.04 | vllm float32 |" in poor
