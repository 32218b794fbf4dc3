"""The command line. Every command is imported where it is used, so that --help answers at once."""

import os
import signal
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from harness_llm.config.aliases import translate
from harness_llm.containers import lifeline
from harness_llm.errors import INTERRUPTED, EnvironmentMissing, HarnessError, RunFailed
from harness_llm.pipeline.doctor.purpose import Part

if TYPE_CHECKING:
    from harness_llm.config.options import Choices
    from harness_llm.pipeline.panel import Panel

VERBOSE = "HARNESS_LLM_VERBOSE"

app = typer.Typer(
    help="From a machine with accelerators to a finished, checked MLPerf Inference submission for LLMs.",
    epilog="Exit codes: 0 good, 1 a check or gate says no, 2 wrong use, 3 something is missing here, 4 a run failed, "
    "130 interrupted. -v before the command shows tracebacks.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)

Model = Annotated[
    str, typer.Option(help="benchmark, a folder of models/; default: llama2-70b, demo without accelerator")
]
Models = Annotated[
    str, typer.Option("--model", help="benchmarks, folders of models/, comma-separated; default as elsewhere")
]
Gpu = Annotated[
    str, typer.Option(help="chooses code/user_<gpu>.conf and models/*/*_<gpu>.yaml; default: what is found")
]
RoundName = Annotated[str, typer.Option("--round", help="default: the newest that has the benchmark")]
Division = Annotated[str, typer.Option(help="closed or open; default: the benchmark's first")]
Category = Annotated[str, typer.Option(help="datacenter or edge; default: the benchmark's first")]
Scenarios = Annotated[
    str,
    typer.Option(help="comma-separated; Offline=SingleStream infers it (edge); default: what a closed result needs"),
]
ProfileName = Annotated[
    str, typer.Option("--profile", help="test, smoke, rehearsal, fast or valid; default: smoke without accelerator")
]
EngineName = Annotated[str, typer.Option("--engine", help="what answers the queries")]
Company = Annotated[str, typer.Option(help="the submitter")]
SystemName = Annotated[str, typer.Option(help="for example 8xMI300X_2xEPYC_9554")]
StandIn = Annotated[bool, typer.Option("--stand-in", help="try it with the demo's model and made-up data")]
GpuCount = Annotated[int | None, typer.Option(min=1, help="devices to use; default: a node as models/*.yaml say")]
HighAccuracy = Annotated[bool, typer.Option("--high-accuracy", help="count as the strictest variant alone (-99.9)")]
Environment = Annotated[
    bool, typer.Option("--environment", help="read COMPANY, SYSTEM_NAME, OFFLINE ... as AMD's scripts do: see README")
]
Sets = Annotated[list[str] | None, typer.Option("--set", help="section.key=value on top of models/*.yaml")]
SampleCount = Annotated[int | None, typer.Option("--total-sample-count", min=1, help="fewer samples; bars from closed")]
OnReplicaLoss = Annotated[
    str, typer.Option(help="requeue or fail: what a lost replica means to a run; as harness_config.on_replica_failure")
]
RayAddress = Annotated[
    str, typer.Option("--ray", envvar="RAY_ADDRESS", help="head of a Ray cluster, host:port: docs/cluster.md")
]
Tests = Annotated[str, typer.Option(help="comma-separated: performance, accuracy, compliance; default: all")]
Packed = Annotated[bool, typer.Option("--package/--no-package", help="make the tree and check it")]
UserConf = Annotated[Path | None, typer.Option(help="another file than code/user_<gpu>.conf")]


@app.callback()
def _options(
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="show tracebacks")] = False,
) -> None:
    if verbose:
        os.environ[VERBOSE] = "1"


def _choices(words: dict[str, Any]) -> "Choices":
    from harness_llm.config.options import choose

    return choose(words)


def _each(words: dict[str, Any]) -> list["Choices"]:
    """Of several benchmarks, one after the other; all are looked at before the first is run."""
    return [_choices(words | {"model": model}) for model in (words["model"] or "").split(",")]


def _completed(words: dict[str, Any]) -> dict[str, Any]:
    """With what --environment adds."""
    if not words["environment"]:
        return words
    from harness_llm.pipeline.make_targets import from_environment, unused

    for line in unused(os.environ):
        sys.stderr.write(f"{line}\n")
    return from_environment(words, os.environ)


def _default_model() -> str:
    from harness_llm.config.options import default_model

    return default_model()


def _panel() -> "Panel":
    from rich.console import Console

    from harness_llm.pipeline.panel import Panel

    return Panel(Console(stderr=True))


