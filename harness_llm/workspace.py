"""Where things stand in a checkout."""

import os
from dataclasses import dataclass, field
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parent.parent
ROOT_VARIABLE = "HARNESS_LLM_WORKSPACE"
MODELS_VARIABLE = "LAB_MODEL"
DATA_VARIABLE = "LAB_DATASET"


def default_root() -> Path:
    """The checkout, unless HARNESS_LLM_WORKSPACE names another folder with the same layout."""
    return Path(os.environ.get(ROOT_VARIABLE) or CHECKOUT).resolve()


@dataclass(frozen=True)
class Workspace:
    """The folders of one checkout; everything the program writes lies under `build/` and `submission/`."""

    root: Path = field(default_factory=default_root)

    @property
    def benchmarks(self) -> Path:
        """One folder per benchmark: what it is and how to run it."""
        return self.root / "models"

    @property
    def user_confs(self) -> Path:
        """The LoadGen targets that a submitter edits, `user_<gpu>.conf`."""
        return self.root / "code"

    @property
    def logs(self) -> Path:
        """All runs, `<UTC time>/<system>/<benchmark>/<scenario>/<test>/`."""
        return self.root / "build" / "logs"

    @property
    def models(self) -> Path:
        """Checkpoints, one folder each; LAB_MODEL names another place."""
        return Path(os.environ.get(MODELS_VARIABLE) or self.root / "build" / "models").resolve()

    @property
    def data(self) -> Path:
        """Data sets and reference answers, one folder per benchmark; LAB_DATASET names another place."""
        return Path(os.environ.get(DATA_VARIABLE) or self.root / "build" / "data").resolve()

    def stage_log(self, name: str) -> Path:
        """What a stage of the preparation says on standard error."""
        return self.root / "build" / "assets" / f"{name}.log"

    @property
    def cache(self) -> Path:
        """What libraries would otherwise cache in the home directory."""
        return self.root / "build" / "cache"

    @property
    def submission(self) -> Path:
        """Where finished trees land."""
        return self.root / "submission"

    @property
    def systems(self) -> Path:
        """`<SYSTEM_NAME>.yaml`: what cannot be detected of a system."""
        return self.submission / "systems"
