"""The command line. Each command imports what it needs, so that --help is fast."""

import functools
import inspect
import os
import signal
import sys
import traceback
from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn, get_type_hints

import typer
from typer.core import TyperCommand

from harness_llm.config.aliases import translate
from harness_llm.config.options import (
    OUTPUT,
    SETTINGS,
    SYSTEM,
    WHAT_TO_RUN,
    Options,
    declared_options,
    option_name,
    split_names,
)
from harness_llm.containers import lifeline
from harness_llm.errors import INTERRUPTED, EnvironmentMissing, HarnessError, RunFailed
from harness_llm.pipeline.doctor.purpose import Part

if TYPE_CHECKING:
    from harness_llm.pipeline.panel import Panel

VERBOSE = "HARNESS_LLM_VERBOSE"
_ARGUMENTS = "Arguments"
_GROUPS = (_ARGUMENTS, WHAT_TO_RUN, SYSTEM, SETTINGS, OUTPUT)
# Options that change neither the selection of runs nor the tree.
_RESULTS = ("tests", "package", "ray", "stop_on_failure")
_SCORING = ("model", "round", "profile", "stand_in", "total_sample_count")


def _option(group: str, help_: str, *names: str) -> Any:
    return typer.Option(*names, help=help_, rich_help_panel=group)


AsJson = Annotated[bool, _option(OUTPUT, "Print the results as JSON.", "--json")]

app = typer.Typer(
    help="Run an MLPerf Inference submission for LLMs: prepare, measure, package and check.",
    epilog="Exit codes: 0 success, 1 a check or gate failed, 2 wrong use, 3 missing on this machine, 4 a run failed, "
    "130 interrupted. -v before the command shows tracebacks. --install-completion installs completion for your shell.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


class _GroupedHelp(TyperCommand):
    """Shows the options of a command under their headings."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        records: dict[str, list[tuple[str, str]]] = {group: [] for group in _GROUPS}
        for parameter in self.get_params(ctx):
            if record := parameter.get_help_record(ctx):
                group = getattr(parameter, "rich_help_panel", None) or (OUTPUT if parameter.is_eager else _ARGUMENTS)
                records[group].append(record)
        for group in filter(records.get, _GROUPS):
            with formatter.section(group):
                formatter.write_dl(records[group])


def _register(function: Callable[..., None]) -> Callable[..., None]:
    # typer shortens the help of a command in the list of commands, but not its short_help.
    return app.command(cls=_GroupedHelp, short_help=inspect.getdoc(function))(function)


def _command(
    *, only: Collection[str] | None = None, without: Collection[str] = ()
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Register a command whose first parameter, `Options`, becomes one command line option for each field.

    Args:
        only: the fields, if not all.
        without: fields that the command has no use for.
    """
    fields = [name for name in declared_options() if (only is None or name in only) and name not in without]

    def register(function: Callable[..., None]) -> Callable[..., None]:
        _, *own = inspect.signature(function).parameters.values()
        arguments = [*_parameters(fields), *(one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in own)]

        @functools.wraps(function)
        def command(**values: Any) -> None:
            options = _options({name: values.pop(name) for name in fields})
            function(options, **values)

        # typer reads the signature and the annotations.
        command.__signature__ = inspect.Signature(arguments)  # type: ignore[attr-defined]
        command.__annotations__ = {argument.name: argument.annotation for argument in arguments}
        return _register(command)

    return register


def _parameters(names: Collection[str]) -> Iterator[inspect.Parameter]:
    """The fields `names` of `Options` as typer's parameters."""
    types = get_type_hints(Options)
    for name, (field, declared) in declared_options().items():
        if name not in names:
            continue
        kind, default, option = types[name], field.default, option_name(name)
        if declared.commas:
            kind, default = str, ""
        elif default == ():
            kind, default = list[str] | None, None
        elif default is True:
            option = f"{option}/--no-{name}"
        info = typer.Option(
            option,
            help=declared.help,
            rich_help_panel=declared.group,
            envvar=declared.always_read or None,
            min=1 if kind == int | None else None,
            show_default=False,
        )
        yield inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, info])