@app.command()
def submit(
    model: Models = "",
    gpu: Gpu = "",
    round_name: RoundName = "",
    division: Division = "",
    category: Category = "",
    scenarios: Scenarios = "",
    profile: ProfileName = "",
    stand_in: StandIn = False,
    engine: EngineName = "",
    company: Company = "",
    system_name: SystemName = "",
    set_: Sets = None,
    on_replica_failure: OnReplicaLoss = "",
    total_sample_count: SampleCount = None,
    user_conf: UserConf = None,
    gpu_count: GpuCount = None,
    high_accuracy: HighAccuracy = False,
    ray: RayAddress = "",
    environment: Environment = False,
    tests: Tests = "",
    packed: Packed = True,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="print the plan and stop")] = False,
) -> None:
    """Download, quantize and run what is missing, package, check; the same command again continues."""
    from harness_llm.commands import submit as command

    words = _completed(locals())
    command(_each(words), _panel(), dry_run=dry_run, packed=words["packed"])


@app.command()
def doctor(
    model: Models = "",
    gpu: Gpu = "",
    round_name: RoundName = "",
    division: Division = "",
    category: Category = "",
    scenarios: Scenarios = "",
    profile: ProfileName = "",
    stand_in: StandIn = False,
    engine: EngineName = "",
    company: Company = "",
    system_name: SystemName = "",
    set_: Sets = None,
    on_replica_failure: OnReplicaLoss = "",
    total_sample_count: SampleCount = None,
    user_conf: UserConf = None,
    gpu_count: GpuCount = None,
    high_accuracy: HighAccuracy = False,
    ray: RayAddress = "",
    environment: Environment = False,
    tests: Tests = "",
    packed: Packed = True,
    part: Annotated[
        Part, typer.Option(help="host: what the machine that starts containers shows; software: what an image shows")
    ] = Part.ALL,
    as_json: Annotated[bool, typer.Option("--json", help="results as one JSON document")] = False,
) -> None:
    """Make the checks that submit, with the same options, starts with; exit code 3 if one refuses."""
    from harness_llm.pipeline.doctor.doctor import doctor as command

    words = _completed(locals())
    raise typer.Exit(command(lambda: _each(words), packed=words["packed"], part=part, as_json=as_json))


@app.command()
def prepare(
    model: Models = "",
    gpu: Gpu = "",
    round_name: RoundName = "",
    division: Division = "",
    category: Category = "",
    scenarios: Scenarios = "",
    profile: ProfileName = "",
    stand_in: StandIn = False,
    engine: EngineName = "",
    company: Company = "",
    system_name: SystemName = "",
    set_: Sets = None,
    total_sample_count: SampleCount = None,
    user_conf: UserConf = None,
    gpu_count: GpuCount = None,
) -> None:
    """Download, train and quantize what submit, with the same options, would run; the same command again continues."""
    from harness_llm.commands import prepare as command

    command(_each(locals()), _panel())


@app.command()
def run(
    model: Models = "",
    gpu: Gpu = "",
    round_name: RoundName = "",
    division: Division = "",
    category: Category = "",
    scenarios: Scenarios = "",
    profile: ProfileName = "",
    stand_in: StandIn = False,
    engine: EngineName = "",
    company: Company = "",
    system_name: SystemName = "",
    set_: Sets = None,
    on_replica_failure: OnReplicaLoss = "",
    total_sample_count: SampleCount = None,
    user_conf: UserConf = None,
    gpu_count: GpuCount = None,
    high_accuracy: HighAccuracy = False,
    ray: RayAddress = "",
    environment: Environment = False,
    tests: Annotated[str, typer.Option(help="comma-separated: performance, accuracy, compliance")] = "performance",
    accuracy: Annotated[bool, typer.Option("--accuracy", help="the same as --tests accuracy")] = False,
) -> None:
    """Run runs, whether they were run before or not."""
    from harness_llm.commands import run as command

    command(_each(_completed(locals() | {"tests": "accuracy" if accuracy else tests})), _panel())


@app.command()
def package(
    model: Model = "",
    gpu: Gpu = "",
    round_name: RoundName = "",
    division: Division = "",
    category: Category = "",
    scenarios: Scenarios = "",
    profile: ProfileName = "",
    stand_in: StandIn = False,
    engine: EngineName = "",
    company: Company = "",
    system_name: SystemName = "",
    set_: Sets = None,
    gpu_count: GpuCount = None,
    calibration_only: Annotated[
        bool, typer.Option("--calibration-only", help="write the calibration document, before any run")
    ] = False,
) -> None:
    """Make the tree and its archive of runs that are there."""
    from harness_llm.commands import package as command

    command(_choices(locals()), _panel(), calibration_only=calibration_only)


