"""What a closed datacenter submission owes beside its results: ECC, and the bandwidth of its network."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from harness_llm.config.architecture import Architecture, load_architecture
from harness_llm.config.system_file import ECC, complete
from harness_llm.errors import ConfigError, GateFailed, HarnessError
from harness_llm.hardware.ecc import UNKNOWN, Ecc, State
from harness_llm.loadgen.logs import DETAIL, parse_detail
from harness_llm.rules.rounds import Round
from harness_llm.submission.architecture_document import compared, missing_facts, render_architecture
from harness_llm.submission.bandwidth import Bandwidth, MeasuredResult

DOCUMENT = "documentation/system_architecture.md"

_DATACENTER = "datacenter"


@dataclass(frozen=True)
class Requirements:
    """What is owed for one system, and what is known of it.

    Attributes:
        description: the content of `systems/<system>.json`.
        file: the system file, named in messages.
    """

    description: Mapping[str, str]
    architecture: Architecture | None
    ecc: Ecc
    file: Path

    def missing(self) -> list[str]:
        """The keys of the system file that have to be written."""
        unknown = [name for name, fact in self.ecc.facts.items() if fact.state is State.UNKNOWN]
        return [
            *missing_facts(self.description, self.architecture),
            *(f"{ECC}.{name}: true or false, the machine does not tell" for name in unknown),
        ]

    def faults(self, results: Sequence[MeasuredResult]) -> list[str]:
        """What the rules forbid, one clause each."""
        off = [f"ECC of the {name} is {fact}" for name, fact in self.ecc.facts.items() if fact.state is State.OFF]
        narrow = [_shortage(b) for b in compared(self.architecture, results) if not b.sufficient]
        return off + narrow

    def notices(self, results: Sequence[MeasuredResult]) -> list[str]:
        """What keeps this system from the closed division, for those who do not ask for it yet."""
        missing = [f"closed datacenter needs {key} in {self.file}" for key in self.missing()]
        return missing + [f"closed datacenter forbids: {fault}" for fault in self.faults(results)]

    def require(self, results: Sequence[MeasuredResult] = ()) -> None:
        """Refuse what closed does not allow; before anything ran there are no results.

        Raises:
            ConfigError: the system file lacks facts.
            GateFailed: ECC is off, or the network is too narrow for a result.
        """
        for refusal in self.refusals(results):
            raise refusal

    def refusals(self, results: Sequence[MeasuredResult] = ()) -> Iterator[HarnessError]:
        """Every error that `require` raises."""
        if missing := self.missing():
            yield ConfigError(
                f"closed datacenter needs to know more of {self.description['system_name']}",
                where=str(self.file),
                found="nothing for\n         " + "\n         ".join(missing),
                hint="docs/closed-datacenter.md has an example",
            )
        if faults := self.faults(results):
            yield GateFailed(
                f"{self.description['system_name']} is not what closed datacenter asks for",
                where=str(self.file),
                expected="ECC of memory and accelerators, and bandwidth for the throughput",
                found="\n         ".join(faults),
                hint="--division open takes it as it is",
            )

    def render(self, results: Sequence[MeasuredResult]) -> str:
        """The part of DOCUMENT on this system."""
        return render_architecture(self.description, self.architecture, self.ecc, results)


def requirements(description: Mapping[str, str], ecc: Ecc, file: Path) -> Requirements | None:
    """What `description` owes; None outside the datacenter.

    Args:
        ecc: from `read_ecc()`; what it does not know, `file` may state.

    Raises:
        ConfigError: `architecture` or `ecc` in `file` are wrong.
    """
    if _DATACENTER not in description["system_type"].split(","):
        return None
    if ecc.accelerators.state is State.ABSENT and description["accelerators_per_node"] != "0":
        ecc = replace(ecc, accelerators=UNKNOWN)
    return Requirements(description, load_architecture(file), complete(ecc, file), file)


def measured_results(home: Path, system: str, rules: Round) -> list[MeasuredResult]:
    """The datacenter results of `system` in a submitter's folder, from their LoadGen logs.

    Raises:
        ConfigError: a log cannot be read, or the round lacks a benchmark of the tree.
    """
    mapping = home / "model_mapping.json"
    official = json.loads(mapping.read_text()) if mapping.exists() else {}
    return list(_measured(home / "results" / system, official, rules))


def _measured(folder: Path, official: Mapping[str, str], rules: Round) -> Iterator[MeasuredResult]:
    for scenario in sorted(folder.glob("*/*")):
        name = scenario.parent.name
        benchmark = rules.benchmark(official.get(name, name))
        allowed = benchmark.scenarios.get(_DATACENTER)
        if allowed and scenario.name in (*allowed.required, *allowed.optional, *allowed.one_of):
            log = parse_detail(scenario / "performance" / "run_1" / DETAIL)
            yield MeasuredResult.of(name, scenario.name, log.samples_per_second, benchmark)


def _shortage(bandwidth: Bandwidth) -> str:
    result, flows = bandwidth.result, {"in": bandwidth.ingress, "out": bandwidth.egress}
    short = " and ".join(f"{f.required_gbit_s:.6g} Gbit/s {way}" for way, f in flows.items() if not f.sufficient)
    there = f"{bandwidth.ingress.available_gbit_s:g} Gbit/s ({bandwidth.bottleneck})"
    return f"{result.benchmark} {result.scenario} needs {short}, and there are {there}"
