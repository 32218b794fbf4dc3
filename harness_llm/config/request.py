"""What the user asked for, resolved against files into one plan per scenario. Nothing is started here."""

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from harness_llm.config.architecture import load_architecture
from harness_llm.config.benchmark import Benchmark
from harness_llm.config.device_count import spread, targets_file
from harness_llm.config.engine_config import (
    EngineConfig,
    load_config,
    refuse_engine,
    refuse_violations,
    rule_violations,
    violations,
)
from harness_llm.config.engines import ENGINES
from harness_llm.config.inferred import refuse_inferred
from harness_llm.config.load import Load
from harness_llm.config.options import SCENARIOS, Choices, find_benchmark
from harness_llm.config.profile import Profile, load_profile
from harness_llm.config.server_location import distant_servers, location_violations
from harness_llm.config.speculation import draft_folder, with_speculation
from harness_llm.config.submission_names import Submission
from harness_llm.config.system_file import system_file
from harness_llm.config.user_conf import UserConf, parse
from harness_llm.errors import ConfigError
from harness_llm.fileio import read_text
from harness_llm.hardware.gpus import NO_ACCELERATOR
from harness_llm.paths import Workspace, log_folder
from harness_llm.rules import BenchmarkRules, Round, load_round, round_names

STAND_IN = "stand-in"
MEASURED = ("performance", "accuracy")
COMPLIANCE = "compliance"  # stands for all of a benchmark's compliance tests


@dataclass(frozen=True)
class ScenarioPlan:
    """One scenario, ready to be run.

    Attributes:
        confs: what LoadGen is told, by test; `load` is what follows from it.
        stream: whether first tokens are reported: LoadGen asks for none in Offline, nor where it infers tokens.
        violations: where the run is not what the rules fix.
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
        """The user.conf key that chose the load."""
        key = "target_latency" if self.load.scenario == "SingleStream" else "target_qps"
        return f"{self.loadgen_model}.{self.load.scenario}.{key}"


@dataclass(frozen=True)
class Request:
    """A submission that makes sense: every file was read, every rule that can be checked beforehand was.

    Attributes:
        variants: rules of the benchmark's variants that the round has, strictest first; they differ in gates alone.
    """

    choices: Choices
    benchmark: Benchmark
    variants: Mapping[str, BenchmarkRules]
    round: Round
    profile: Profile
    workspace: Workspace
    scenarios: tuple[ScenarioPlan, ...] = ()
    started: dt.datetime = field(default_factory=lambda: dt.datetime.now(dt.UTC))

    @property
    def rules(self) -> BenchmarkRules:
        """The rules of the strictest variant."""
        return next(iter(self.variants.values()))

    @property
    def tests(self) -> tuple[str, ...]:
        """Performance, accuracy and the compliance tests of the benchmark."""
        return (*MEASURED, *self.rules.compliance)

    @property
    def asked(self) -> tuple[str, ...]:
        """The tests that were asked for."""
        words = self.choices.tests
        named = self.tests if words is None else words
        return tuple(t for t in self.tests if t in named or (COMPLIANCE in named and t not in MEASURED))

    @property
    def log_folder(self) -> Path:
        """Where this request's runs go, `<scenario>/<test>/`."""
        return log_folder(self.workspace.logs, self.started, self.choices.system, self.benchmark.name)

    @property
    def submission(self) -> Submission:
        """What the packager is told."""
        choices = self.choices
        return Submission(
            benchmark=self.benchmark,
            rules=self.round,
            division=choices.division,
            category=choices.category,
            submitter=choices.submitter,
            system=choices.system,
            profile=self.profile.label,
        )

    @property
    def measures_this_host(self) -> bool:
        """Whether this host is the system: closed describes servers elsewhere by the system file alone."""
        urls = {url for plan in self.scenarios for url in plan.config.server_config.url}
        return self.choices.division != "closed" or not distant_servers(urls)

    @property
    def enforce_accuracy(self) -> bool:
        """Whether a run under its gate is INVALID: open reports instead, but for gates of one's own reference."""
        binding = self.choices.division == "closed" or self.benchmark.accuracy.reference is not None
        return self.profile.enforce_accuracy and binding

    def samples(self, test: str) -> int:
        """Samples of the data set that `test` uses."""
        return self.profile.sample_count(self.benchmark.dataset.of(test).samples, self.choices.sample_count)

    def audit_samples(self, test: str) -> int:
        """Queries of a compliance test; 0 for what is none. Where no sample may come twice, there are no more."""
        if test not in self.round.compliance:
            return 0
        audit = self.round.compliance[test].audit
        asked = audit["min_query_count"]
        return min(asked, self.samples(test)) if audit.get("performance_issue_unique") else asked


