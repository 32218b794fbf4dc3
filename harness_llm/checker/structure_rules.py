"""Rules on what stands where: divisions, submitters, benchmarks and scenarios."""

from collections.abc import Iterable, Iterator, Mapping

from harness_llm.checker.findings import Authority, Basis, Fault, Rule, advised, forbidden, rejected, rule
from harness_llm.checker.submission_tree import DIVISIONS, Benchmark, Result, Submitter, Tree, load_json
from harness_llm.config.submission_names import VALID
from harness_llm.rules.rounds import ScenarioRules
from harness_llm.submission.datacenter import DOCUMENT
from harness_llm.submission.places import PROFILE

_ARCHITECTURE = (DOCUMENT, "documentation/bandwidth.adoc")
"""Our name for it, and that of policies/submission_rules.adoc:376."""

_STRUCTURE = "policies/submission_rules.adoc:303-312, 366-403"


@rule("tree", forbidden(_STRUCTURE), hint="give the folder that holds the divisions")
def divisions(tree: Tree) -> Iterator[Fault]:
    """The tree has no submitter."""
    if not tree.submitters:
        yield Fault(tree.path, f"{' or '.join(DIVISIONS)}/<submitter>/", "none")


@rule("results", rejected("loader.py, load"), hint="remove the submitter's folder, or package a result")
def results(submitter: Submitter) -> Iterator[Fault]:
    """A submitter has no result."""
    if not submitter.results:
        basis = forbidden(_STRUCTURE) if (submitter.path / "results").is_dir() else None
        yield Fault(submitter.path, "results/<system>/<benchmark>/<scenario>/", "none", basis=basis)


@rule("profile", advised("harness-llm"))
def profile(submitter: Submitter) -> Iterator[Fault]:
    """A submitter's profile cannot be read."""
    if (submitter.path / PROFILE).exists():
        load_json(submitter.path / PROFILE)
    yield from ()


@rule(
    "not-submittable",
    advised("inference_policies/inference_rules.adoc:139-146"),
    hint="harness-llm submit … --profile valid makes one",
)
def not_submittable(submitter: Submitter) -> Iterator[Fault]:
    """The results were made of small runs and are no submission."""
    if submitter.profile != VALID:
        yield Fault(submitter.path / PROFILE, "profile valid", f"profile {submitter.profile}")


@rule("source", rejected("measurements_checks.py, directory_exist_check"))
def source(submitter: Submitter) -> Iterator[Fault]:
    """The submitter's source is missing or empty."""
    folder = submitter.path / submitter.tree.round.layout.source
    if not folder.is_dir():
        yield Fault(folder, "a folder with the code that ran", "no such folder")
    elif not any(folder.iterdir()):
        shared = forbidden("inference_policies/inference_rules.adoc:65-70")
        yield Fault(folder, "the code that ran", "an empty folder", basis=shared)


@rule("calibration", forbidden("inference_policies/inference_rules.adoc:686-690; policies/submission_rules.adoc:375"))
def calibration(submitter: Submitter) -> Iterator[Fault]:
    """A description of the quantization is missing."""
    names = submitter.tree.round.layout.calibration
    judged = any(result.judged for result in submitter.results)
    if submitter.enforced and judged and not _has_document(submitter, names):
        yield Fault(submitter.path, " or ".join(names), "neither")


def _has_document(submitter: Submitter, names: Iterable[str]) -> bool:
    """Whether there is one, of any format; some submit one for each maker of accelerators."""
    places = (submitter.path / name for name in names)
    return any(file for place in places for file in place.parent.glob(f"{place.stem}*"))


@rule(
    "architecture",
    advised("inference_policies/inference_rules.adoc:449-457"),
    hint="say what the network cards are and which way the data take, with their bandwidths",
)
def architecture(submitter: Submitter) -> Iterator[Fault]:
    """A description of the datacenter systems is missing."""
    datacenter = any("datacenter" in str(system.field("system_type")) for system in submitter.systems)
    if submitter.enforced and datacenter and not _has_document(submitter, _ARCHITECTURE):
        yield Fault(submitter.path, " or ".join(_ARCHITECTURE), "none")


@rule("model-mapping", rejected("loader.py, load"))
def model_mapping(submitter: Submitter) -> Iterator[Fault]:
    """The names of benchmarks cannot be read."""
    if not submitter.enforced and submitter.mapping_path.exists():
        load_json(submitter.mapping_path)
    yield from ()


@rule("benchmark", rejected("configuration.py, get_mlperf_model"))
def benchmark(subject: Benchmark) -> Iterator[Fault]:
    """The round has no such benchmark."""
    submitter = subject.system.submitter
    rules = submitter.tree.round
    if subject.variant not in (*rules.benchmarks, *rules.not_judged):
        found = subject.name if subject.name == subject.variant else f"{subject.name}, for {subject.variant}"
        hint = "" if submitter.enforced else f"map it in {submitter.mapping_path.name}"
        yield Fault(subject.path, " or ".join(rules.benchmarks), found, hint)


@rule(
    "scope",
    Basis(Authority.SCOPE, "docs/check.md, What is judged"),
    hint="the official checker judges it: git clone https://github.com/mlcommons/inference",
)
def not_judged(subject: Benchmark) -> Iterator[Fault]:
    """No rule on results applies: another benchmark than an LLM's, or no LoadGen."""
    known = subject.rules is not None or subject.variant in subject.system.submitter.tree.round.not_judged
    for result in subject.results if known else ():
        if not result.judged:
            found = f"{subject.variant}{', measured with mlcommons/endpoints' if result.endpoints else ''}"
            yield Fault(result.path, "an LLM benchmark measured with LoadGen", found)


@rule("scenarios", rejected("loader.py, check_scenarios; performance_check.py, scenarios_check"))
def scenarios(subject: Benchmark) -> Iterator[Fault]:
    """The scenarios are not those that the division asks for."""
    submitter, system_type = subject.system.submitter, str(subject.system.field("system_type"))
    judged = [result for result in subject.results if result.judged]
    if not (submitter.enforced and subject.rules and judged and system_type in submitter.tree.round.system.types):
        return
    asked = _asked(subject.rules.scenarios, system_type)
    if not asked:
        yield Fault(subject.path, f"a {' or '.join(subject.rules.scenarios)} system", system_type)
    for rules in asked:
        yield from _missing(subject, rules)
    allowed = {name for rules in asked for name in (*rules.required, *rules.optional)}
    for result in judged:
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


@rule("scenario-name", rejected("performance_check.py, inferred_check"))
def scenario_name(result: Result) -> Iterator[Fault]:
    """A folder is not named like a scenario."""
    if result.folder not in result.round.scenarios:
        known = result.scenario in result.round.scenarios  # which is enough for the official checker
        basis = advised("policies/submission_rules.adoc:414") if known else None
        yield Fault(result.path, " or ".join(result.round.scenarios), result.folder, basis=basis)


TREE: tuple[Rule[Tree], ...] = (divisions,)
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
