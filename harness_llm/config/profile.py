"""Profiles, models/profiles.yaml: numbers of samples and durations of runs."""

import math
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from harness_llm.config.commands import command, name_of, typed
from harness_llm.config.engines import REPLAY
from harness_llm.config.rules import Round
from harness_llm.config.submission_names import VALID
from harness_llm.config.user_conf import UserConf
from harness_llm.errors import ConfigError
from harness_llm.fileio import read_yaml
from harness_llm.paths import Workspace


class Profile(BaseModel):
    """One profile; None means the number of user.conf or the benchmark.

    Attributes:
        samples: number of samples of the data set, from the first; below 1, a share of it.
        min_duration_ms: of a performance run.
        enforce_accuracy: whether an accuracy run under its gate is INVALID.
        probe_s: limit of the probe before the measurement, in seconds; 0 for no probe.
        packaged: whether trees are made of the runs; not where LoadGen's early stopping needs more queries.
        rehearsed: whether the replay engine runs on generated data; such runs are never submittable.
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
        """Whether the runs comply with the rules: no number is lowered."""
        whole = self.samples is None and self.min_duration_ms is None
        return whole and self.enforce_accuracy and not self.rehearsed

    @property
    def label(self) -> str:
        """The profile's name in trees; only submittable profiles have the name `valid`."""
        if self.submittable:
            return VALID
        return self.name if self.name != VALID else f"{VALID}-lowered"

    def sample_count(self, official: int, requested: int | None = None) -> int:
        """Samples of a run on a data set of `official` samples; `requested` is --total-sample-count."""
        own = self.samples or official
        return min(requested or math.ceil(own if own >= 1 else own * official), official)

    def user_conf(self, conf: UserConf, model: str, scenario: str, samples: int, official: int) -> UserConf:
        """The user.conf of one run: the submitter's targets with the numbers of this profile.

        Args:
            model, scenario: LoadGen's names.
            official: the size of the data set, which LoadGen has built in.
        """
        overrides: dict[str, int | float] = {}
        if self.min_duration_ms is not None:
            overrides["min_duration"] = self.min_duration_ms
        if samples != official:
            overrides["performance_sample_count_override"] = samples
            # LoadGen extends SingleStream to the end of the pass after this count.
            overrides["min_query_count"] = 1 if scenario == "SingleStream" else samples
        return conf.for_run(model, scenario, overrides)

    def check_engine(self, engine: str) -> None:
        """Check that the replay engine is packaged only with a rehearsed profile, and no other engine with it.

        Raises:
            ConfigError: `engine` does not fit the profile.
        """
        if engine == REPLAY and not self.rehearsed:
            raise ConfigError(
                "the replay engine computes nothing, so its runs are not packaged",
                where=typed(engine=REPLAY),
                hint=f"{command('run')} measures with it; {typed(profile='rehearsal')} makes a tree, not submittable",
            )
        if self.rehearsed and engine != REPLAY:
            raise ConfigError(
                f"the profile {self.name} packages runs of the replay engine only",
                where=typed(engine=engine),
                expected=typed(engine=REPLAY),
                hint=f"delete {name_of('engine')}, or use another profile",
            )

    def check_duration(self, conf: UserConf, model: str, scenario: str, round_: Round, where: Path) -> None:
        """Check min_duration of user.conf, if the profile uses it.

        Raises:
            ConfigError: it is shorter than the round requires.
        """
        value = conf.lookup(model, scenario, "min_duration")
        if self.min_duration_ms is None and value is not None and value < round_.min_duration_ms:
            raise ConfigError(
                "min_duration is shorter than the round requires",
                where=f"{where}: {scenario}.min_duration",
                expected=f"at least {round_.min_duration_ms} ms",
                found=f"{value} ms",
                hint=f"delete the line, or use {typed(profile='smoke')}",
            )


def load_profile(name: str, workspace: Workspace) -> Profile:
    """The profile called `name`.

    Raises:
        ConfigError: unknown profile.
    """
    profiles = read_yaml(workspace.benchmarks / "profiles.yaml")
    if name not in profiles:
        raise ConfigError(f"unknown profile {name}", where=name_of("profile"), expected=", ".join(profiles))
    return Profile(name=name, **profiles[name])
