"""Rules on the folders of a tree: divisions, submitters, benchmarks and scenarios."""

from collections.abc import Iterable, Iterator, Mapping

from harness_llm.checker.findings import Authority, Basis, Rule, Violation, advised, forbidden, rejected, rule
from harness_llm.checker.submission_tree import Benchmark, Result, Submitter, load_json
from harness_llm.config.commands import typed
from harness_llm.config.rules.rounds import ScenarioRules
from harness_llm.config.submission_names import VALID
from harness_llm.submission.datacenter import DOCUMENT
from harness_llm.submission.places import PROFILE

_ARCHITECTURE = (DOCUMENT, "documentation/bandwidth.adoc")
"""The name that harness-llm uses, and the name in policies/submission_rules.adoc:376."""

_STRUCTURE = "policies/submission_rules.adoc:303-312, 366-403"


@rule("results", rejected("loader.py, load"), hint="remove the submitter's folder, or package a result")
def results(submitter: Submitter) -> Iterator[Violation]:
    """A submitter has no result."""
    if not submitter.results:
        basis = forbidden(_STRUCTURE) if (submitter.path / "results").is_dir() else None
        yield Violation(submitter.path, "results/<system>/<benchmark>/<scenario>/", "none", basis=basis)


@rule("profile", advised("harness-llm"))
def profile(submitter: Submitter) -> Iterable[Violation]:
    """The profile of a submitter cannot be read."""
    if (submitter.path / PROFILE).exists():
        load_json(submitter.path / PROFILE)
    return ()


@rule(
    "not-submittable",
    advised("inference_policies/inference_rules.adoc:139-146"),
    hint=f"{typed(profile='valid')} makes a submission",
)
def not_submittable(submitter: Submitter) -> Iterator[Violation]:
    """The results come from small runs and are not a submission."""
    if submitter.profile != VALID:
        yield Violation(submitter.path / PROFILE, "profile valid", f"profile {submitter.profile}")


@rule("source", rejected("measurements_checks.py, directory_exist_check"))
def source(submitter: Submitter) -> Iterator[Violation]:
    """The submitter's source is missing or empty."""
    folder = submitter.source_path
    if not folder.is_dir():
        yield Violation(folder, "a folder with the code that ran", "no such folder")
    elif not any(folder.iterdir()):
        shared = forbidden("inference_policies/inference_rules.adoc:65-70")
        yield Violation(folder, "the code that ran", "an empty folder", basis=shared)


@rule("calibration", forbidden("inference_policies/inference_rules.adoc:686-690; policies/submission_rules.adoc:375"))
def calibration(submitter: Submitter) -> Iterator[Violation]:
    """The calibration document is missing."""
    names = submitter.tree.round.layout.calibration
    judged = any(result.judged for result in submitter.results)
    if submitter.enforced and judged and not _has_document(submitter, names):
        yield Violation(submitter.path, " or ".join(names), "neither")


def _has_document(submitter: Submitter, names: Iterable[str]) -> bool:
    """Whether a document exists, in any format; some submitters have one for each vendor of accelerators."""
    paths = (submitter.path / name for name in names)
    return any(file for path in paths for file in path.parent.glob(f"{path.stem}*"))


@rule(
    "architecture",
    advised("inference_policies/inference_rules.adoc:449-457"),
    hint="describe the network cards and the data path, with their bandwidths",
)
def architecture(submitter: Submitter) -> Iterator[Violation]:
    """The architecture document of the datacenter systems is missing."""
    datacenter = any("datacenter" in str(system.field("system_type")) for system in submitter.systems)
    if submitter.enforced and datacenter and not _has_document(submitter, _ARCHITECTURE):
        yield Violation(submitter.path, " or ".join(_ARCHITECTURE), "none")


@rule("model-mapping", rejected("loader.py, load"))
def model_mapping(submitter: Submitter) -> Iterable[Violation]:
    """The mapping of benchmark names cannot be read."""
    if not submitter.enforced and submitter.mapping_path.exists():
        load_json(submitter.mapping_path)
    return ()


