"""Profiles: the numbers in which a try-out differs from a measurement, models/profiles.yaml."""

import math
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from harness_llm.config.engines import REPLAY
from harness_llm.config.submission_names import VALID
from harness_llm.config.user_conf import UserConf
from harness_llm.errors import ConfigError
from harness_llm.fileio import read_yaml
from harness_llm.paths import Workspace
from harness_llm.rules import Round


class Profile(BaseModel):
    """One profile; None leaves a number to user.conf and the benchmark.

    Attributes:
        samples: of the data set, the first so many; below 1, that share of it.
        min_duration_ms: of a performance run.
        enforce_accuracy: whether an accuracy run under its gate is INVALID.
        probe_s: most seconds of the probe, before the clock starts; 0 for none.
        packaged: whether trees are made of its runs; not where they are too few for any verdict of LoadGen's.
        rehearsed: whether the replay engine answers, from stand-in data; such runs are never submittable.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    samples: int | float | None
    min_duration_ms: int | None
    enforce_accuracy: bool
    probe_s: float
    packaged: bool
    rehearsed: bool = False

    @property
    def submittable(self) -> bool:
        """Whether runs are what the rules ask for: a profile that lowers any number is one to try things with."""
        whole = self.samples is None and self.min_duration_ms is None
        return whole and self.enforce_accuracy and not self.rehearsed

    @property
    def label(self) -> str:
        """What trees say of the runs: VALID is kept for those that are what the rules ask for."""
        if self.submittable:
            return VALID
        return self.name if self.name != VALID else f"{VALID}-lowered"

    def sample_count(self, official: int, requested: int | None = None) -> int:
        """Samples of a run over a set of `official`; `requested` is the user's own number."""
        own = self.samples or official
        return min(requested or math.ceil(own if own >= 1 else own * official), official)

    def user_conf(self, conf: UserConf, model: str, scenario: str, samples: int, official: int) -> UserConf:
        """The user.conf of one run: the submitter's targets, and this profile's numbers on top.

        `model` and `scenario` are LoadGen's; `official` is the data set's size that LoadGen knows itself.
        """
        overrides: dict[str, int | float] = {}
        if self.min_duration_ms is not None:
            overrides["min_duration"] = self.min_duration_ms
        if samples != official:
            overrides["performance_sample_count_override"] = samples
            # LoadGen pads SingleStream to the pass after this count.
            overrides["min_query_count"] = 1 if scenario == "SingleStream" else samples
        return conf.for_run(model, scenario, overrides)

    def check_engine(self, engine: str) -> None:
        """Refuse to package runs of the replay engine, unless they are rehearsed, and rehearsed runs of any other.

        Raises:
            ConfigError: `engine` is the wrong one.
        """
        if engine == REPLAY and not self.rehearsed:
            raise ConfigError(
                "the replay engine computes nothing, so nothing of it is packaged",
                where="--engine replay",
                hint="harness-llm run measures with it; --profile rehearsal makes a tree that is no submission",
            )
        if self.rehearsed and engine != REPLAY:
            raise ConfigError(
                f"the profile {self.name} packages runs of the replay engine only",
                where=f"--engine {engine}",
                expected=f"--engine {REPLAY}",
                hint="delete --engine, or use another profile",
            )

    def check_duration(self, conf: UserConf, model: str, scenario: str, round_: Round, where: Path) -> None:
        """A profile that leaves the duration to user.conf is held to the round's."""
        value = conf.lookup(model, scenario, "min_duration")
        if self.min_duration_ms is None and value is not None and value < round_.min_duration_ms:
            raise ConfigError(
                "min_duration is below what the round demands",
                where=f"{where}: {scenario}.min_duration",
                expected=f"at least {round_.min_duration_ms} ms",
                found=f"{value} ms",
                hint="delete the line, or use --profile smoke",
            )


def load_profile(name: str, workspace: Workspace) -> Profile:
    """The profile called `name`."""
    profiles = read_yaml(workspace.benchmarks / "profiles.yaml")
    if name not in profiles:
        raise ConfigError(f"there is no profile {name}", expected=", ".join(profiles))
    return Profile(name=name, **profiles[name])
