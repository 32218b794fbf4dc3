"""Requirements of closed datacenter submissions beside the results: ECC and network bandwidth."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from harness_llm.config.architecture import Architecture, load_architecture
from harness_llm.config.commands import typed
from harness_llm.config.rules.rounds import Round
from harness_llm.config.system_file import ECC, complete
from harness_llm.errors import ConfigError, GateFailed, HarnessError
from harness_llm.hardware.ecc import UNKNOWN, Ecc, State
from harness_llm.loadgen.logs import DETAIL, parse_detail
from harness_llm.submission.architecture_document import check_bandwidths, missing_facts, render_architecture
from harness_llm.submission.bandwidth import Bandwidth, MeasuredResult

DOCUMENT = "documentation/system_architecture.md"

_DATACENTER = "datacenter"


@dataclass(frozen=True)
class Requirements:
    """Facts about one system that closed datacenter submissions must document.

    Attributes:
        description: content of `systems/<system>.json`.
        file: the system file, for messages.
    """

    description: Mapping[str, str]
    architecture: Architecture | None
    ecc: Ecc
    file: Path

    def missing(self) -> list[str]:
        """Keys that the system file must contain and does not."""
        unknown = [name for name, fact in self.ecc.facts.items() if fact.state is State.UNKNOWN]
        return [
            *missing_facts(self.description, self.architecture),
            *(f"{ECC}.{name}: true or false; this machine does not report it" for name in unknown),
        ]

    def violations(self, results: Sequence[MeasuredResult]) -> list[str]:
        """Violations of the rules, one clause each."""
        off = [f"ECC of the {name} is {fact}" for name, fact in self.ecc.facts.items() if fact.state is State.OFF]
        narrow = [_shortage(b) for b in check_bandwidths(self.architecture, results) if not b.sufficient]
        return off + narrow

    def require(self, results: Sequence[MeasuredResult] = ()) -> None:
        """Check the requirements; without results, bandwidths are not checked.

        Raises:
            ConfigError: keys are missing in the system file.
            GateFailed: ECC is off, or the bandwidth is insufficient for a result.
        """
        for refusal in self.refusals(results):
            raise refusal

    def refusals(self, results: Sequence[MeasuredResult] = ()) -> Iterator[HarnessError]:
        """Every error that `require` raises."""
        if missing := self.missing():
            yield ConfigError(
                f"missing facts about {self.description['system_name']}, which closed datacenter must document",
                where=str(self.file),
                found="no value for\n         " + "\n         ".join(missing),
                hint="add the keys to the system file; docs/closed-datacenter.md has an example",
            )
        if violations := self.violations(results):
            yield GateFailed(
                f"{self.description['system_name']} violates the requirements of closed datacenter",
                where=str(self.file),
                expected="ECC of memory and accelerators on, and sufficient bandwidth for the throughput",
                found="\n         ".join(violations),
                hint=f"correct it, or submit to the open division: {typed(division='open')}",
            )

    def render(self, system: str, results: Sequence[MeasuredResult]) -> str:
        """The part of DOCUMENT on this system; `system` is the name of its folder."""
        return render_architecture(system, self.description, self.architecture, self.ecc, results)


def requirements_of(description: Mapping[str, str], ecc: Ecc, file: Path) -> Requirements | None:
    """Requirements of a datacenter system; None for other systems.

    Args:
        ecc: from `read_ecc()`; `file` may state what the machine does not report.

    Raises:
        ConfigError: `architecture` or `ecc` in `file` is invalid.
    """
    if _DATACENTER not in description["system_type"].split(","):
        return None
    if ecc.accelerators.state is State.ABSENT and description["accelerators_per_node"] != "0":
        ecc = replace(ecc, accelerators=UNKNOWN)
    return Requirements(description, load_architecture(file), complete(ecc, file), file)


def measured_results(home: Path, system: str, rules: Round) -> list[MeasuredResult]:
    """Read the datacenter results of `system` in a submitter's folder from their LoadGen logs.

    Benchmarks that harness-llm does not judge are left out.

    Raises:
        ConfigError: a log cannot be read, or the round has no such benchmark.
    """
    mapping = home / "model_mapping.json"
    official = json.loads(mapping.read_text()) if mapping.exists() else {}
    return list(_measured(home / "results" / system, official, rules))


def _measured(folder: Path, official: Mapping[str, str], rules: Round) -> Iterator[MeasuredResult]:
    for scenario in sorted(folder.glob("*/*")):
        name = scenario.parent.name
        variant = official.get(name, name)
        if variant in rules.not_judged:
            continue
        benchmark = rules.benchmark(variant)
        allowed = benchmark.scenarios.get(_DATACENTER)
        if allowed and scenario.name in (*allowed.required, *allowed.optional, *allowed.one_of):
            log = parse_detail(scenario / "performance" / "run_1" / DETAIL)
            yield MeasuredResult.of(name, scenario.name, log.samples_per_second, benchmark)


def _shortage(bandwidth: Bandwidth) -> str:
    result, flows = bandwidth.result, {"in": bandwidth.ingress, "out": bandwidth.egress}
    short = " and ".join(f"{f.required_gbit_s:.6g} Gbit/s {name}" for name, f in flows.items() if not f.sufficient)
    available = f"{bandwidth.ingress.available_gbit_s:g} Gbit/s ({bandwidth.bottleneck})"
    return f"{result.benchmark} {result.scenario} requires {short}; available: {available}"
