"""Quantization recipes: `models/quantization.yaml`."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from harness_llm.config.benchmark import Benchmark
from harness_llm.config.commands import command, typed
from harness_llm.errors import ConfigError
from harness_llm.fileio import read_yaml
from harness_llm.hardware.gpus import Gpu
from harness_llm.paths import Workspace

TABLE = "quantization.yaml"

Tool = Literal["llmcompressor", "quark"]


class _Facts(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Method(_Facts):
    """The part of a recipe that does not depend on the benchmark.

    Attributes:
        scheme: the tool's name for the number formats of weights and activations.
        algorithm: empty: round to nearest.
        kv_cache: number format of the KV cache scales; empty: none.
        calibrated: whether the recipe uses calibration samples.
        joined: whether samples are concatenated and cut into equal pieces, which Quark's GPTQ requires.
        weights: `weight_data_types` of measurements.json.
        needs: number format of models/gpus.yaml that the accelerator must support.
    """

    tool: Tool
    scheme: str
    algorithm: Literal["", "gptq"] = ""
    kv_cache: Literal["", "fp8"] = ""
    calibrated: bool = False
    joined: bool = False
    weights: str
    needs: Literal["", "mxfp4", "nvfp4"] = ""


class Amount(_Facts):
    """Number of calibration samples, and their maximum length in token ids."""

    samples: int = Field(ge=1)
    sequence_length: int = Field(ge=1)


class Recipe(Method):
    """A method for one benchmark; `ignore` are patterns of layers that are not quantized."""

    name: str
    ignore: tuple[str, ...]
    calibration: Amount | None


class _Changes(_Facts):
    accelerators: dict[str, str] = {}
    calibration: dict[str, int] = {}
    ignore: dict[Tool, tuple[str, ...]] = {}


class _Table(_Facts):
    recipes: dict[str, Method]
    accelerators: dict[str, str]
    calibration: dict[str, int]
    ignore: dict[Tool, tuple[str, ...]]
    benchmarks: dict[str, _Changes] = {}


class Recipes(_Facts):
    """The recipes of one benchmark, and the default recipe of each accelerator."""

    benchmark: str
    recipes: dict[str, Recipe]
    accelerators: dict[str, str]

    def choose(self, name: str, gpu: str) -> Recipe:
        """Return the recipe `name`, or the default of `gpu` if `name` is empty.

        Raises:
            ConfigError: unknown recipe, or `gpu` has no default.
        """
        if not (name or gpu in self.accelerators):
            raise ConfigError(
                f"no default recipe for {gpu}",
                where=f"models/{TABLE}, accelerators",
                expected=", ".join(self.accelerators),
                hint=command("quantize", model=self.benchmark, gpu=gpu, recipe=next(iter(self.recipes))),
            )
        name = name or self.accelerators[gpu]
        if name not in self.recipes:
            raise ConfigError(f"unknown recipe {name}", where=f"models/{TABLE}", expected=", ".join(self.recipes))
        return self.recipes[name]


def load_recipes(benchmark: Benchmark, workspace: Workspace) -> Recipes:
    """Return the recipes of `benchmark`.

    Raises:
        ConfigError: invalid table.
    """
    file = workspace.benchmarks / TABLE
    try:
        return _resolve(_Table.model_validate(read_yaml(file)), benchmark)
    except ValidationError as error:
        raise ConfigError("invalid table of recipes", where=str(file), found=str(error)) from error


def _resolve(table: _Table, benchmark: Benchmark) -> Recipes:
    changes = table.benchmarks.get(benchmark.settings, _Changes())
    ignore = table.ignore | changes.ignore
    whole = {"sequence_length": benchmark.dataset.longest_prompt}
    amount = Amount.model_validate(whole | table.calibration | changes.calibration)
    return Recipes(
        benchmark=benchmark.name,
        recipes={
            name: Recipe(
                **method.model_dump(),
                name=name,
                ignore=ignore[method.tool],
                calibration=amount if method.calibrated else None,
            )
            for name, method in table.recipes.items()
        },
        accelerators=table.accelerators | changes.accelerators,
    )


def formats_of(gpu: str, gpus: dict[str, Gpu]) -> tuple[str, ...]:
    """Return the number formats of `gpu`; a CPU is not in `gpus` and supports no format below 16 bits in hardware."""
    return gpus[gpu].formats if gpu in gpus else ()


def require_format(recipe: Recipe, gpu: str, gpus: dict[str, Gpu]) -> None:
    """Require that `gpu` supports the recipe's number format.

    Args:
        gpus: from `load_gpus`.

    Raises:
        ConfigError: `gpu` does not support the format.
    """
    formats = formats_of(gpu, gpus)
    if recipe.needs and recipe.needs not in formats:
        able = [name for name, facts in gpus.items() if recipe.needs in facts.formats]
        raise ConfigError(
            f"unsupported number format of recipe {recipe.name} on {gpu}",
            where="models/gpus.yaml, formats",
            expected=f"{recipe.needs}, as of {', '.join(able)}",
            found=f"{gpu}: {', '.join(formats) or 'none'}",
            hint=f"choose the accelerator that will serve the checkpoint: {typed(gpu=able[0])}" if able else "",
        )
