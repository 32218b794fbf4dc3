"""Pairs of values of harness_llm/config/rules and of a checkout of mlcommons/inference."""

import ast
import math
import re
import runpy
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from harness_llm.config.rules import BenchmarkRules, Round
from harness_llm.config.rules.rounds import ScenarioRules

OTHER_TASKS = {"resnet", "retinanet", "bert", "dlrm", "3d", "stable", "rgat", "whisper", "yolo", "wan", "pointpainting"}
NOT_HELD = {"qwen3-vl-235b-a22b", "qwen3.6-27b", "e2e-rag-qna", "e2e-rag-db"}
SYSTEM_TYPES = ("datacenter", "edge", "datacenter,edge")
SERVED = ("Server", "Interactive")
NS_PER_MS = 1_000_000
DATA = yaml.safe_load((Path(__file__).parent / "data/official_values.yaml").read_text())


class Pair(NamedTuple):
    """One comparison; `field` is Class.field of harness_llm/config/rules/rounds.py."""

    field: str
    ours: Any
    official: Any


class Checkout:
    """A checkout of mlcommons/inference."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._checker = folder / "tools/submission/submission_checker"

    @cached_property
    def constants(self) -> dict[str, Any]:
        return runpy.run_path(str(self._checker / "constants.py"))

    @cached_property
    def llm_models(self) -> set[str]:
        """Those whose logs `llm_check` judges."""
        body = self.code("configuration/configuration.py").partition("def get_llm_models")[2]
        return set(ast.literal_eval(body[body.index("[") : body.index("]") + 1]))

    @cached_property
    def conf(self) -> dict[str, str]:
        """loadgen/mlperf.conf."""
        lines = (line.partition("=") for line in self.text("loadgen/mlperf.conf").splitlines())
        return {key.strip(): value.strip() for key, equals, value in lines if equals and not key.startswith("#")}

    def code(self, name: str) -> str:
        """A file of the submission checker."""
        return (self._checker / name).read_text()

    def text(self, name: str) -> str:
        return (self._folder / name).read_text()

    def of_round(self, round_: Round) -> dict[str, Any]:
        config: dict[str, Any] = self.constants["MODEL_CONFIG"][round_.round]
        return config


def of_round(round_: Round, checkout: Checkout) -> Iterator[Pair]:
    """Of everything that is not a benchmark's."""
    constants, config = checkout.constants, checkout.of_round(round_)
    text = {m for m in config["models"] if m.partition("-")[0] not in OTHER_TASKS} - NOT_HELD
    yield Pair("Round.round", {round_.round} & set(constants["MODEL_CONFIG"]), {round_.round})
    yield Pair("Round.benchmarks", set(round_.benchmarks), text)
    yield Pair("Round.scenarios", set(round_.scenarios), set(constants["SCENARIO_MAPPING"].values()))
    yield Pair("Round.inferred", {(t, s) for t, own in round_.inferred.items() for s in own}, _inferred(checkout))
    yield Pair("Round.min_duration_ms", round_.min_duration_ms, constants["TEST_DURATION_MS"])
    yield Pair("Round.max_accuracy_log_bytes", round_.max_accuracy_log_bytes, constants["MAX_ACCURACY_LOG_SIZE"])
    yield Pair("Round.max_file_mb", round_.max_file_mb, constants["FILE_SIZE_LIMIT_MB"])
    fields, files = constants["SYSTEM_IMP_REQUIRED_FILES"], constants["REQUIRED_MEASURE_FILES"]
    yield Pair("Round.measurements_fields", set(round_.measurements_fields), set(fields))
    yield Pair("Round.measurements_files", set(round_.measurements_files), set(files))
    yield Pair("Round.not_judged", set(round_.not_judged), set(config["models"]) - set(round_.benchmarks))
    queries = {config["min-queries"][name]["Offline"] for name in round_.benchmarks}
    yield Pair("Round.offline_min_queries", {round_.offline_min_queries}, queries)
    yield Pair("LoadGenRules.seeds", round_.loadgen.seeds, config["seeds"])
    yield from _of_names(round_, checkout)
    yield from _of_power(round_, checkout)
    yield from _of_layout(round_, constants)
    yield from _of_system(round_, checkout)


