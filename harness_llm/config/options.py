"""The options of all commands: what the command line, the environment and aliases of other harnesses set.

This module imports no other module of the package, so that `harness-llm --help` is fast.
"""

import shlex
from collections.abc import Iterator, Mapping
from dataclasses import Field, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

SCENARIOS = ("Offline", "Server", "Interactive", "SingleStream")
MEASURED = ("performance", "accuracy")  # the tests of every benchmark
COMPLIANCE = "compliance"  # all compliance tests of a benchmark

# Headings of --help.
WHAT_TO_RUN, SYSTEM, SETTINGS, OUTPUT = "What to run", "System", "Settings", "Output"


@dataclass(frozen=True)
class Declaration:
    """How a field of `Options` is set.

    Attributes:
        help, group: text and heading in --help.
        variable: the environment variable that --environment reads, which is the setting of make too.
        always_read: an environment variable that is read without --environment.
        commas: whether one argument has several values with commas between them.
    """

    help: str
    group: str
    variable: str = ""
    always_read: str = ""
    commas: bool = False


def _option(help_: str, group: str, *, default: Any = "", **more: Any) -> Any:
    return field(default=default, metadata={Declaration: Declaration(help_, group, **more)})


@dataclass(frozen=True)
class Options:
    """What a user asks for. An empty field is not set; in `Request.options` the defaults are filled in.

    Attributes:
        tests: None for all.
        scenario_switches: scenarios that AMD's scripts add to the default ones, or leave out.
    """

    model: str = _option(
        "Benchmark, a folder of models/; submit accepts several, separated by commas. Default: llama2-70b; demo "
        "without an accelerator.",
        WHAT_TO_RUN,
        variable="MODEL",
    )
    scenarios: tuple[str, ...] = _option(
        "Scenarios, separated by commas; Offline=SingleStream infers Offline (edge). Default: those that the closed "
        "division requires; where it requires Server or Interactive, Server.",
        WHAT_TO_RUN,
        default=(),
        variable="SCENARIOS",
        commas=True,
    )
    tests: tuple[str, ...] | None = _option(
        "Tests, separated by commas: performance, accuracy, compliance, or one compliance test, such as TEST06.",
        WHAT_TO_RUN,
        default=None,
        commas=True,
    )
    profile: str = _option(
        "Length of the runs: test, smoke, rehearsal, fast or valid. Default: valid; smoke without an accelerator and "
        "with --stand-in.",
        WHAT_TO_RUN,
        variable="PROFILE",
    )
    round: str = _option("MLPerf round. Default: the newest that has the benchmark.", WHAT_TO_RUN, variable="ROUND")
    division: str = _option("closed or open. Default: the benchmark's first.", WHAT_TO_RUN, variable="DIVISION")
    category: str = _option("datacenter or edge. Default: the benchmark's first.", WHAT_TO_RUN, variable="CATEGORY")
    stand_in: bool = _option(
        "Use the demo's model and generated data, to try a benchmark.", WHAT_TO_RUN, default=False, variable="STAND_IN"
    )
    high_accuracy: bool = _option("Submit only the most accurate variant (-99.9).", WHAT_TO_RUN, default=False)
    total_sample_count: int | None = _option(
        "Use fewer samples than the data set has. Not for the closed division.", WHAT_TO_RUN, default=None
    )
    again: bool = _option(
        "Measure runs again that are INVALID with the present settings.", WHAT_TO_RUN, default=False, variable="AGAIN"
    )
    company: str = _option("Submitter.", SYSTEM, variable="COMPANY")
    system_name: str = _option("Name of the system, such as 8xMI300X_2xEPYC_9554.", SYSTEM, variable="SYSTEM_NAME")
    gpu: str = _option(
        "Accelerator, or cpu; selects code/user_<gpu>.conf and models/*/*<gpu>.yaml. Default: the detected one.",
        SYSTEM,
        variable="GPU_NAME",
    )
    gpu_count: int | None = _option(
        "Number of accelerators. Default: the number that models/*/*.yaml use.",
        SYSTEM,
        default=None,
        variable="GPU_COUNT",
    )
    ray: str = _option("Ray cluster that runs the replicas, host:port.", SYSTEM, always_read="RAY_ADDRESS")
    engine: str = _option(
        "vllm, transformers, openai, llmboost or replay. Default: the benchmark's.", SETTINGS, variable="ENGINE"
    )
    set: tuple[str, ...] = _option("section.key=value, instead of models/*/*.yaml. Repeatable.", SETTINGS, default=())
    user_conf: Path | None = _option(  # noqa: RUF009 - a dataclass field
        "LoadGen targets. Default: code/user_<gpu>.conf.", SETTINGS, default=None
    )
    on_replica_failure: str = _option(
        "requeue: send the queries of a failed replica to the others; fail: end the run.", SETTINGS
    )
    stop_on_failure: bool = _option(
        "End at the first failed run, instead of repeating it and making the other runs.", SETTINGS, default=False
    )
    environment: bool = _option(
        "Read COMPANY, SYSTEM_NAME, OFFLINE and other environment variables of AMD's scripts.", SETTINGS, default=False
    )
    package: bool = _option("Make the submission tree and check it.", OUTPUT, default=True)
    metrics_port: int | None = _option(
        "Serve metrics for Prometheus on this port: http://127.0.0.1:PORT/metrics.", OUTPUT, default=None
    )
    profile_window: str = _option(
        "Profile this long a window of each run, such as 30s, with torch's profiler; the runs are not results.", OUTPUT
    )
    scenario_switches: tuple[tuple[str, bool], ...] = ()

    @property
    def measured(self) -> tuple[str, ...]:
        """The scenarios that are run."""
        return tuple(name for name in self.scenarios if "=" not in name)

    @property
    def inferred(self) -> tuple[tuple[str, str], ...]:
        """The scenarios whose results are those of another one, as (scenario, source)."""
        pairs = (name.partition("=") for name in self.scenarios if "=" in name)
        return tuple((target, source) for target, _, source in pairs)

    @property
    def settings(self) -> tuple[str, ...]:
        """Settings `section.key=value` that replace those of configuration files."""
        failure = self.on_replica_failure
        return (*self.set, *([f"harness_config.on_replica_failure={failure}"] if failure else []))

    def command(self, *scenarios: str, verb: str = "submit") -> str:
        """The command line of harness-llm that repeats all tests of `scenarios`, or of all, without a submitter."""
        return shlex.join(["harness-llm", verb, *arguments(self.repeatable(*scenarios).given)])

    def repeatable(self, *scenarios: str) -> "Options":
        """The options that repeat all tests of `scenarios`, or of all, without a submitter."""
        # A node of a Ray cluster finds the address itself.
        options = replace(self, company="", tests=None, package=True, stop_on_failure=False, metrics_port=None)
        options = replace(options, profile_window="", again=False, ray=self.ray and "auto")
        return replace(options, scenarios=scenarios) if scenarios else options

    @property
    def given(self) -> dict[str, Any]:
        """The options of the command line that differ from their defaults, by field."""
        values = {name: getattr(self, name) for name in declared_options()}
        return {name: value for name, value in values.items() if value != declared_options()[name][0].default}


def declared_options() -> dict[str, tuple[Field[Any], Declaration]]:
    """The fields of `Options` that the command line sets, by name."""
    return {f.name: (f, f.metadata[Declaration]) for f in fields(Options) if Declaration in f.metadata}


def option_name(name: str) -> str:
    """The option that sets the field `name`."""
    return f"--{name.replace('_', '-')}"


def split_names(text: str) -> tuple[str, ...]:
    """The comma-separated names in `text`."""
    return tuple(name.strip() for name in text.split(",")) if text else ()


def arguments(values: Mapping[str, Any]) -> Iterator[str]:
    """The arguments of a command line that set `values`; names are those of options, with underscores."""
    separated = {name for name, (_, declared) in declared_options().items() if declared.commas}
    for name, value in values.items():
        if isinstance(value, bool):
            yield option_name(name) if value else option_name(f"no_{name}")
        elif isinstance(value, tuple) and name not in separated:
            for one in value:
                yield from (option_name(name), one)
        else:
            yield from (option_name(name), text_of(value))


def text_of(value: object) -> str:
    """The text of an option's value; of several, with commas between them."""
    return ",".join(value) if isinstance(value, tuple) else str(value)