def resolve(choices: Choices, workspace: Workspace) -> Request:
    """Read every file that the choices name and check them against each other."""
    request = understand(choices, workspace)
    conf_file = choices.user_conf or targets_file(targets_of(choices), choices.gpu_count, workspace)
    conf = _read_conf(conf_file, loadgen_models())
    plans = tuple(_plan(scenario, request, conf, conf_file) for scenario in choices.scenarios)
    return replace(request, scenarios=plans, benchmark=_with_draft(request, plans))


def _with_draft(request: Request, plans: Sequence[ScenarioPlan]) -> Benchmark:
    """The benchmark, with the draft head that a scenario needs."""
    heads = [request.rules.speculation[plan.scenario].head for plan in plans if plan.config.draft_tokens]
    checkpoint = request.benchmark.checkpoint.model_copy(update={"draft": draft_folder(next(filter(None, heads), ""))})
    return request.benchmark.model_copy(update={"checkpoint": checkpoint})


def targets_of(choices: Choices) -> str:
    """The `<gpu>` of the file user_<gpu>.conf."""
    return STAND_IN if choices.stand_in and choices.gpu == NO_ACCELERATOR else choices.gpu


def understand(choices: Choices, workspace: Workspace) -> Request:
    """A request without scenarios: enough for what looks at runs, whatever machine they were made on."""
    _refuse_network(choices.division)
    profile = load_profile(choices.profile, workspace)
    benchmark = find_benchmark(
        choices.model,
        workspace,
        as_stand_in=choices.stand_in,
        rehearsed=profile.rehearsed,
        high_accuracy=choices.high_accuracy,
    )
    round_ = load_round(choices.round)
    request = Request(
        choices=choices,
        benchmark=benchmark,
        variants=round_.variants(benchmark.variants),
        round=round_,
        profile=profile,
        workspace=workspace,
    )
    if choices.submitter and choices.system:
        request.submission.check()
    _check_words(request)
    return request


def _check_words(request: Request) -> None:
    choices, rules = request.choices, request.rules
    for word, value, known in (
        ("division", choices.division, request.benchmark.divisions),
        ("category", choices.category, rules.scenarios),
        ("engine", choices.engine, ENGINES),
    ):
        if value not in known:
            raise ConfigError(f"{choices.model} has no {word} {value}", expected=", ".join(known))
    for test in choices.tests or ():
        if test not in (*request.tests, COMPLIANCE):
            raise ConfigError(f"there is no test {test}", expected=", ".join((*request.tests, COMPLIANCE)))
    if choices.tests and not request.asked:
        raise ConfigError(f"{choices.model} has no compliance test in round {choices.round}")
    _check_scenarios(request)


def _refuse_network(division: str) -> None:
    """A network submission needs a query dispatch library between LoadGen and the system (inference_rules.adoc:493)."""
    if division == "network":
        raise ConfigError(
            "the network division is not supported",
            where="--division network",
            expected="closed or open",
            hint="--division open takes servers that LoadGen reaches over a network (inference_rules.adoc:497)",
        )


def _check_scenarios(request: Request) -> None:
    choices, rules = request.choices, request.rules
    if not choices.scenarios:
        raise ConfigError("no scenario is left to run", expected=", ".join(SCENARIOS))
    for scenario in choices.scenarios:
        if scenario not in SCENARIOS:
            raise ConfigError(f"there is no scenario {scenario}", expected=", ".join(SCENARIOS))
    if len(set(choices.scenarios)) != len(choices.scenarios):
        raise ConfigError("a scenario stands twice", found=", ".join(choices.scenarios))
    refuse_inferred(choices, request.round, rules)
    own = rules.scenarios[choices.category]
    allowed = (*own.required, *own.optional)
    for scenario in choices.scenarios:
        # LoadGen has a model for Interactive only where there are limits (mlperf.conf:116-164).
        unknown = scenario == "Interactive" and scenario not in rules.latency_ms
        if scenario not in allowed and (unknown or choices.division == "closed"):
            raise ConfigError(
                f"round {choices.round} has no scenario {scenario} for {choices.model}, {choices.category}",
                expected=", ".join(allowed),
                hint=_own_benchmark(request, scenario),
            )


