"""Recipe of an existing quantized checkpoint, which another machine with other accelerators may have written."""

import json
from typing import Any

from harness_llm.config.checkpoint import QUANTIZATION
from harness_llm.config.commands import command
from harness_llm.errors import EnvironmentMissing
from harness_llm.hardware.gpus import load_gpus
from harness_llm.paths import MODELS_VARIABLE
from harness_llm.prepare.published import PublishedPreparation
from harness_llm.prepare.quantize.recipes import formats_of, load_recipes


def served_recipe(preparation: PublishedPreparation) -> dict[str, Any]:
    """Return the recorded recipe of the served checkpoint; empty without a record."""
    record = preparation.assets.checkpoint / QUANTIZATION
    recipe: dict[str, Any] = json.loads(record.read_text()).get("recipe", {}) if record.is_file() else {}
    return recipe


def require_served_format(preparation: PublishedPreparation, gpu: str) -> None:
    """Require that `gpu` supports the number format of the served checkpoint.

    Raises:
        EnvironmentMissing: `gpu` does not support it.
    """
    recipe = served_recipe(preparation)
    needs = recipe.get("needs", "")
    if needs and needs not in formats_of(gpu, load_gpus(preparation.workspace)):
        raise EnvironmentMissing(
            f"{gpu} does not support the number format of the served checkpoint",
            where=str(preparation.assets.checkpoint / QUANTIZATION),
            expected=f"a recipe for {gpu}",
            found=f"recipe {recipe['name']}, which needs {needs}",
            hint=requantize_command(preparation, gpu),
        )


def default_recipe(preparation: PublishedPreparation, gpu: str) -> str:
    """Return the name of the default recipe of `gpu`; empty without one."""
    return load_recipes(preparation.benchmark, preparation.workspace).accelerators.get(gpu, "")


def requantize_command(preparation: PublishedPreparation, gpu: str) -> str:
    """Return the command that replaces the served checkpoint by one for `gpu`."""
    made = command("quantize", model=preparation.benchmark.name, gpu=gpu)
    return f"{made}; if other machines serve this checkpoint, first set {MODELS_VARIABLE} to another folder"
