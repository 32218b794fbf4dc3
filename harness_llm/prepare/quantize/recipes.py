"""How checkpoints are quantized: `models/quantization.yaml`."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from harness_llm.config.benchmark import Benchmark
from harness_llm.errors import ConfigError
from harness_llm.fileio import read_yaml
from harness_llm.hardware.gpus import Gpu
from harness_llm.paths import Workspace

TABLE = "quantization.yaml"

Tool = Literal["llmcompressor", "quark"]


class _Facts(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Method(_Facts):
    """What a recipe does, whichever the benchmark.

    Attributes:
        scheme: number formats of weights and activations, by the tool's name for them.
        algorithm: what chooses the numbers; plain rounding if empty.
        kv_cache: the format that scales of keys and values are stored for; none if empty.
        calibrated: whether samples are seen.
        joined: whether they are joined and cut into equal pieces, as Quark's GPTQ wants them.
        weights: `weight_data_types` of measurements.json.
        needs: a format of models/gpus.yaml without which the result is of no use.
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
    """How much of the calibration set is seen; `sequence_length` in token ids of each sample."""

    samples: int = Field(ge=1)
    sequence_length: int = Field(ge=1)


class Recipe(Method):
    """A method for one benchmark; `ignore` are patterns of layers that stay as they are."""

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
    """The recipes of one benchmark, and which of them each accelerator is served by default."""

    recipes: dict[str, Recipe]
    accelerators: dict[str, str]

    def choose(self, name: str, gpu: str) -> Recipe:
        """The recipe called `name`, or the default of `gpu` if that is empty.

        Raises:
            ConfigError: there is none.
        """
        if not (name or gpu in self.accelerators):
            raise ConfigError(
                f"no recipe is the default of {gpu}",
                where=f"models/{TABLE}, accelerators",
                expected=", ".join(self.accelerators),
                hint="--recipe names one",
            )
        name = name or self.accelerators[gpu]
        if name not in self.recipes:
            raise ConfigError(f"there is no recipe {name}", where=f"models/{TABLE}", expected=", ".join(self.recipes))
        return self.recipes[name]


def load_recipes(benchmark: Benchmark, workspace: Workspace) -> Recipes:
    """The recipes as `benchmark` has them.

    Raises:
        ConfigError: the table is wrong.
    """
    file = workspace.benchmarks / TABLE
    try:
        return _resolve(_Table.model_validate(read_yaml(file)), benchmark)
    except ValidationError as error:
        raise ConfigError("the table of recipes is wrong", where=str(file), found=str(error)) from error


def _resolve(table: _Table, benchmark: Benchmark) -> Recipes:
    changes = table.benchmarks.get(benchmark.settings, _Changes())
    ignore = table.ignore | changes.ignore
    whole = {"sequence_length": benchmark.dataset.longest_prompt}
    amount = Amount.model_validate(whole | table.calibration | changes.calibration)
    return Recipes(
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


def require_format(recipe: Recipe, gpu: str, gpus: dict[str, Gpu]) -> None:
    """Refuse a recipe whose result `gpu` cannot multiply.

    Args:
        gpus: from `load_gpus`; what is not among them, a CPU, multiplies no format below 16 bits in hardware.

    Raises:
        ConfigError: names the accelerators that can.
    """
    formats = gpus[gpu].formats if gpu in gpus else ()
    if recipe.needs and recipe.needs not in formats:
        able = [name for name, facts in gpus.items() if recipe.needs in facts.formats]
        raise ConfigError(
            f"{gpu} cannot multiply what the recipe {recipe.name} makes",
            where="models/gpus.yaml, formats",
            expected=f"{recipe.needs}, as of {', '.join(able)}",
            found=f"{gpu}: {', '.join(formats) or 'none'}",
            hint=f"--gpu names the accelerator that will serve the checkpoint: --gpu {able[0]}" if able else "",
        )
