"""Where things stand in a checkout."""

import datetime as dt
import os
from dataclasses import dataclass, field
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parent.parent
ENVIRONMENTS = Path(os.environ.get("HARNESS_LLM_ENVIRONMENTS") or CHECKOUT)
"""Where the virtual environments lie; in a container apart from the checkout."""
ROOT_VARIABLE = "HARNESS_LLM_WORKSPACE"
MODELS_VARIABLE = "LAB_MODEL"
DATA_VARIABLE = "LAB_DATASET"
SCRATCH_VARIABLE = "MLPERF_SCRATCH_PATH"


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
    def build(self) -> Path:
        """What is made here, runs among it."""
        return self.root / "build"

    @property
    def logs(self) -> Path:
        """All runs, `<UTC time>/<system>/<benchmark>/<scenario>/<test>/`."""
        return self.build / "logs"

    @property
    def models(self) -> Path:
        """Checkpoints, one folder each; LAB_MODEL names another place, MLPERF_SCRATCH_PATH the folder above it."""
        return self._large(MODELS_VARIABLE, "models")

    @property
    def data(self) -> Path:
        """Data sets and reference answers, one folder per benchmark; placed elsewhere as the models are."""
        return self._large(DATA_VARIABLE, "data")

    def _large(self, variable: str, name: str) -> Path:
        above = os.environ.get(SCRATCH_VARIABLE) or self.build
        return Path(os.environ.get(variable) or Path(above, name)).resolve()

    @property
    def inference(self) -> Path:
        """Where `make build` puts a checkout of mlcommons/inference."""
        return self.build / "inference"

    def stage_log(self, name: str) -> Path:
        """What a stage of the preparation says on standard error."""
        return self.build / "assets" / f"{name}.log"

    @property
    def cache(self) -> Path:
        """What libraries would otherwise cache in the home directory."""
        return self.build / "cache"

    @property
    def submission(self) -> Path:
        """Where finished trees land."""
        return self.root / "submission"

    @property
    def systems(self) -> Path:
        """`<SYSTEM_NAME>.yaml`: what cannot be detected of a system."""
        return self.submission / "systems"


def log_folder(logs: Path, started: dt.datetime, system: str, benchmark: str) -> Path:
    """Where the submission that started at `started` keeps the runs of `benchmark`, `<scenario>/<test>/`."""
    return logs / f"{started:%Y%m%dT%H%M%SZ}" / system / benchmark