def _own_benchmark(request: Request, scenario: str) -> str:
    """In v5.0 Interactive is a benchmark."""
    name = f"{request.benchmark.name}-{scenario.lower()}"
    return f"MODEL={name}" if (request.workspace.benchmarks / name).is_dir() else ""


def loadgen_models() -> frozenset[str]:
    """LoadGen's names of the benchmarks of all rounds."""
    rules = [rule for name in round_names() for rule in load_round(name).benchmarks.values()]
    return frozenset(rule.loadgen_model(scenario) for rule in rules for scenario in SCENARIOS)


def _read_conf(file: Path, models: frozenset[str]) -> UserConf:
    if not file.is_file():
        raise ConfigError(
            "there are no LoadGen targets for this GPU",
            where=str(file),
            expected=", ".join(sorted(f.name for f in file.parent.glob("user_*.conf"))),
            hint="name another with --gpu or --user-conf",
        )
    return parse(read_text(file), str(file), models)


def _plan(scenario: str, request: Request, conf: UserConf, conf_file: Path) -> ScenarioPlan:
    choices, profile = request.choices, request.profile
    loadgen = request.round.scenarios[scenario]
    model = request.rules.loadgen_model(scenario)
    profile.check_duration(conf, model, loadgen, request.round, conf_file)
    confs = {test: _conf(test, request, conf, model, loadgen) for test in request.tests}
    own = confs["performance"]
    if choices.division == "closed" and (barred := own.open_only()):
        raise ConfigError(
            "user.conf sets what only the open division may", where=str(conf_file), found=", ".join(barred)
        )
    values = {name.key: value for name, value in own.values.items()}
    config = with_speculation(
        load_config(request.benchmark, scenario, choices.gpu, choices.sets, request.workspace),
        scenario,
        engine=choices.engine,
        allowed=request.rules.speculation if request.benchmark.preparer == "published" else {},
        models=request.workspace.models,
    )
    if choices.gpu_count:
        config = spread(config, choices.gpu_count)
    load = _load(loadgen, request, values, f"{conf_file}: {model}.{loadgen}")
    stream = loadgen != "Offline" and request.rules.token_latencies
    refuse_engine(choices.engine, config, stream=stream)
    found = [
        *_location_violations(config, request),
        *violations(config, request.benchmark),
        *_sample_violations(request),
        *_conf_violations(conf, model, loadgen, request.rules),
    ]
    if choices.division == "closed":
        found += rule_violations(request.benchmark, request.rules)
    refuse_violations(found, choices.division)
    return ScenarioPlan(
        scenario=scenario,
        stream=stream,
        config=config,
        confs=confs,
        load=load,
        violations=found,
        loadgen_model=model,
    )


def _location_violations(config: EngineConfig, request: Request) -> list[str]:
    """Servers outside the described system; closed refuses them.

    Raises:
        ConfigError: there is one, and the division is closed.
    """
    urls, choices = config.server_config.url, request.choices
    if not urls:
        return []
    file = system_file(request.workspace, choices.system)
    architecture = load_architecture(file)
    found = location_violations(urls, architecture.hosts if architecture else [])
    if found and choices.division == "closed":
        raise ConfigError(
            "closed takes no server outside the described system",
            where="server_config.url",
            expected="this host, or a host of a node in architecture.nodes of the system file "
            "(policy of this project; inference_rules.adoc:493-496, Network Division)",
            found="; ".join(found),
            hint=f"--division open, or name the nodes in {file}: docs/closed-datacenter.md",
        )
    return found


def _conf(test: str, request: Request, conf: UserConf, model: str, scenario: str) -> UserConf:
    """What LoadGen is told in `test`: LoadGen knows the sizes of the performance and the accuracy set itself."""
    official = request.rules.samples
    performance, accuracy = request.samples("performance"), request.samples("accuracy")
    overrides: dict[str, int | float] = {}
    if test in request.benchmark.dataset.sets and test != "accuracy":
        performance = request.samples(test)
    if request.rules.accuracy_samples not in (None, accuracy):
        overrides["accuracy_sample_count_override"] = accuracy
    return request.profile.user_conf(conf, model, scenario, performance, official).for_run(model, scenario, overrides)


def _sample_violations(request: Request) -> list[str]:
    asked = request.choices.sample_count
    return [
        f"{asked} samples, the benchmark says {samples.samples}"
        for samples in request.benchmark.dataset.sets.values()
        if asked and asked < samples.samples
    ]


def _conf_violations(conf: UserConf, model: str, scenario: str, rules: BenchmarkRules) -> list[str]:
    """What a submitter's user.conf changes of the sample count and of equal issue."""
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
