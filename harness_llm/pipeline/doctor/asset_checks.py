"""Checks of model and data: missing parts, the recipe of an existing checkpoint, and the disk space that they need."""

from collections.abc import Iterator

from harness_llm.config.assets import missing
from harness_llm.config.request import Request
from harness_llm.errors import HarnessError
from harness_llm.hardware.gpus import NO_ACCELERATOR, load_gpus
from harness_llm.pipeline.doctor.check_result import CheckResult, from_error, passed, warned
from harness_llm.pipeline.doctor.disk_space import GB, SpaceNeed
from harness_llm.prepare.downloads.download import root_of
from harness_llm.prepare.downloads.fetch import source_of
from harness_llm.prepare.preparation import preparation_of
from harness_llm.prepare.provision import missing_downloads, missing_parts
from harness_llm.prepare.published import PublishedPreparation
from harness_llm.prepare.quantize.quantize import require_tool
from harness_llm.prepare.quantize.recipes import load_recipes, require_format
from harness_llm.prepare.quantize.served import (
    default_recipe,
    requantize_command,
    require_served_format,
    served_recipe,
)

# Size relative to a 16-bit original: FP8, scales and unquantized layers; FP4 checkpoints are smaller.
_QUANTIZED = 0.55
_NAME = "Model and data"
_QUANTIZATION = "Quantization"


def check_assets(request: Request) -> Iterator[CheckResult]:
    """Check downloads and quantization of a published benchmark; the demo and stand-ins generate model and data."""
    preparation = preparation_of(request.benchmark, request.workspace, request.samples("accuracy"))
    if not isinstance(preparation, PublishedPreparation):
        return
    parts, quantizes = missing_parts(preparation), preparation.needs_quantization()
    to_prepare = [*parts, *(["checkpoint"] if quantizes else [])]
    gpu = request.options.gpu
    faults = list(_check_default(preparation, gpu) if quantizes else _check_recipe(preparation, gpu))
    if to_prepare:
        yield passed(_NAME, f"to prepare: {', '.join(to_prepare)}")
    elif not faults:
        yield passed(_NAME, str(preparation.assets.checkpoint))
    yield from faults


def _check_default(preparation: PublishedPreparation, gpu: str) -> Iterator[CheckResult]:
    """Check that there is a recipe to quantize for `gpu`."""
    try:
        load_recipes(preparation.benchmark, preparation.workspace).choose("", gpu)
    except HarnessError as error:
        yield from_error(_NAME, error)


def _check_recipe(preparation: PublishedPreparation, gpu: str) -> Iterator[CheckResult]:
    """Check that an existing checkpoint was quantized for `gpu`."""
    try:
        require_served_format(preparation, gpu)
    except HarnessError as error:
        yield from_error(_NAME, error)
        return
    recipe, default = served_recipe(preparation).get("name", ""), default_recipe(preparation, gpu)
    if recipe and default and recipe != default:
        yield warned(
            _NAME,
            f"quantized by recipe {recipe}",
            where=str(preparation.assets.checkpoint),
            expected=f"{default}, the default of {gpu}",
            hint=requantize_command(preparation, gpu),
        )


def check_quantization(request: Request, *, here: bool) -> Iterator[CheckResult]:
    """Check that a missing checkpoint can be quantized.

    Args:
        here: whether this environment quantizes, not a container.
    """
    preparation = preparation_of(request.benchmark, request.workspace, request.samples("accuracy"))
    benchmark, gpu = request.benchmark, request.options.gpu
    if isinstance(preparation, PublishedPreparation):
        needed = preparation.needs_quantization()
    else:  # the demo's checkpoint is for any accelerator
        needed, gpu = "quantize" in missing(preparation), NO_ACCELERATOR
    if not needed:
        return
    try:
        recipe = load_recipes(benchmark, request.workspace).choose("", gpu)
        require_format(recipe, gpu, load_gpus(request.workspace))
        if here:
            require_tool(recipe.tool)
        yield passed(_QUANTIZATION, f"{recipe.name}, by {recipe.tool}")
    except HarnessError as error:
        yield from_error(_QUANTIZATION, error)


def space_needs(request: Request) -> list[SpaceNeed]:
    """Return the files that downloads and quantization of a published benchmark write."""
    preparation = preparation_of(request.benchmark, request.workspace, request.samples("accuracy"))
    if not isinstance(preparation, PublishedPreparation):
        return []
    downloads = missing_downloads(preparation)
    needs = [SpaceNeed(root_of(d, request.workspace) / d.folder, source_of(d), d.gb * GB) for d in downloads]
    if preparation.needs_quantization():
        original = sum(d.gb for d in request.benchmark.downloads if d.part == "model")
        quantized = preparation.assets.checkpoint
        needs.append(SpaceNeed(quantized, "quantization", original * GB * _QUANTIZED, resumed=False))
    return needs
