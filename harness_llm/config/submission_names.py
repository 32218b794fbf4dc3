"""What is submitted, by whom, as what: the facts that name folders, and what they may not be."""

import datetime as dt
import re
from dataclasses import dataclass

from harness_llm.config.benchmark import Benchmark
from harness_llm.errors import ConfigError
from harness_llm.rules.rounds import BenchmarkRules, Round

VALID = "valid"  # the profile whose runs are long and many enough to be a result

_TRIAL = "--profile valid for a result; --division open, or --stand-in, to try it"
_UNFIT = re.compile(r"[^A-Za-z0-9_.-]+")


@dataclass(frozen=True)
class Submission:
    """One benchmark on one system.

    Attributes:
        category: datacenter, edge or both.
        profile: VALID, or the name of one whose runs are not what the rules ask for.
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
        """The folder of the tree; what is not submittable stands in a tree of its own."""
        suffix = f"-{self.profile}" if self.small else self.benchmark.tree_suffix
        return f"inference_results_{self.rules.round.removeprefix('v')}{suffix}"

    @property
    def small(self) -> bool:
        """Whether the runs are too short and too few to be a result."""
        return self.profile != VALID

    @property
    def variants(self) -> dict[str, BenchmarkRules]:
        """The official variants that the round has, strictest first."""
        return self.rules.variants(self.benchmark.variants)

    @property
    def names(self) -> list[str]:
        """Every name that the results may stand under: the variants', or its own where that is mapped to one."""
        return [self.benchmark.name] if self.benchmark.mapped else list(self.variants)

    @property
    def obstacles(self) -> list[str]:
        """Why the tree can never be submitted, one clause each."""
        reasons = []
        if self.small:
            samples = next(iter(self.variants.values())).samples
            reasons.append(
                f"its runs are short and cover a part of the data set, where round {self.rules.round} asks for "
                f"{self.rules.min_duration_ms // 1000} s and {samples} samples"
            )
        return [*reasons, self.benchmark.obstacle] if self.benchmark.obstacle else reasons

    def check(self) -> None:
        """Refuse what cannot be packaged.

        Raises:
            ConfigError: the division does not take this, a name fits no folder, or measurements have gaps.
        """
        for option, name in (("submitter", self.submitter), ("system name", self.system)):
            check_name(option, name)
        self._check_division()
        gaps = [f for f in self.rules.measurements_fields if not self.benchmark.measurements.get(f)]
        if gaps:
            raise ConfigError(
                f"the measurements of {self.benchmark.name} have gaps",
                where=f"models/{self.benchmark.name}/benchmark.yaml, measurements",
                expected="a value for each field of the round",
                found=f"nothing for {', '.join(gaps)}",
            )

    def _check_division(self) -> None:
        allowed = [d for d in self.benchmark.divisions if d != "closed" or not self.obstacles]
        if self.division in allowed:
            return
        reasons = self.obstacles if self.division == "closed" else []
        elsewhere = f"--division {' or '.join(allowed)}" if allowed else ""
        raise ConfigError(
            f"{self.benchmark.name}, {self.profile}, cannot stand in the {self.division} division",
            expected=", ".join(allowed) or "another profile",
            found="; ".join((self.division, *reasons)),
            hint=_TRIAL if reasons and not self.benchmark.obstacle else elsewhere,
        )

    def notices(self, today: dt.date) -> list[str]:
        """What the submitter should know, though it stops nothing."""
        notices = [f"this tree is not submittable: {reason}" for reason in self.obstacles]
        if today > self.rules.deadline:
            notices.append(
                f"the deadline of round {self.rules.round} was {self.rules.deadline}: "
                "MLCommons takes no more submissions for it"
            )
        return notices


def check_name(option: str, name: str) -> None:
    """Refuse a name that fits no folder; `option` says whose it is."""
    fit = _UNFIT.sub("_", name).strip("._-")
    if fit != name or not fit:
        raise ConfigError(
            f"the {option} names a folder and does not fit one",
            expected="letters, digits, _ . and -, with a letter or digit at either end",
            found=repr(name),
            hint=f"write {fit}" if fit else "",
        )
