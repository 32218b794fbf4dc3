"""The scenarios of a request, planned from LoadGen targets and engine settings."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from harness_llm.config.architecture import load_architecture
from harness_llm.config.benchmark import Benchmark
from harness_llm.config.commands import typed
from harness_llm.config.device_count import spread, targets_file
from harness_llm.config.engine_config import EngineConfig, load_config
from harness_llm.config.load import Load
from harness_llm.config.options import SCENARIOS, Options
from harness_llm.config.request import Request, ScenarioPlan, check_request, load_request
from harness_llm.config.rules import BenchmarkRules, load_round, round_names
from harness_llm.config.server_location import location_violations
from harness_llm.config.settings_files import require_settings
from harness_llm.config.speculation import draft_folder, with_speculation
from harness_llm.config.system_file import system_file
from harness_llm.config.user_conf import UserConf, parse
from harness_llm.config.violations import (
    refuse_engine,
    refuse_unproven_servers,
    refuse_violations,
    rule_violations,
    violations,
)
from harness_llm.errors import ConfigError
from harness_llm.fileio import read_text
from harness_llm.hardware.gpus import NO_ACCELERATOR
from harness_llm.paths import Workspace

STAND_IN = "stand-in"


def resolve(options: Options, workspace: Workspace) -> Request:
    """Load, check and plan the request for `options`, which name one benchmark.

    Raises:
        ConfigError: an option or a file is wrong, or they contradict each other.
    """
    return plan_scenarios(check_request(load_request(options, workspace)))


def plan_scenarios(request: Request) -> Request:
    """Return `request` with a plan for each scenario.

    Raises:
        ConfigError: targets or engine settings are missing or wrong, or closed does not allow them.
    """
    check_accelerator(request)
    targets = load_targets(request)
    return with_plans(request, [plan_scenario(scenario, request, targets) for scenario in request.options.measured])


def check_accelerator(request: Request) -> None:
    """Require engine settings of the benchmark for the accelerator.

    Raises:
        ConfigError: there are none.
    """
    rehearsed = request.profile.rehearsed
    require_settings(request.workspace.benchmarks, request.benchmark, request.options.gpu, rehearsed=rehearsed)


def with_plans(request: Request, plans: Sequence[ScenarioPlan]) -> Request:
    """Return `request` with `plans`."""
    return replace(request, scenarios=tuple(plans), benchmark=_with_draft(request, plans))


def _with_draft(request: Request, plans: Sequence[ScenarioPlan]) -> Benchmark:
    """The benchmark with the draft head that a scenario needs."""
    heads = [request.rules.speculation[plan.scenario].head for plan in plans if plan.config.draft_tokens]
    checkpoint = request.benchmark.checkpoint.model_copy(update={"draft": draft_folder(next(filter(None, heads), ""))})
    return request.benchmark.model_copy(update={"checkpoint": checkpoint})


def targets_path(request: Request) -> Path:
    """The user.conf of the request: --user-conf, or code/user_<gpu>.conf for the number of devices.

    Raises:
        ConfigError: there is no file for that number.
    """
    options = request.options
    gpu = STAND_IN if options.stand_in and options.gpu == NO_ACCELERATOR else options.gpu
    return options.user_conf or targets_file(gpu, options.gpu_count, request.workspace)


def load_targets(request: Request) -> tuple[Path, UserConf]:
    """Read the user.conf of the request.

    Raises:
        ConfigError: the file is missing or has an error.
    """
    file = targets_path(request)
    if not file.is_file():
        raise ConfigError(
            "missing LoadGen targets for this GPU",
            where=str(file),
            expected=", ".join(sorted(f.name for f in file.parent.glob("user_*.conf"))),
            hint=f"write the file, or use that of another GPU: {typed(gpu='NAME')}",
        )
    return file, parse(read_text(file), str(file), loadgen_models())


def loadgen_models() -> frozenset[str]:
    """LoadGen's names of the benchmarks of all rounds."""
    rules = [rule for name in round_names() for rule in load_round(name).benchmarks.values()]
    return frozenset(rule.loadgen_model(scenario) for rule in rules for scenario in SCENARIOS)