def _options(values: dict[str, Any]) -> Options:
    """Options of the arguments that typer has read."""
    for name, (field, declared) in declared_options().items():
        if declared.commas and name in values:
            values[name] = split_names(values[name]) or field.default
    if "set" in values:
        values["set"] = tuple(values["set"] or ())
    options = Options(**values)
    if options.environment:
        from harness_llm.config.environment import unused_variables

        for line in unused_variables(os.environ):
            sys.stderr.write(f"{line}\n")
    return options


@app.callback()
def _verbose(
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Show tracebacks.")] = False,
) -> None:
    if verbose:
        os.environ[VERBOSE] = "1"


def _panel() -> "Panel":
    from rich.console import Console

    from harness_llm.pipeline.panel import Panel

    return Panel(Console(stderr=True))


@_command()
def submit(
    options: Options,
    dry_run: Annotated[bool, _option(OUTPUT, "Print the plan and exit.", "--dry-run")] = False,
) -> None:
    """Prepare, run, package and check a submission; run the same command again to continue."""
    from harness_llm.commands import submit as command

    command(options, _panel(), dry_run=dry_run)


@_command()
def doctor(
    options: Options,
    part: Annotated[
        Part, _option(WHAT_TO_RUN, "host: the checks of a machine that starts containers; software: those of an image.")
    ] = Part.ALL,
    as_json: AsJson = False,
) -> None:
    """Check whether submit, with the same options, can run here."""
    from harness_llm.pipeline.doctor.doctor import doctor as command

    raise typer.Exit(command(options, part=part, as_json=as_json))


@_command()
def prepare(options: Options) -> None:
    """Download, train and quantize what submit, with the same options, needs."""
    from harness_llm.commands import prepare as command

    command(options, _panel())


@_command(without=("package",))
def run(
    options: Options,
    accuracy: Annotated[bool, _option(WHAT_TO_RUN, "The same as --tests accuracy.", "--accuracy")] = False,
) -> None:
    """Run the tests of --tests (default: performance), even if results of them exist."""
    from harness_llm.commands import run as command

    tests = ("accuracy",) if accuracy else options.tests or ("performance",)
    command(replace(options, tests=tests), _panel())


@_command(without=_RESULTS)
def package(
    options: Options,
    calibration_only: Annotated[
        bool, _option(OUTPUT, "Write only the calibration document.", "--calibration-only")
    ] = False,
) -> None:
    """Make the submission tree from finished runs, check it and make the archive."""
    from harness_llm.commands import package as command

    command(options, _panel(), calibration_only=calibration_only)


@_command(without=(*_RESULTS, "company"))
def status(options: Options, as_json: AsJson = False) -> None:
    """Show which runs are finished, and why others are not."""
    from harness_llm.commands import status as command

    command(options, as_json=as_json)


@_register
def runs(
    where: Annotated[
        list[str] | None,
        _option(
            WHAT_TO_RUN,
            "Only runs that meet this condition: FIELD=VALUE, such as state=INVALID or system=my-*; also != > < >= <=. "
            "Repeatable. The fields are those of --json.",
        ),
    ] = None,
    last: Annotated[
        int | None, typer.Option(help="Only the N newest of them.", rich_help_panel=WHAT_TO_RUN, min=1)
    ] = None,
    sort: Annotated[str, _option(OUTPUT, "Sort by this field; -FIELD: descending.")] = "started",
    as_csv: Annotated[bool, _option(OUTPUT, "Print all fields as CSV.", "--csv")] = False,
    as_json: AsJson = False,
) -> None:
    """List all runs with their states, figures and settings; a wide terminal shows more columns."""
    from harness_llm.commands import runs as command

    command(where or (), sort, last, as_csv=as_csv, as_json=as_json)


@_command(only=_SCORING)
def score(
    options: Options,
    log_dir: Annotated[Path, typer.Argument(help="Folder with mlperf_log_accuracy.json.")],
    output: Annotated[Path | None, _option(OUTPUT, "Write accuracy.txt to this file.")] = None,
) -> None:
    """Score the answers of an accuracy run and compare them with the accuracy gates."""
    from harness_llm.commands import score as command

    command(log_dir, options, output)