@app.command()
def status(
    model: Model = "",
    gpu: Gpu = "",
    round_name: RoundName = "",
    division: Division = "",
    scenarios: Scenarios = "",
    profile: ProfileName = "",
    stand_in: StandIn = False,
    system_name: SystemName = "",
) -> None:
    """Show the matrix scenario x test, and why a run is not done."""
    from harness_llm.commands import status as command

    command(_choices(locals()))


@app.command()
def score(
    log_dir: Annotated[Path, typer.Argument(help="a folder with mlperf_log_accuracy.json")],
    model: Model = "",
    round_name: RoundName = "",
    profile: ProfileName = "",
    stand_in: StandIn = False,
    total_sample_count: SampleCount = None,
    output: Annotated[Path | None, typer.Option(help="write accuracy.txt here")] = None,
) -> None:
    """Score the answers of an accuracy run and hold them to the gates."""
    from harness_llm.commands import score as command

    command(log_dir, _choices(locals()), output)


@app.command()
def verify(
    log_dir: Annotated[Path, typer.Argument(help="a folder with the logs of a compliance run")],
    # familiar.py makes --scenarios of --scenario.
    scenario: Annotated[str, typer.Option("--scenario", "--scenarios", help="the scenario that was run")],
    test: Annotated[str, typer.Option(help="TEST06, TEST07 or TEST09; default: the benchmark's only one")] = "",
    model: Model = "",
    round_name: RoundName = "",
    profile: ProfileName = "",
    stand_in: StandIn = False,
    total_sample_count: SampleCount = None,
    output: Annotated[Path | None, typer.Option(help="write the verdict here")] = None,
) -> None:
    """Verify the run of a compliance test."""
    from harness_llm.commands import verify as command

    command(log_dir, _choices({"scenarios": scenario, "tests": test, **locals()}), output)


@app.command()
def download(
    model: Model = "",
    part: Annotated[
        list[str] | None, typer.Option(help="dataset, calibration, livecodebench or model; default: all")
    ] = None,
) -> None:
    """Fetch what a benchmark is made of, verified; the same command again continues."""
    from harness_llm.prepare.downloads.download import download as command

    command(model or _default_model(), part or (), _panel().stage)


@app.command()
def quantize(
    model: Model = "",
    recipe: Annotated[str, typer.Option(help="of models/quantization.yaml; default: that of the accelerator")] = "",
    gpu: Annotated[str, typer.Option(help="the accelerator that will serve it; default: what is found")] = "",
) -> None:
    """Make the checkpoint that is served of the one that was downloaded."""
    from harness_llm.prepare.quantize.quantize import quantize as command

    command(model or _default_model(), recipe, gpu, _panel().stage)


@app.command()
def check(
    tree: Annotated[Path, typer.Argument(help="the folder that holds closed/ or open/")],
    round_name: RoundName = "",
    as_json: Annotated[bool, typer.Option("--json", help="findings as one JSON document")] = False,
) -> None:
    """Check a tree against the rules; with MLPERF_INFERENCE_DIR by the official checker too."""
    from harness_llm.commands import check as command

    raise typer.Exit(command(tree, round_name, as_json=as_json))


@app.command()
def compare(
    run_a: Annotated[Path, typer.Argument(help="a run below build/logs, or a folder above some")],
    run_b: Annotated[Path, typer.Argument(help="the same, to be compared with it")],
    as_json: Annotated[bool, typer.Option("--json", help="as one JSON document")] = False,
) -> None:
    """Show two runs side by side: tokens/s, latency, accuracy, and what was not the same."""
    from harness_llm.commands import compare as command

    command(run_a, run_b, as_json=as_json)


def _interrupt(*_: object) -> NoReturn:
    raise KeyboardInterrupt


def main() -> None:
    """The console script: every end has its exit code."""
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
        sys.stderr.write(f"error: OS error: {error}\n\nhint: harness-llm -v shows where\n")
        sys.exit(EnvironmentMissing.exit_code)
    except Exception as error:  # a user sees no traceback without -v
        if os.environ.get(VERBOSE):
            raise
        sys.stderr.write(f"error: this is a bug: {error!r}\n\nhint: harness-llm -v shows where\n")
        sys.exit(RunFailed.exit_code)
    except SystemExit as end:
        if end.code == INTERRUPTED:  # what typer makes of KeyboardInterrupt
            sys.stderr.write("interrupted; the same command continues\n")
        raise
