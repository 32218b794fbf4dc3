"""What the user asked for, resolved against files into one plan per scenario. Nothing is started here."""

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from harness_llm.benchmarks import Benchmark, benchmark_names, load_benchmark
from harness_llm.config import EngineConfig, departures, load_config, refuse_departures
from harness_llm.engines import ENGINES
from harness_llm.errors import ConfigError
from harness_llm.loadgen.user_conf import UserConf, parse
from harness_llm.package.submission import SMOKE, Submission
from harness_llm.plan import Load
from harness_llm.profiles import Profile, load_profile
from harness_llm.rules import BenchmarkRules, Round, load_round, round_names
from harness_llm.runs import log_folder
from harness_llm.workspace import Workspace

SCENARIOS = ("Offline", "Server", "Interactive", "SingleStream")
DEFAULT_MODEL = "demo"
MEASURED = ("performance", "accuracy")


@dataclass(frozen=True)
class Choices:
    """The words of the command line.

    Attributes:
        sets: `section.key=value`, on top of the configuration files.
        sample_count: the user's own number of samples; None leaves it to the profile.
        command: what was typed, for the documents of the tree.
    """

    model: str
    gpu: str
    round: str
    division: str
    category: str
    scenarios: tuple[str, ...]
    profile: str
    engine: str
    submitter: str
    system: str
    command: str
    sets: tuple[str, ...] = ()
    sample_count: int | None = None
    user_conf: Path | None = None


def newest_round(variant: str = "") -> str:
    """The newest round, or the newest that has `variant`."""
    names = [n for n in round_names() if not variant or variant in load_round(n).benchmarks]
    if not names:
        raise ConfigError(f"no round has {variant}", expected=", ".join(round_names()))
    return names[-1]


def choose(words: Mapping[str, Any], command: str) -> Choices:
    """Fill what the command line left open; an empty word is one that was not given."""
    workspace = Workspace()
    gpu = words.get("gpu") or "cpu"
    benchmark = load_benchmark(words.get("model") or DEFAULT_MODEL, workspace)
    return Choices(
        model=benchmark.name,
        gpu=gpu,
        round=words.get("round_name") or newest_round(benchmark.rules_of),
        division=words.get("division") or benchmark.divisions[0],
        category=words["category"],
        scenarios=tuple(_spelt(name) for name in words["scenarios"].split(",")),
        profile=words.get("profile") or ("smoke" if gpu == "cpu" else "valid"),
        engine=words.get("engine") or "vllm",
        submitter=words.get("company") or "",
        system=words.get("system_name") or "",
        command=command,
        sets=tuple(words.get("set_") or ()),
        sample_count=words.get("total_sample_count"),
        user_conf=words.get("user_conf"),
    )


def _spelt(scenario: str) -> str:
    """`offline` is Offline; what is no scenario stays as it is, to be named in the error."""
    known = {name.lower(): name for name in SCENARIOS}
    return known.get(scenario.strip().lower(), scenario)


def require_names(choices: Choices, *, company: bool = True) -> None:
    """Runs need a system's name, trees a submitter too."""
    if company and not choices.submitter:
        raise ConfigError("nobody is named as submitter", hint='make submission COMPANY="Acme" SYSTEM_NAME="my-box"')
    if not choices.system:
        raise ConfigError("the system has no name", hint="--system-name my-box, or SYSTEM_NAME=my-box")


@dataclass(frozen=True)
class ScenarioPlan:
    """One scenario, ready to be run.

    Attributes:
        conf: what LoadGen is told; `load` is what follows from it.
        departures: where the run is not what the rules fix.
    """

    scenario: str
    config: EngineConfig
    conf: UserConf
    load: Load
    departures: list[str]
    loadgen_model: str

    @property
    def stream(self) -> bool:
        """Whether first tokens are reported."""
        return self.load.scenario != "Offline"

    @property
    def target_key(self) -> str:
        """The user.conf key that chose the load."""
        key = "target_latency" if self.load.scenario == "SingleStream" else "target_qps"
        return f"{self.loadgen_model}.{self.load.scenario}.{key}"


@dataclass(frozen=True)
class Request:
    """A submission that makes sense: every file was read, every rule that can be checked beforehand was."""

    choices: Choices
    benchmark: Benchmark
    rules: BenchmarkRules
    round: Round
    profile: Profile
    samples: int
    workspace: Workspace
    scenarios: tuple[ScenarioPlan, ...] = ()
    started: dt.datetime = field(default_factory=lambda: dt.datetime.now(dt.UTC))

    @property
    def tests(self) -> tuple[str, ...]:
        """Performance, accuracy and the compliance tests of the benchmark."""
        return (*MEASURED, *self.rules.compliance)

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
            profile=self.profile.name if self.profile.submittable else SMOKE,
        )

    def audit_samples(self, test: str) -> int:
        """Samples that a compliance test asks for; 0 for what is none."""
        if test not in self.round.compliance:
            return 0
        return self.round.compliance[test].audit["min_query_count"]