def _of_names(round_: Round, checkout: Checkout) -> Iterator[Pair]:
    config, constants = checkout.of_round(round_), checkout.constants
    ours = {alias: name for alias, name in round_.aliases.items() if name in config["models"]}
    official = {alias: name for alias, name in config["model_mapping"].items() if name in config["models"]}
    yield Pair("Round.aliases", ours, official)
    guess = checkout.code("configuration/configuration.py").partition("try to guess")[2].partition("map again")[0]
    branches = re.findall(r'if (.*):\n\s+model = "(.+)"', guess)
    parts = [(part, name) for condition, name in branches for part in re.findall(r'"([^"]+)" in model', condition)]
    yield Pair("Round.name_parts", list(round_.name_parts.items()), parts)
    fields = {scenario: {constants["RESULT_FIELD_NEW"][round_.round][scenario]} for scenario in round_.metrics}
    for benchmarks in constants["RESULT_FIELD_BENCHMARK_OVERWRITE"].values():
        for name, own in benchmarks.items():
            for scenario, key in own.items():
                if name in checkout.llm_models:
                    fields[scenario].add(key)
    yield Pair("Round.metrics", {scenario: set(keys) for scenario, keys in round_.metrics.items()}, fields)


def _of_power(round_: Round, checkout: Checkout) -> Iterator[Pair]:
    constants, home = checkout.constants, "{division}/{submitter}/"
    extra = checkout.code("utils.py").partition("optional = optional + ")[2]
    always = set(ast.literal_eval(extra[: extra.index("]") + 1]))
    run = {*constants["REQUIRED_PERF_FILES"], *constants["REQUIRED_PERF_POWER_FILES"]}
    per_run = (run, always | set(constants["OPTIONAL_PERF_FILES"]))
    official = {"power": (set(constants["REQUIRED_POWER_FILES"]), always), "ranging": per_run, "run_1": per_run}
    ours = {folder: (set(rules.required), set(rules.optional)) for folder, rules in round_.power.items()}
    yield Pair("Round.power", ours, official)
    nameplate = constants["NAMEPLATE_POWER_PATH"].get(round_.round, "")
    yield Pair("Round.nameplate_power", round_.nameplate_power, nameplate.removeprefix(home))


def _inferred(checkout: Checkout) -> set[tuple[str, str]]:
    """(scenario, source) as `inferred_check` lists them, by the names of the scenarios."""
    code = checkout.code("checks/performance_check.py").partition("list_inferred = ")[2]
    names = checkout.constants["SCENARIO_MAPPING"]
    return {(names[target], names[source]) for source, target in ast.literal_eval(code[: code.index("]") + 1])}


def _of_layout(round_: Round, constants: dict[str, Any]) -> Iterator[Pair]:
    layout, home = round_.layout, "{division}/{submitter}/"
    folder, _, file = constants["MEASUREMENTS_PATH"][round_.round].rpartition("/")
    ours = Path(home + layout.measurements)
    yield Pair("Layout.source", home + layout.source, constants["SRC_PATH"][round_.round])
    yield Pair("Layout.compliance", f"{home}{layout.compliance}/", constants["COMPLIANCE_PATH"][round_.round])
    yield Pair("Layout.measurements", (str(ours.parent), file), (folder, "{file}" if "{" in ours.name else ours.name))