@_command(only=_SCORING)
def verify(
    options: Options,
    log_dir: Annotated[Path, typer.Argument(help="Folder with the logs of a compliance run.")],
    # aliases.py replaces --scenario by --scenarios.
    scenario: Annotated[str, _option(WHAT_TO_RUN, "Scenario of the run.", "--scenario", "--scenarios")],
    test: Annotated[
        str, _option(WHAT_TO_RUN, "TEST06, TEST07 or TEST09. Default: the only one of the benchmark.")
    ] = "",
    output: Annotated[Path | None, _option(OUTPUT, "Write the verdict to this file.")] = None,
) -> None:
    """Verify the run of a compliance test."""
    from harness_llm.commands import verify as command

    options = replace(options, scenarios=(scenario,), tests=(test,) if test else None)
    command(log_dir, options, output)


@_command(only=("model",))
def download(
    options: Options,
    part: Annotated[
        list[str] | None,
        _option(WHAT_TO_RUN, "dataset, calibration, livecodebench or model. Default: all. Repeatable."),
    ] = None,
) -> None:
    """Download and verify the model and the data sets of a benchmark."""
    from harness_llm.config.request import default_model
    from harness_llm.prepare.downloads.download import download as command

    command(options.model or default_model(), part or (), _panel().stage)


@_command(only=("model", "gpu"))
def quantize(
    options: Options,
    recipe: Annotated[str, _option(SETTINGS, "Recipe of models/quantization.yaml. Default: the accelerator's.")] = "",
) -> None:
    """Quantize the downloaded checkpoint for an accelerator."""
    from harness_llm.config.request import default_model
    from harness_llm.prepare.quantize.quantize import quantize as command

    command(options.model or default_model(), recipe, options.gpu, _panel().stage)


@_register
def check(
    tree: Annotated[Path, typer.Argument(help="Folder with closed/ or open/.")],
    round_name: Annotated[str, _option(WHAT_TO_RUN, "Default: the round of the tree, or the newest.", "--round")] = "",
    as_json: AsJson = False,
) -> None:
    """Check a submission tree; MLPERF_INFERENCE_DIR adds the official checker."""
    from harness_llm.commands import check as command

    raise typer.Exit(command(tree, round_name, as_json=as_json))


@_register
def compare(
    runs_a: Annotated[str, typer.Argument(help="A run below build/logs, or a folder; several, separated by commas.")],
    runs_b: Annotated[str, typer.Argument(help="The runs to compare them with.")],
    fail_if_slower: Annotated[
        str,
        _option(
            SETTINGS,
            "Exit with 1 if B is slower than A by more than this percentage, such as 2%, and with 3 if the runs do not "
            "show whether it is.",
        ),
    ] = "",
    as_json: AsJson = False,
) -> None:
    """Compare throughput, latency, accuracy and settings; with three runs per side, with confidence."""
    from harness_llm.commands import compare as command

    raise typer.Exit(command(runs_a, runs_b, fail_if_slower=fail_if_slower, as_json=as_json))


@_register
def bundle(
    run: Annotated[Path, typer.Argument(help="A run below build/logs.")],
    output: Annotated[Path | None, _option(OUTPUT, "Write this file. Default: below build/bundles.")] = None,
) -> None:
    """Pack redacted logs, configuration and the doctor's checks of a run for a bug report."""
    from harness_llm.commands import bundle as command

    command(run, output)


def _interrupt(*_: object) -> NoReturn:
    raise KeyboardInterrupt


def main() -> None:
    """Run a command and exit with its exit code."""
    signal.signal(signal.SIGTERM, _interrupt)
    lifeline.watch()
    try:
        app(translate(sys.argv[1:]))
    except HarnessError as error:
        if os.environ.get(VERBOSE):
            traceback.print_exc()
        sys.stderr.write(f"error: {error}\n")
        sys.exit(error.exit_code)
    except OSError as error:
        if os.environ.get(VERBOSE):
            raise
        sys.stderr.write(f"error: OS error: {error}\n\nhint: harness-llm -v shows the traceback\n")
        sys.exit(EnvironmentMissing.exit_code)
    except Exception as error:  # a user sees no traceback without -v
        if os.environ.get(VERBOSE):
            raise
        sys.stderr.write(f"error: this is a bug: {error!r}\n\nhint: harness-llm -v shows the traceback\n")
        sys.exit(RunFailed.exit_code)
    except SystemExit as end:
        if end.code == INTERRUPTED:  # typer's exit code for KeyboardInterrupt
            sys.stderr.write("interrupted; the same command continues\n")
        raise
