"""A request: the options of one benchmark with the files that they name. Nothing is started here."""

import datetime as dt
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from harness_llm.config.benchmark import Benchmark, load_benchmark
from harness_llm.config.commands import name_of, typed
from harness_llm.config.engine_config import EngineConfig
from harness_llm.config.engines import ENGINES, REPLAY
from harness_llm.config.environment import from_environment
from harness_llm.config.inferred import refuse_inferred
from harness_llm.config.load import Load
from harness_llm.config.options import COMPLIANCE, MEASURED, SCENARIOS, Options, split_names
from harness_llm.config.profile import Profile, load_profile
from harness_llm.config.rules import BenchmarkRules, Round, load_round, round_names
from harness_llm.config.server_location import distant_servers
from harness_llm.config.stand_in import DEMO, stand_in
from harness_llm.config.submission_names import Submission, folder_name
from harness_llm.config.user_conf import UserConf
from harness_llm.errors import ConfigError
from harness_llm.hardware.gpus import NO_ACCELERATOR, detect_gpu
from harness_llm.paths import Workspace, log_folder

DEFAULT_MODEL, DEFAULT_MODEL_WITHOUT_ACCELERATOR = "llama2-70b", DEMO


@dataclass(frozen=True)
class ScenarioPlan:
    """The settings of one scenario.

    Attributes:
        confs: the user.conf of each test; `load` is computed from that of performance.
        stream: whether first tokens are reported: not in Offline, nor where LoadGen infers token latencies.
        violations: where the runs do not comply with the rules.
    """

    scenario: str
    stream: bool
    config: EngineConfig
    confs: Mapping[str, UserConf]
    load: Load
    violations: list[str]
    loadgen_model: str

    @property
    def target_key(self) -> str:
        """The key of user.conf that sets the load."""
        key = "target_latency" if self.load.scenario == "SingleStream" else "target_qps"
        return f"{self.loadgen_model}.{self.load.scenario}.{key}"


@dataclass(frozen=True)
class Request:
    """One benchmark with options, rules and profile; `scenarios` is empty until `plan_scenarios` fills it.

    Attributes:
        options: with all defaults filled in.
        variants: rules of the benchmark's variants in the round, strictest first; only their gates differ.
        runs: folder of the runs; default: build/logs.
    """

    options: Options
    benchmark: Benchmark
    variants: Mapping[str, BenchmarkRules]
    round: Round
    profile: Profile
    workspace: Workspace
    scenarios: tuple[ScenarioPlan, ...] = ()
    started: dt.datetime = field(default_factory=lambda: dt.datetime.now(dt.UTC))
    runs: Path | None = None

    @property
    def rules(self) -> BenchmarkRules:
        """The rules of the strictest variant."""
        return next(iter(self.variants.values()))

    @property
    def tests(self) -> tuple[str, ...]:
        """Performance, accuracy and the compliance tests of the benchmark."""
        return (*MEASURED, *self.rules.compliance)

    @property
    def requested_tests(self) -> tuple[str, ...]:
        """The tests that --tests names, or all."""
        names = self.tests if self.options.tests is None else self.options.tests
        return tuple(t for t in self.tests if t in names or (COMPLIANCE in names and t not in MEASURED))

    @property
    def log_folder(self) -> Path:
        """The folder of this request's runs, `<scenario>/<test>/`."""
        return log_folder(self.runs or self.workspace.logs, self.started, self.options.system_name, self.benchmark.name)

    @property
    def submission(self) -> Submission:
        """The names and rules of the tree."""
        options = self.options
        return Submission(
            benchmark=self.benchmark,
            rules=self.round,
            division=options.division,
            category=options.category,
            submitter=options.company,
            system=options.system_name,
            profile=self.profile.label,
        )

    @property
    def measures_this_host(self) -> bool:
        """Whether this host is the system: closed describes servers on other hosts by the system file alone."""
        urls = {url for plan in self.scenarios for url in plan.config.server_config.url}
        return self.options.division != "closed" or not distant_servers(urls)

    @property
    def enforce_accuracy(self) -> bool:
        """Whether a run below its accuracy gate is INVALID: open only reports, unless the gate is a local reference."""
        binding = self.options.division == "closed" or self.benchmark.accuracy.reference is not None
        return self.profile.enforce_accuracy and binding

    def samples(self, test: str) -> int:
        """Samples of the data set in `test`."""
        return self.profile.sample_count(self.benchmark.dataset.of(test).samples, self.options.total_sample_count)

    def audit_samples(self, test: str) -> int:
        """Queries of a compliance test; 0 for other tests. A test with unique samples has no more than the set."""
        if test not in self.round.compliance:
            return 0
        audit = self.round.compliance[test].audit
        queries = audit["min_query_count"]
        return min(queries, self.samples(test)) if audit.get("performance_issue_unique") else queries