def resolve(choices: Choices, workspace: Workspace) -> Request:
    """Read every file that the choices name and check them against each other."""
    benchmark = load_benchmark(choices.model, workspace)
    round_ = load_round(choices.round)
    rules = round_.benchmark(benchmark.rules_of)
    profile = load_profile(choices.profile, workspace)
    request = Request(
        choices=choices,
        benchmark=benchmark,
        rules=rules,
        round=round_,
        profile=profile,
        samples=profile.sample_count(benchmark, choices.sample_count),
        workspace=workspace,
    )
    if choices.submitter:
        request.submission.check()
    _check_words(choices, benchmark, rules)
    conf_file = choices.user_conf or workspace.user_confs / f"user_{choices.gpu}.conf"
    conf = _read_conf(conf_file, loadgen_models(workspace, round_))
    plans = tuple(_plan(scenario, request, conf, conf_file) for scenario in choices.scenarios)
    return replace(request, scenarios=plans)


def _check_words(choices: Choices, benchmark: Benchmark, rules: BenchmarkRules) -> None:
    for scenario in choices.scenarios:
        if scenario not in SCENARIOS:
            raise ConfigError(f"there is no scenario {scenario}", expected=", ".join(SCENARIOS))
    if len(set(choices.scenarios)) != len(choices.scenarios):
        raise ConfigError("a scenario stands twice", found=", ".join(choices.scenarios))
    for word, value, known in (
        ("category", choices.category, rules.scenarios),
        ("division", choices.division, benchmark.divisions),
        ("engine", choices.engine, ENGINES),
    ):
        if value not in known:
            raise ConfigError(f"{choices.model} has no {word} {value}", expected=", ".join(known))


def loadgen_models(workspace: Workspace, round_: Round) -> frozenset[str]:
    """LoadGen's names of all benchmarks that this checkout knows."""
    benchmarks = (load_benchmark(name, workspace) for name in benchmark_names(workspace))
    rules = [round_.benchmarks[b.rules_of] for b in benchmarks if b.rules_of in round_.benchmarks]
    return frozenset(rule.loadgen_model(scenario) for rule in rules for scenario in SCENARIOS)


def _read_conf(file: Path, models: frozenset[str]) -> UserConf:
    if not file.is_file():
        raise ConfigError(
            "the file with LoadGen's targets is not there",
            where=str(file),
            expected=", ".join(sorted(f.name for f in file.parent.glob("user_*.conf"))),
            hint="name another with --gpu or --user-conf",
        )
    return parse(file.read_text(), str(file), models)


def _plan(scenario: str, request: Request, conf: UserConf, conf_file: Path) -> ScenarioPlan:
    choices, profile = request.choices, request.profile
    loadgen = "Server" if scenario == "Interactive" else scenario
    model = request.rules.loadgen_model(scenario)
    profile.check_duration(conf, model, loadgen, request.round, conf_file)
    own = profile.user_conf(conf, model, loadgen, request.samples, request.rules.samples)
    if choices.division == "closed" and (barred := own.open_only()):
        raise ConfigError(
            "user.conf sets what only the open division may", where=str(conf_file), found=", ".join(barred)
        )
    values = {name.key: value for name, value in own.values.items()}
    load = _load(loadgen, request.samples, values, request.round, f"{conf_file}: {model}.{loadgen}")
    config = load_config(request.benchmark, scenario, choices.gpu, choices.sets, request.workspace)
    counted = choices.sample_count or request.benchmark.dataset.samples
    found = departures(config, request.benchmark, counted) + _conf_departures(
        conf, model, loadgen, request.benchmark.dataset.samples
    )
    if choices.division == "closed":
        found += _rule_departures(request.benchmark, request.rules)
    refuse_departures(found, choices.division)
    return ScenarioPlan(scenario, config, own, load, found, model)


def _conf_departures(conf: UserConf, model: str, scenario: str, samples: int) -> list[str]:
    """What a submitter's user.conf changes of the sample count and of equal issue."""
    fixed = {
        "performance_sample_count_override": samples,
        "accuracy_sample_count_override": samples,
        "sample_concatenate_permutation": 1,
    }
    found = {key: conf.lookup(model, scenario, key) for key in fixed}
    return [
        f"user.conf: {key} is {value}, not {fixed[key]}"
        for key, value in found.items()
        if value not in (None, fixed[key])
    ]


def _rule_departures(benchmark: Benchmark, rules: BenchmarkRules) -> list[str]:
    """Where benchmark.yaml itself is not what the round says."""
    facts = {
        "sampling.max_tokens": (benchmark.sampling.max_tokens, rules.max_output_tokens),
        "sampling.stop_token_ids": (benchmark.sampling.stop_token_ids, rules.eos_ids),
        "dataset.samples": (benchmark.dataset.samples, rules.samples),
    }
    return [
        f"benchmark.yaml: {key} is {own}, the round says {right}" for key, (own, right) in facts.items() if own != right
    ]


def _load(scenario: str, samples: int, values: Mapping[str, float], round_: Round, where: str) -> Load:
    key = "target_latency" if scenario == "SingleStream" else "target_qps"
    if key not in values:
        raise ConfigError(
            "user.conf has no target for this scenario",
            where=f"{where}.{key}",
            hint=f"write: {where.rpartition(' ')[2]}.{key} = NUMBER",
        )
    return Load(
        scenario=scenario,
        samples=samples,
        min_duration_s=values.get("min_duration", round_.min_duration_ms) / 1000,
        target_qps=values.get("target_qps", 0),
        target_latency_s=values.get("target_latency", 0) / 1000,
        min_query_count=int(values.get("min_query_count", 0)),
    )
