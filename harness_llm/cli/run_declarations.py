"""Commands that prepare, run and package. Each imports what it needs, so that --help is fast."""

import os
from dataclasses import replace
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from harness_llm.cli.declaration import VERBOSE, AsJson, option, options_command
from harness_llm.config.options import OUTPUT, SETTINGS, WHAT_TO_RUN, Options
from harness_llm.errors import ConfigError
from harness_llm.pipeline.doctor.purpose import Part

if TYPE_CHECKING:
    from harness_llm.pipeline.panel import Panel

commands = typer.Typer()
# Options that change neither the selection of runs nor the tree.
_RESULTS = ("tests", "package", "stop_on_failure", "metrics_port", "profile_window", "again")


class What(StrEnum):
    """What tune searches."""

    TARGET = "target"
    ENGINE = "engine"
    BOTH = "both"


def _panel() -> "Panel":
    from rich.console import Console

    from harness_llm.pipeline.panel import Panel

    return Panel(Console(stderr=True), verbose=bool(os.environ.get(VERBOSE)))


@options_command(commands, without=("profile_window",))
def submit(
    options: Options,
    dry_run: Annotated[bool, option(OUTPUT, "Print the plan and exit.", "--dry-run")] = False,
) -> None:
    """Prepare, run, package and check a submission; run the same command again to continue."""
    from harness_llm.cli.submit_command import submit as command

    command(options, _panel(), dry_run=dry_run)


@options_command(commands, without=("profile_window",))
def doctor(
    options: Options,
    part: Annotated[
        Part,
        option(
            WHAT_TO_RUN,
            "host: the checks of a machine that starts containers; container: those of a container of the runs.",
        ),
    ] = Part.ALL,
    as_json: AsJson = False,
) -> None:
    """Check whether submit, with the same options, can run here."""
    from harness_llm.pipeline.doctor.doctor import doctor as command

    raise typer.Exit(command(options, part=part, as_json=as_json))


@options_command(commands, without=("profile_window",))
def prepare(options: Options) -> None:
    """Download, train and quantize what submit, with the same options, needs."""
    from harness_llm.cli.submit_command import prepare as command

    command(options, _panel())


@options_command(commands, without=("package", "again"))
def run(
    options: Options,
    accuracy: Annotated[bool, option(WHAT_TO_RUN, "The same as --tests accuracy.", "--accuracy")] = False,
) -> None:
    """Run the tests of --tests (default: performance), even if results of them exist."""
    from harness_llm.cli.submit_command import run as command

    if accuracy and options.tests:
        raise ConfigError("--accuracy contradicts --tests", hint="--tests performance,accuracy")
    tests = ("accuracy",) if accuracy else options.tests or ("performance",)
    command(replace(options, tests=tests), _panel())


@options_command(commands, without=(*_RESULTS, "company"))
def tune(
    options: Options,
    what: Annotated[
        What,
        option(
            WHAT_TO_RUN, "target: LoadGen's target; engine: the engine's settings; both: first the engine.", "--what"
        ),
    ] = What.TARGET,
    budget: Annotated[
        str, option(SETTINGS, "Time for all trials of a scenario, such as 90m or 4h.", "--budget")
    ] = "4h",
    write: Annotated[
        bool, option(OUTPUT, "Write the found values into the settings files, instead of printing a diff.", "--write")
    ] = False,
) -> None:
    """Search the LoadGen target or engine settings of each scenario; run the same command again to continue."""
    from harness_llm.cli.tune_command import tune as command

    command(options, _panel(), what=what.value, budget=budget, write=write)


@options_command(commands, without=(*_RESULTS, "ray"))
def package(
    options: Options,
    calibration_only: Annotated[
        bool, option(OUTPUT, "Write only the calibration document.", "--calibration-only")
    ] = False,
) -> None:
    """Make the submission tree from finished runs, check it and make the archive."""
    from harness_llm.cli.package_command import package as command

    command(options, _panel(), calibration_only=calibration_only)


@options_command(commands, without=("profile_window",))
def status(options: Options, as_json: AsJson = False) -> None:
    """Show which runs of submit, with the same options, are finished, and why others are not."""
    from harness_llm.cli.status_command import status as command

    command(options, as_json=as_json)


@options_command(commands, only=("model",))
def download(
    options: Options,
    part: Annotated[
        list[str] | None,
        option(WHAT_TO_RUN, "dataset, calibration, livecodebench, model or draft. Default: all. Repeatable."),
    ] = None,
) -> None:
    """Download and verify the model and the data sets of a benchmark."""
    from harness_llm.config.request import default_model
    from harness_llm.prepare.downloads.download import download as command

    command(options.model or default_model(), part or (), _panel().stage)


@options_command(commands, only=("model", "gpu"))
def quantize(
    options: Options,
    recipe: Annotated[str, option(SETTINGS, "Recipe of models/quantization.yaml. Default: the accelerator's.")] = "",
) -> None:
    """Quantize the downloaded checkpoint for an accelerator."""
    from harness_llm.config.request import default_model
    from harness_llm.prepare.quantize.quantize import quantize as command

    command(options.model or default_model(), recipe, options.gpu, _panel().stage)