def load_requests(options: Options, workspace: Workspace) -> list[Request]:
    """Load a request for each benchmark of `options`; reads environment variables with --environment.

    Raises:
        ConfigError: an option or variable is invalid.
    """
    if options.environment:
        options = from_environment(options, os.environ)
    models = [name for name in split_names(options.model) if name] or [""]
    return [load_request(replace(options, model=model), workspace) for model in models]


def load_request(options: Options, workspace: Workspace) -> Request:
    """Load benchmark, profile and round, and fill in the default of each option.

    Raises:
        ConfigError: unknown benchmark, profile or round, or a benchmark without a stand-in.
    """
    named = load_profile(options.profile, workspace) if options.profile else None
    rehearsed = bool(named and named.rehearsed)
    generated = options.stand_in or rehearsed
    gpu = (
        options.gpu
        or (None if options.stand_in and not rehearsed else detect_gpu(workspace=workspace))
        or NO_ACCELERATOR
    )
    profile = named or load_profile("smoke" if gpu == NO_ACCELERATOR or generated else "valid", workspace)
    benchmark = load_benchmark(options.model or default_model(gpu), workspace)
    if options.high_accuracy:
        benchmark = benchmark.model_copy(update={"variants": benchmark.variants[:1]})
    if generated:
        benchmark = stand_in(benchmark, load_benchmark(DEMO, workspace), rehearsed=rehearsed)
    round_ = load_round(options.round or newest_round(benchmark.variants))
    variants = round_.variants(benchmark.variants)
    rules = next(iter(variants.values()))
    category = options.category or next(iter(rules.scenarios))
    filled = replace(
        options,
        model=benchmark.name,
        gpu=gpu,
        round=round_.round,
        division=options.division or benchmark.divisions[0],
        category=category,
        scenarios=_scenarios(options, rules, category),
        scenario_switches=(),
        profile=profile.name,
        engine=options.engine or (REPLAY if rehearsed else benchmark.engine),
        stand_in=generated,
    )
    return Request(filled, benchmark, variants, round_, profile, workspace)


def check_request(request: Request) -> Request:
    """Check the options that are independent of the machine, and return `request`.

    Raises:
        ConfigError: an option contradicts the benchmark, the round or another option.
    """
    options, rules = request.options, request.rules
    if options.division == "network":
        # Needs a query dispatch library between LoadGen and the system (inference_rules.adoc:493).
        raise ConfigError(
            "the network division is not supported",
            where=typed(division="network"),
            expected="closed or open",
            hint=f"{typed(division='open')} allows servers reached over a network (inference_rules.adoc:497)",
        )
    if options.company and options.system_name:
        request.submission.check()
    for name, value, known in (
        ("division", options.division, request.benchmark.divisions),
        ("category", options.category, rules.scenarios),
        ("engine", options.engine, ENGINES),
    ):
        if value not in known:
            raise ConfigError(f"{options.model} has no {name} {value}", expected=", ".join(known))
    _check_tests(request)
    _check_scenarios(request)
    return request


def default_model(gpu: str = "") -> str:
    """The benchmark of a command without --model."""
    without = (gpu or detect_gpu() or NO_ACCELERATOR) == NO_ACCELERATOR
    return DEFAULT_MODEL_WITHOUT_ACCELERATOR if without else DEFAULT_MODEL