def _of_system(round_: Round, checkout: Checkout) -> Iterator[Pair]:
    system, constants = round_.system, checkout.constants
    filled = set(constants["SYSTEM_DESC_MEANINGFUL_RESPONSE_REQUIRED_FIELDS"])
    types = checkout.code("checks/system_check.py").partition("valid_system_types = ")[2]
    counted = set(re.findall(r'int\(\s*row\["(\w+)"\]\)', checkout.code("results.py")))
    network = constants["SYSTEM_DESC_REQUIRED_FIELDS_NETWORK_MODE"]
    yield Pair("SystemRules.statuses", set(system.statuses), set(constants["VALID_AVAILABILITIES"]))
    yield Pair("SystemRules.types", set(system.types), set(ast.literal_eval(types[: types.index("]") + 1])))
    yield Pair("SystemRules.filled", set(system.filled), filled)
    yield Pair("SystemRules.present", set(system.present), set(constants["SYSTEM_DESC_REQUIRED_FIELDS"]) - filled)
    yield Pair("SystemRules.integers", set(system.integers), counted)
    capacity = (
        system.power_capacity if f'"{system.power_capacity}"' in checkout.code("checks/system_check.py") else None
    )
    yield Pair("SystemRules.power", set(system.power), set(constants["SYSTEM_DESC_REQUIRED_FIELDS_POWER"]))
    yield Pair("SystemRules.power_capacity", system.power_capacity, capacity)
    yield Pair("SystemRules.network", set(system.network), set(network))
    yield Pair("SystemRules.network_sut", system.network_sut, constants["NETWORK_MODE_REQUIRED_SUBSTRING_IN_SUT_NAME"])


def of_benchmark(round_: Round, name: str, checkout: Checkout) -> Iterator[Pair]:
    """Of the benchmark `name`."""
    official, rules = checkout.of_round(round_), round_.benchmarks[name]
    size, accuracy = official["dataset-size"][name], official["accuracy-sample-count"]
    overwritten = checkout.constants["RESULT_FIELD_BENCHMARK_OVERWRITE"].get(round_.round, {}).get(name, {})
    samples = {official["performance-sample-count"][name], size}
    yield Pair("BenchmarkRules.gates", _rounded(rules.gates), _metrics(official["accuracy-target"][name]))
    yield Pair(
        "BenchmarkRules.limits", _rounded(rules.limits), _metrics(official["accuracy-upper-limit"].get(name, ()))
    )
    yield Pair("BenchmarkRules.samples", {rules.samples}, samples)
    yield Pair("BenchmarkRules.accuracy_samples", rules.accuracy_samples or rules.samples, accuracy.get(name, size))
    least = checkout.constants["OFFLINE_MIN_SPQ_SINCE_V4"].get(name)
    yield Pair("BenchmarkRules.offline_samples", rules.offline_samples, least)
    loadgen = checkout.conf.get(f"{rules.loadgen_name}.*.performance_sample_count_override")
    yield Pair("BenchmarkRules.loadgen_name", str(rules.samples), loadgen)
    yield Pair(
        "BenchmarkRules.token_latencies", rules.token_latencies, "inferred" not in overwritten.get("Offline", "")
    )
    yield Pair("BenchmarkRules.scenarios", _scenarios(rules), _official_scenarios(official, name))
    yield Pair("BenchmarkRules.compliance", sorted(rules.compliance), _tests(official, name))
    beside = sorted(set(_tests(official, name)) - set(rules.compliance))
    yield Pair("BenchmarkRules.checker_compliance", sorted(rules.checker_compliance), beside)
    yield Pair("BenchmarkRules.never_accepted", _refused(rules), _officially_refused(official, name, rules, checkout))
    yield from _of_latencies(name, rules, official, checkout)
    yield from _of_reference(name, rules, checkout)


def _of_latencies(name: str, rules: BenchmarkRules, official: dict[str, Any], checkout: Checkout) -> Iterator[Pair]:
    ours = {scenario: limit.model_dump() for scenario, limit in rules.latency_ms.items()}
    limits = checkout.constants["LLM_LATENCY_LIMITS"].get(name, {})
    ms = {scenario: {k: ns / NS_PER_MS for k, ns in limit.items()} for scenario, limit in limits.items()}
    yield Pair("BenchmarkRules.latency_ms", ours, ms)
    whole = {scenario: ns / NS_PER_MS for scenario, ns in official["latency-constraint"].get(name, {}).items()}
    # mlperf.conf's 0: LoadGen limits TTFT and TPOT instead.
    off = checkout.conf.get(f"{rules.loadgen_name}.Server.target_latency") == "0"
    yield Pair("BenchmarkRules.answer_latency_ms", rules.answer_latency_ms, {} if off else whole)
    most = {} if rules.checker_target_latency_ms is None else {"Server": rules.checker_target_latency_ms}
    yield Pair("BenchmarkRules.checker_target_latency_ms", most, whole)