def plan_scenario(scenario: str, request: Request, targets: tuple[Path, UserConf]) -> ScenarioPlan:
    """Plan one scenario; raises as `plan_scenarios`."""
    file, conf = targets
    loadgen = request.round.scenarios[scenario]
    model = request.rules.loadgen_model(scenario)
    request.profile.check_duration(conf, model, loadgen, request.round, file)
    confs = {test: _test_conf(test, request, conf, model, loadgen) for test in request.tests}
    if request.options.division == "closed" and (barred := confs["performance"].open_only()):
        raise ConfigError("user.conf sets keys that only open allows", where=str(file), found=", ".join(barred))
    config = _engine_config(scenario, request)
    values = {name.key: value for name, value in confs["performance"].values.items()}
    load = _load(loadgen, request, values, f"{file}: {model}.{loadgen}")
    stream = loadgen != "Offline" and request.rules.token_latencies
    refuse_unproven_servers(request.options.engine, config, request.options.division)
    refuse_engine(request.options.engine, config, stream=stream)
    found = [
        *_location_violations(config, request),
        *violations(config, request.benchmark),
        *_sample_violations(request),
        *_conf_violations(conf, model, loadgen, request.rules),
    ]
    if request.options.division == "closed":
        found += rule_violations(request.benchmark, request.rules)
    refuse_violations(found, request.options.division)
    return ScenarioPlan(scenario, stream, config, confs, load, found, model)


def _engine_config(scenario: str, request: Request) -> EngineConfig:
    """The engine settings, with speculative decoding and the number of replicas."""
    options = request.options
    config = with_speculation(
        load_config(request.benchmark, scenario, options.gpu, options.settings, request.workspace),
        scenario,
        engine=options.engine,
        allowed=request.rules.speculation if request.benchmark.preparer == "published" else {},
        models=request.workspace.models,
    )
    return spread(config, options.gpu_count) if options.gpu_count else config


def _location_violations(config: EngineConfig, request: Request) -> list[str]:
    """Servers outside the described system.

    Raises:
        ConfigError: there is one, and the division is closed.
    """
    urls, options = config.server_config.url, request.options
    if not urls:
        return []
    file = system_file(request.workspace, options.system_name)
    architecture = load_architecture(file)
    found = location_violations(urls, architecture.hosts if architecture else [])
    if found and options.division == "closed":
        raise ConfigError(
            "closed does not allow a server outside the described system",
            where="server_config.url",
            expected="this host, or a host of a node in architecture.nodes of the system file "
            "(policy of this project; inference_rules.adoc:493-496, Network Division)",
            found="; ".join(found),
            hint=f"{typed(division='open')}, or add the nodes to {file}: docs/closed-datacenter.md",
        )
    return found


def _test_conf(test: str, request: Request, conf: UserConf, model: str, scenario: str) -> UserConf:
    """The user.conf of `test`; LoadGen has the official sizes of the performance and accuracy sets built in."""
    official = request.rules.samples
    performance, accuracy = request.samples("performance"), request.samples("accuracy")
    overrides: dict[str, int | float] = {}
    if test in request.benchmark.dataset.sets and test != "accuracy":
        performance = request.samples(test)
    if request.rules.accuracy_samples not in (None, accuracy):
        overrides["accuracy_sample_count_override"] = accuracy
    return request.profile.user_conf(conf, model, scenario, performance, official).for_run(model, scenario, overrides)


def _sample_violations(request: Request) -> list[str]:
    count = request.options.total_sample_count
    return [
        f"{count} samples, the benchmark requires {samples.samples}"
        for samples in request.benchmark.dataset.sets.values()
        if count and count < samples.samples
    ]


def _conf_violations(conf: UserConf, model: str, scenario: str, rules: BenchmarkRules) -> list[str]:
    """Keys of the submitter's user.conf that change the sample count or equal issue."""
    fixed = {
        "performance_sample_count_override": rules.samples,
        "accuracy_sample_count_override": rules.accuracy_samples or rules.samples,
        "sample_concatenate_permutation": 1,
    }
    found = {key: conf.lookup(model, scenario, key) for key in fixed}
    return [
        f"user.conf: {key} is {value}, not {fixed[key]}"
        for key, value in found.items()
        if value not in (None, fixed[key])
    ]


def _load(scenario: str, request: Request, values: Mapping[str, float], where: str) -> Load:
    key = "target_latency" if scenario == "SingleStream" else "target_qps"
    if key not in values:
        raise ConfigError(
            "user.conf has no target for this scenario",
            where=f"{where}.{key}",
            hint=f"write: {where.rpartition(' ')[2]}.{key} = NUMBER",
        )
    return Load(
        scenario=scenario,
        samples=request.samples("performance"),
        accuracy_samples=request.samples("accuracy"),
        min_duration_s=values.get("min_duration", request.round.min_duration_ms) / 1000,
        target_qps=values.get("target_qps", 0),
        target_latency_s=values.get("target_latency", 0) / 1000,
        min_query_count=int(values.get("min_query_count", 0)),
    )