@rule("benchmark", rejected("configuration.py, get_mlperf_model"))
def benchmark(subject: Benchmark) -> Iterator[Violation]:
    """The round has no such benchmark."""
    submitter = subject.system.submitter
    rules = submitter.tree.round
    if subject.variant not in (*rules.benchmarks, *rules.not_judged):
        found = subject.name if subject.name == subject.variant else f"{subject.name}, for {subject.variant}"
        hint = "" if submitter.enforced else f"map it in {submitter.mapping_path.name}"
        yield Violation(subject.path, " or ".join(rules.benchmarks), found, hint)


@rule(
    "scope",
    Basis(Authority.SCOPE, "docs/check.md, What is judged"),
    hint="use the official checker: git clone https://github.com/mlcommons/inference",
)
def not_judged(subject: Benchmark) -> Iterator[Violation]:
    """The result is out of scope: not an LLM benchmark, or not measured with LoadGen."""
    known = subject.rules is not None or subject.variant in subject.system.submitter.tree.round.not_judged
    for result in subject.results if known else ():
        if not result.judged:
            found = f"{subject.variant}{', measured with mlcommons/endpoints' if result.endpoints else ''}"
            yield Violation(result.path, "an LLM benchmark measured with LoadGen", found)


@rule("scenarios", rejected("loader.py, check_scenarios; performance_check.py, scenarios_check"))
def scenarios(subject: Benchmark) -> Iterator[Violation]:
    """The scenarios differ from those that the division requires."""
    submitter, system_type = subject.system.submitter, str(subject.system.field("system_type"))
    judged = [result for result in subject.results if result.judged]
    if not (submitter.enforced and subject.rules and judged and system_type in submitter.tree.round.system.types):
        return
    required = _required(subject.rules.scenarios, system_type)
    if not required:
        yield Violation(subject.path, f"a {' or '.join(subject.rules.scenarios)} system", system_type)
    for rules in required:
        yield from _missing(subject, rules)
    allowed = {name for rules in required for name in (*rules.required, *rules.optional)}
    for result in judged:
        if required and result.scenario not in allowed:
            yield Violation(result.path, " or ".join(sorted(allowed)), result.scenario)


def _required(scenarios: Mapping[str, ScenarioRules], system_type: str) -> list[ScenarioRules]:
    """Scenario rules of a system; both categories together have those of each, unless the round has rules for both."""
    categories = sorted(system_type.split(","))
    own = scenarios.get(",".join(categories))
    return [own] if own else [scenarios[category] for category in categories if category in scenarios]


def _missing(subject: Benchmark, rules: ScenarioRules) -> Iterator[Violation]:
    present = {result.scenario for result in subject.results}
    for name in rules.required:
        if name not in present:
            yield Violation(subject.path, name, ", ".join(sorted(present)))
    if rules.one_of and not present.intersection(rules.one_of):
        yield Violation(subject.path, " or ".join(rules.one_of), ", ".join(sorted(present)))


@rule("scenario-name", rejected("performance_check.py, inferred_check; results.py:121-126"))
def scenario_name(result: Result) -> Iterator[Violation]:
    """The name of a folder is not a scenario."""
    if result.folder not in result.round.scenarios:
        known = result.folder == result.scenario.lower() and result.scenario in result.round.scenarios
        # The official checker accepts lower case too; its table of units (results.py:121-126) has no other spelling.
        basis = advised("policies/submission_rules.adoc:414") if known else None
        yield Violation(result.path, " or ".join(result.round.scenarios), result.folder, basis=basis)


SUBMITTER: tuple[Rule[Submitter], ...] = (
    results,
    profile,
    not_submittable,
    source,
    calibration,
    architecture,
    model_mapping,
)
BENCHMARK: tuple[Rule[Benchmark], ...] = (benchmark, not_judged, scenarios)
RESULT: tuple[Rule[Result], ...] = (scenario_name,)
