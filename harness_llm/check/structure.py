"""Rules on what stands where: divisions, submitters, benchmarks and scenarios."""

from collections.abc import Iterator, Mapping

from harness_llm.check.findings import Fault, Rule, Severity, rule
from harness_llm.check.tree import DIVISIONS, PROFILE, Benchmark, Result, Submitter, Tree, load_json
from harness_llm.package.datacenter import DOCUMENT
from harness_llm.rules.rounds import ScenarioRules

_ARCHITECTURE = (DOCUMENT, "documentation/bandwidth_requirement.md", "documentation/bandwidth.md")
"""Our name for it, and those of published submissions; the rules name none."""


@rule("tree", "submission_checker/loader.py", hint="give the folder that holds the divisions")
def divisions(tree: Tree) -> Iterator[Fault]:
    """The tree has no submitter."""
    if not tree.submitters:
        yield Fault(tree.path, f"{' or '.join(DIVISIONS)}/<submitter>/", "none")


@rule("results", "submission_checker/loader.py", hint="remove the submitter's folder, or package a result")
def results(submitter: Submitter) -> Iterator[Fault]:
    """A submitter has no result."""
    if not any(benchmark.results for system in submitter.systems for benchmark in system.benchmarks):
        yield Fault(submitter.path, "results/<system>/<benchmark>/<scenario>/", "none")


@rule("profile", "harness-llm")
def profile(tree: Tree) -> Iterator[Fault]:
    """The tree's profile cannot be read."""
    if (tree.path / PROFILE).exists():
        load_json(tree.path / PROFILE)
    yield from ()


@rule(
    "not-submittable",
    "inference_policies/inference_rules.adoc:147-150",
    severity=Severity.WARNING,
    hint="harness-llm submit … --profile valid makes one",
)
def not_submittable(tree: Tree) -> Iterator[Fault]:
    """The tree was made of small runs and is no submission."""
    if tree.small:
        yield Fault(tree.path / PROFILE, "profile valid", f"profile {tree.small}")


@rule("source", "measurements_checks.py, directory_exist_check")
def source(submitter: Submitter) -> Iterator[Fault]:
    """The submitter's source is missing or empty."""
    folder = submitter.path / submitter.tree.round.layout.source
    if not folder.is_dir():
        yield Fault(folder, "a folder with the code that ran", "no such folder")
    elif not any(folder.iterdir()):
        yield Fault(folder, "the code that ran", "an empty folder")


@rule("calibration", "Submission_Guidelines.md; submission_checker_old.py:2840-2853")
def calibration(submitter: Submitter) -> Iterator[Fault]:
    """A description of the quantization is missing."""
    names = submitter.tree.round.layout.calibration
    places = [submitter.path / name for name in names]
    documents = (file for place in places for file in place.parent.glob(f"{place.stem}*{place.suffix}"))
    if submitter.enforced and not any(documents):  # some submit one for each maker of accelerators
        yield Fault(submitter.path, " or ".join(names), "neither")


@rule(
    "architecture",
    "inference_policies/inference_rules.adoc:1165-1213",
    severity=Severity.WARNING,
    hint="say what the network cards are and which way the data take, with their bandwidths",
)
def architecture(submitter: Submitter) -> Iterator[Fault]:
    """A description of the datacenter systems is missing."""
    datacenter = any("datacenter" in str(system.field("system_type")) for system in submitter.systems)
    if submitter.enforced and datacenter and not any((submitter.path / place).is_file() for place in _ARCHITECTURE):
        yield Fault(submitter.path, " or ".join(_ARCHITECTURE), "none")


@rule("model-mapping", "submission_checker/loader.py")
def model_mapping(submitter: Submitter) -> Iterator[Fault]:
    """The names of benchmarks cannot be read."""
    if not submitter.enforced and submitter.mapping_path.exists():
        load_json(submitter.mapping_path)
    yield from ()


@rule("benchmark", "submission_checker/configuration/configuration.py, get_mlperf_model")
def benchmark(subject: Benchmark) -> Iterator[Fault]:
    """The round has no such benchmark."""
    submitter = subject.system.submitter
    if subject.rules is None:
        found = subject.name if subject.name == subject.variant else f"{subject.name}, for {subject.variant}"
        hint = "" if submitter.enforced else f"map it in {submitter.mapping_path.name}"
        yield Fault(subject.path, " or ".join(submitter.tree.round.benchmarks), found, hint)


@rule("scenarios", "submission_checker/loader.py, check_scenarios")
def scenarios(subject: Benchmark) -> Iterator[Fault]:
    """The scenarios are not those that the division asks for."""
    submitter, system_type = subject.system.submitter, str(subject.system.field("system_type"))
    if not (submitter.enforced and subject.rules and system_type in submitter.tree.round.system.types):
        return
    asked = _asked(subject.rules.scenarios, system_type)
    if not asked:
        yield Fault(subject.path, f"a {' or '.join(subject.rules.scenarios)} system", system_type)
    for rules in asked:
        yield from _missing(subject, rules)
    allowed = {name for rules in asked for name in (*rules.required, *rules.optional)}
    for result in subject.results:
        if asked and result.scenario not in allowed:
            yield Fault(result.path, " or ".join(sorted(allowed)), result.scenario)


def _asked(scenarios: Mapping[str, ScenarioRules], system_type: str) -> list[ScenarioRules]:
    """What a system of both categories owes: both, unless a round says otherwise."""
    categories = sorted(system_type.split(","))
    own = scenarios.get(",".join(categories))
    return [own] if own else [scenarios[category] for category in categories if category in scenarios]


def _missing(subject: Benchmark, rules: ScenarioRules) -> Iterator[Fault]:
    present = {result.scenario for result in subject.results}
    for name in rules.required:
        if name not in present:
            yield Fault(subject.path, name, ", ".join(sorted(present)))
    if rules.one_of and not present.intersection(rules.one_of):
        yield Fault(subject.path, " or ".join(rules.one_of), ", ".join(sorted(present)))


@rule("scenario-name", "submission_checker/constants.py, SCENARIO_MAPPING")
def scenario_name(result: Result) -> Iterator[Fault]:
    """A folder is not named like a scenario."""
    if result.folder not in result.round.scenarios:
        known = result.scenario in result.round.scenarios  # which is enough for the official checker
        severity = Severity.WARNING if known else None
        yield Fault(result.path, " or ".join(result.round.scenarios), result.folder, severity=severity)


@rule("power", "power_check.py, required_files_check", hint="remove the folder if power was not measured")
def power(result: Result) -> Iterator[Fault]:
    """A power measurement is incomplete."""
    performance = result.path / "performance"
    if (performance / "power").exists():
        for name in result.round.power_files:
            if not (performance / name).is_file():
                yield Fault(performance / name, "a file", "none")


TREE: tuple[Rule[Tree], ...] = (divisions, profile, not_submittable)
SUBMITTER: tuple[Rule[Submitter], ...] = (results, source, calibration, architecture, model_mapping)
BENCHMARK: tuple[Rule[Benchmark], ...] = (benchmark, scenarios)
RESULT: tuple[Rule[Result], ...] = (scenario_name, power)
