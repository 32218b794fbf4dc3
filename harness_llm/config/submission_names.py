"""Names and rules of a submission tree."""

import datetime as dt
import re
from collections.abc import Iterable
from dataclasses import dataclass

from harness_llm.config.benchmark import Benchmark
from harness_llm.config.commands import command, typed
from harness_llm.config.rules.rounds import BenchmarkRules, Round
from harness_llm.errors import ConfigError

VALID = "valid"  # the profile whose runs comply with the rules

_UNFIT = re.compile(r"[^A-Za-z0-9_.-]+")


@dataclass(frozen=True)
class Submission:
    """One benchmark on one system.

    Attributes:
        category: datacenter, edge or both.
        profile: VALID, or the name of a profile whose runs do not comply with the rules.
    """

    benchmark: Benchmark
    rules: Round
    division: str
    category: str
    submitter: str
    system: str
    profile: str

    @property
    def tree_name(self) -> str:
        """The folder of the tree; results that cannot be submitted have another tree."""
        suffix = f"-{self.profile}" if self.small else self.benchmark.tree_suffix
        return f"inference_results_{self.rules.round.removeprefix('v')}{suffix}"

    @property
    def small(self) -> bool:
        """Whether the runs are too short or too few for a result."""
        return self.profile != VALID

    @property
    def variants(self) -> dict[str, BenchmarkRules]:
        """The official variants that the round has, strictest first."""
        return self.rules.variants(self.benchmark.variants)

    @property
    def names(self) -> list[str]:
        """The benchmark names in the tree: the variants, or the benchmark's own name if that is mapped to one."""
        return [self.benchmark.name] if self.benchmark.mapped else list(self.variants)

    @property
    def possible_names(self) -> list[str]:
        """`names`, and those that --high-accuracy leaves out: the variants of a benchmark share its LoadGen model."""
        if self.benchmark.mapped:
            return self.names
        models = {rules.loadgen_name for rules in self.variants.values()}
        return [name for name, rules in self.rules.benchmarks.items() if rules.loadgen_name in models]

    @property
    def obstacles(self) -> list[str]:
        """Why the tree can never be submitted, one clause each."""
        reasons = []
        if self.small:
            samples = next(iter(self.variants.values())).samples
            reasons.append(
                f"its runs are short or use a part of the data set; round {self.rules.round} requires "
                f"{self.rules.min_duration_ms // 1000} s and {samples} samples"
            )
        return [*reasons, self.benchmark.obstacle] if self.benchmark.obstacle else reasons

    def check(self) -> None:
        """Check division and measurements; `name_faults` of config/request.py checks the names.

        Raises:
            ConfigError: the division does not allow the benchmark, or a measurement is missing.
        """
        self._check_division()
        gaps = [f for f in self.rules.measurements_fields if not self.benchmark.measurements.get(f)]
        if gaps:
            raise ConfigError(
                f"missing measurements of {self.benchmark.name}",
                where=f"models/{self.benchmark.name}/benchmark.yaml, measurements",
                expected="a value for each field of the round",
                found=f"no value for {', '.join(gaps)}",
            )

    def _check_division(self) -> None:
        allowed = [d for d in self.benchmark.divisions if d != "closed" or not self.obstacles]
        if self.division in allowed:
            return
        reasons = self.obstacles if self.division == "closed" else []
        elsewhere = " or ".join(typed(division=division) for division in allowed)
        trial = f"{typed(profile=VALID)} for a result; {typed(division='open')}, or {typed(stand_in=True)}, to try it"
        raise ConfigError(
            f"the {self.division} division does not allow {self.benchmark.name} with the profile {self.profile}",
            expected=", ".join(allowed) or "another profile",
            found="; ".join((self.division, *reasons)),
            hint=trial if reasons and not self.benchmark.obstacle else elsewhere,
        )

    def together(self, verb: str, scenarios: Iterable[str]) -> str:
        """The command line that packages `scenarios` together, without the other options of their runs."""
        return command(
            verb,
            model=self.benchmark.name,
            scenarios=tuple(dict.fromkeys(scenarios)),
            company=self.submitter,
            system_name=self.system,
        )

    def notices(self, today: dt.date) -> list[str]:
        """Notices for the submitter that are not errors."""
        notices = [f"this tree is not submittable: {reason}" for reason in self.obstacles]
        if today > self.rules.deadline:
            notices.append(
                f"the deadline of round {self.rules.round} was {self.rules.deadline}: "
                "MLCommons accepts no more submissions for it"
            )
        return notices


def folder_name(name: str) -> str:
    """The folder name most like `name`: equal if it is one, empty if no character fits."""
    return _UNFIT.sub("_", name).strip("._-")
