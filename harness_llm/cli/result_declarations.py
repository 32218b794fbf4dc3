"""Commands that read finished runs and trees. Each imports what it needs, so that --help is fast."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from harness_llm.cli.declaration import AsJson, option, options_command, plain_command
from harness_llm.config.options import OUTPUT, SETTINGS, WHAT_TO_RUN, Options

commands = typer.Typer()
RoundName = Annotated[
    str,
    option(
        WHAT_TO_RUN,
        "Round of the submission tree. Default: from its layout, seeds, LoadGen version and folder name.",
        "--round",
    ),
]
_SCORING = ("model", "round", "profile", "stand_in", "total_sample_count")


@plain_command(commands)
def runs(
    where: Annotated[
        list[str] | None,
        option(
            WHAT_TO_RUN,
            "Only runs that meet this condition: FIELD=VALUE, such as state=INVALID or system=my-*; also != > < >= <=. "
            "Repeatable. The fields are those of --json.",
        ),
    ] = None,
    last: Annotated[
        int | None, typer.Option(help="Only the N newest of them.", rich_help_panel=WHAT_TO_RUN, min=1)
    ] = None,
    sort: Annotated[str, option(OUTPUT, "Sort by this field; -FIELD: descending.")] = "started",
    as_csv: Annotated[bool, option(OUTPUT, "Print all fields as CSV.", "--csv")] = False,
    as_json: AsJson = False,
) -> None:
    """List all runs with their states, figures and settings; a wide terminal shows more columns.

    The first column names the run for compare, diagnose, report and bundle.
    """
    from harness_llm.cli.analysis_commands import runs as command

    command(where or (), sort, last, as_csv=as_csv, as_json=as_json)


@options_command(commands, only=_SCORING)
def score(
    options: Options,
    log_dir: Annotated[Path, typer.Argument(help="Folder with mlperf_log_accuracy.json.")],
    output: Annotated[Path | None, option(OUTPUT, "Write accuracy.txt to this file.")] = None,
) -> None:
    """Score the answers of an accuracy run and compare them with the accuracy gates."""
    from harness_llm.cli.score_commands import score as command

    command(log_dir, options, output)


@options_command(commands, only=_SCORING)
def verify(
    options: Options,
    log_dir: Annotated[Path, typer.Argument(help="Folder with the logs of a compliance run.")],
    # aliases.py replaces --scenario by --scenarios.
    scenario: Annotated[str, option(WHAT_TO_RUN, "Scenario of the run.", "--scenario", "--scenarios")],
    test: Annotated[str, option(WHAT_TO_RUN, "TEST06, TEST07 or TEST09. Default: the only one of the benchmark.")] = "",
    output: Annotated[Path | None, option(OUTPUT, "Write the verdict to this file.")] = None,
) -> None:
    """Verify the run of a compliance test."""
    from harness_llm.cli.score_commands import verify as command

    options = replace(options, scenarios=(scenario,), tests=(test,) if test else None)
    command(log_dir, options, output)


@plain_command(commands)
def check(
    tree: Annotated[Path, typer.Argument(help="Folder with closed/ or open/.")],
    round_name: RoundName = "",
    as_json: AsJson = False,
) -> None:
    """Check a submission tree; MLPERF_INFERENCE_DIR adds the official checker."""
    from harness_llm.cli.package_command import check as command

    raise typer.Exit(command(tree, round_name, as_json=as_json))


@plain_command(commands)
def compare(
    runs_a: Annotated[
        str, typer.Argument(help="A run, as `runs` prints it or as a path, or a folder; several, separated by commas.")
    ],
    runs_b: Annotated[str, typer.Argument(help="The runs to compare them with.")],
    fail_if_slower: Annotated[
        str,
        option(
            SETTINGS,
            "Exit with 1 if B is slower than A by more than this percentage, such as 2%, and with 3 if the runs do not "
            "show whether it is.",
        ),
    ] = "",
    as_json: AsJson = False,
) -> None:
    """Compare throughput, latency, accuracy and settings; with three runs per side, with confidence."""
    from harness_llm.cli.analysis_commands import compare as command

    raise typer.Exit(command(runs_a, runs_b, fail_if_slower=fail_if_slower, as_json=as_json))


@plain_command(commands)
def diagnose(
    run: Annotated[Path, typer.Argument(help="A run, as `runs` prints it or as a path.")],
    as_json: AsJson = False,
) -> None:
    """Explain why a run is INVALID, DEGRADED, slow or unstable, and name the setting to change."""
    from harness_llm.cli.analysis_commands import diagnose as command

    command(run, as_json=as_json)


@plain_command(commands)
def report(
    paths: Annotated[
        list[Path] | None,
        typer.Argument(
            help="Runs, as `runs` prints them or as paths, folders of runs, a submission tree, or a tuning session "
            "below build/tuning. Default: the newest submission."
        ),
    ] = None,
    round_name: RoundName = "",
    output: Annotated[Path | None, option(OUTPUT, "Write this file. Default: below build/reports.")] = None,
) -> None:
    """Write an HTML report of runs, a submission tree or a tuning session: one file, for any browser."""
    from harness_llm.cli.analysis_commands import report as command

    command(paths or (), output, round_name)


@plain_command(commands)
def bundle(
    run: Annotated[Path, typer.Argument(help="A run, as `runs` prints it or as a path.")],
    output: Annotated[Path | None, option(OUTPUT, "Write this file. Default: below build/bundles.")] = None,
) -> None:
    """Pack redacted logs, configuration and the doctor's checks of a run for a bug report."""
    from harness_llm.cli.analysis_commands import bundle as command

    command(run, output)