def newest_round(variants: Sequence[str] = ()) -> str:
    """The newest round, or the newest that has one of `variants`."""
    names = [n for n in round_names() if not variants or load_round(n).benchmarks.keys() & set(variants)]
    if not names:
        raise ConfigError(f"no round has {variants[0]}", expected=", ".join(round_names()))
    return names[-1]


def require_names(options: Options, *, company: bool = True) -> None:
    """Require the name of the system, and of the submitter unless `company` is False; both name folders.

    Raises:
        ConfigError: a name is missing, or is not a folder name.
    """
    for fault in name_faults(options, company=company):
        raise fault


def name_faults(options: Options, *, company: bool = True) -> Iterator[ConfigError]:
    """Every error that `require_names` raises."""
    if company and not options.company:
        yield ConfigError(f"missing {name_of('company')}", hint=typed(company="Acme"))
    if not options.system_name:
        yield ConfigError(f"missing {name_of('system_name')}", hint=typed(system_name="my-box"))
    for option, name in (("submitter", options.company), ("system name", options.system_name)):
        if name and name != (fit := folder_name(name)):
            yield ConfigError(
                f"the {option} is not a folder name",
                expected="letters, digits, _ . and -, with a letter or digit at either end",
                found=repr(name),
                hint=f"write {fit}" if fit else "",
            )


def _scenarios(options: Options, rules: BenchmarkRules, category: str) -> tuple[str, ...]:
    """The scenarios of --scenarios in LoadGen's spelling, or those that a closed result of the category needs."""
    if options.scenarios:
        return tuple("=".join(map(_scenario, name.split("="))) for name in options.scenarios)
    usual = rules.scenarios[category].usual if category in rules.scenarios else ()
    switches = dict(options.scenario_switches)
    return tuple(name for name in dict.fromkeys((*usual, *switches)) if switches.get(name, True))


def _scenario(name: str) -> str:
    """The scenario in LoadGen's spelling; an unknown name is returned unchanged, for the error message."""
    return {known.lower(): known for known in SCENARIOS}.get(name.strip().lower(), name)


def _check_tests(request: Request) -> None:
    options = request.options
    known = (*request.tests, COMPLIANCE)
    if unknown := [test for test in options.tests or () if test not in known]:
        raise ConfigError(
            f"{options.model} has no test {unknown[0]} in round {options.round}",
            where="--tests",
            expected=", ".join(known),
        )
    if options.tests and not request.requested_tests:
        raise ConfigError(f"{options.model} has no compliance test in round {options.round}")


def _check_scenarios(request: Request) -> None:
    options, rules = request.options, request.rules
    measured = options.measured
    if not measured:
        raise ConfigError("no scenario is left to run", expected=", ".join(SCENARIOS))
    if unknown := [scenario for scenario in measured if scenario not in SCENARIOS]:
        raise ConfigError(f"unknown scenario {unknown[0]}", where=name_of("scenarios"), expected=", ".join(SCENARIOS))
    if len(set(measured)) != len(measured):
        raise ConfigError("a scenario is named twice", found=", ".join(measured))
    refuse_inferred(options, request.round, rules)
    allowed = (*rules.scenarios[options.category].required, *rules.scenarios[options.category].optional)
    for scenario in measured:
        # LoadGen has a model for Interactive only where there are limits (mlperf.conf:116-164).
        unknown_limits = scenario == "Interactive" and scenario not in rules.latency_ms
        if scenario not in allowed and (unknown_limits or options.division == "closed"):
            raise ConfigError(
                f"round {options.round} has no scenario {scenario} for {options.model}, {options.category}",
                expected=", ".join(allowed),
                hint=_separate_benchmark(request, scenario),
            )


def _separate_benchmark(request: Request, scenario: str) -> str:
    """In v5.0 Interactive is a benchmark of its own."""
    name = f"{request.benchmark.name}-{scenario.lower()}"
    return typed(model=name) if (request.workspace.benchmarks / name).is_dir() else ""