def _of_reference(name: str, rules: BenchmarkRules, checkout: Checkout) -> Iterator[Pair]:
    for entry in DATA["reference"]:
        for value in entry["values"]:
            if name in value["benchmarks"]:
                found = re.search(value["pattern"], checkout.text(value["file"]), re.MULTILINE)
                number = math.prod(map(int, found[1].split("*"))) if found else None
                yield Pair(entry["field"], getattr(rules, entry["field"].rpartition(".")[2]), number)


def _metrics(table: tuple[Any, ...]) -> dict[str, float]:
    """A flat (metric, value, ...) tuple, by our names of the metrics."""
    pairs = zip(table[::2], table[1::2], strict=True)
    return _rounded({name.upper().removesuffix("_ACCURACY"): value for name, value in pairs})


def _rounded(values: dict[str, float]) -> dict[str, float]:
    """Products as the official checker computes them, and as they are written here."""
    return {name: float(f"{value:.12g}") for name, value in values.items()}


def _scenarios(rules: BenchmarkRules) -> dict[str, dict[str, set[str]]]:
    """What all categories of a type of system ask together."""
    found = {}
    for system_type in SYSTEM_TYPES:
        parts = set(system_type.split(","))
        own = [rule for category, rule in rules.scenarios.items() if set(category.split(",")) <= parts]
        found[system_type] = {f: {s for rule in own for s in getattr(rule, f)} for f in ScenarioRules.model_fields}
    return found


def _official_scenarios(official: dict[str, Any], name: str) -> dict[str, dict[str, set[str]]]:
    found = {}
    for system_type in SYSTEM_TYPES:
        table = system_type.replace(",", "-")
        optional = set(official[f"optional-scenarios-{table}"].get(name, ()))
        one_of = optional if set(SERVED) <= optional else set()  # loader.py:263-267
        required = set(official[f"required-scenarios-{table}"].get(name, ()))
        found[system_type] = {"required": required, "optional": optional, "one_of": one_of}
    return found


def _tests(official: dict[str, Any], name: str) -> list[str]:
    lists = {key.removeprefix("models_"): names for key, names in official.items() if key.startswith("models_TEST")}
    return sorted(test for test, names in lists.items() if name in names)


def _refused(rules: BenchmarkRules) -> set[tuple[str, str]]:
    return {(d, s) for refusal in rules.never_accepted for d in refusal.divisions for s in refusal.scenarios}


def _officially_refused(
    official: dict[str, Any], name: str, rules: BenchmarkRules, checkout: Checkout
) -> set[tuple[str, str]]:
    """Scenarios that may be asked for and that a table of the checker lacks; or a test that is not made."""
    closed = {s for rule in rules.scenarios.values() for s in (*rule.required, *rule.optional)}
    asked = {"closed": closed, "open": {"Offline", "Server", "SingleStream"} | set(rules.latency_ms)}
    limits, least = checkout.constants["LLM_LATENCY_LIMITS"], checkout.constants["OFFLINE_MIN_SPQ_SINCE_V4"]
    missing = {"Offline"} if name not in least else set()
    if name in checkout.llm_models and "Server" not in limits.get(name, {}):
        missing |= set(SERVED)
    untested = closed if set(_tests(official, name)) - set(rules.compliance) else set()
    refused = {(division, scenario) for division, own in asked.items() for scenario in own & missing}
    return refused | {("closed", scenario) for scenario in untested}
