"""Folders of a checkout."""

import datetime as dt
import os
from dataclasses import dataclass, field
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parent.parent
ENVIRONMENTS = Path(os.environ.get("HARNESS_LLM_ENVIRONMENTS") or CHECKOUT)
"""Folder of the virtual environments; in a container it is outside the checkout."""
ROOT_VARIABLE = "HARNESS_LLM_WORKSPACE"
MODELS_VARIABLE = "LAB_MODEL"
DATA_VARIABLE = "LAB_DATASET"
SCRATCH_VARIABLE = "MLPERF_SCRATCH_PATH"
IMAGE_VARIABLE = "HARNESS_LLM_IMAGE"
"""Set in containers to the name of the image."""
LOG_TIME = "%Y%m%dT%H%M%SZ"
"""Name of the folder of all runs of a submission: when it started, in UTC."""


def installed_by(target: str) -> str:
    """The command that installs what make's `target` installs; in a container, the build of its image."""
    image = os.environ.get(IMAGE_VARIABLE)
    return f"on the host: bash setup/build_{image}_env.sh" if image else f"make {target}"


def default_root() -> Path:
    """The checkout, or the folder with the same layout that HARNESS_LLM_WORKSPACE names."""
    return Path(os.environ.get(ROOT_VARIABLE) or CHECKOUT).resolve()


@dataclass(frozen=True)
class Workspace:
    """The folders of a checkout; harness-llm writes only to `build/` and `submission/`."""

    root: Path = field(default_factory=default_root)

    @property
    def benchmarks(self) -> Path:
        """One folder per benchmark, with its definition and engine settings."""
        return self.root / "models"

    @property
    def user_confs(self) -> Path:
        """LoadGen targets, `user_<gpu>.conf`, which the submitter edits."""
        return self.root / "code"

    @property
    def build(self) -> Path:
        """Runs, models, data, logs and caches."""
        return self.root / "build"

    @property
    def logs(self) -> Path:
        """All runs, `<UTC time>/<system>/<benchmark>/<scenario>/<test>/`."""
        return self.build / "logs"

    def run_folder(self, name: Path) -> Path:
        """The folder `name`, or the one of that name below `logs` if there is only that."""
        below = self.logs / name
        return below if below.is_dir() and not name.exists() else name

    @property
    def tuning(self) -> Path:
        """Tuning sessions, `<session>/`."""
        return self.build / "tuning"

    @property
    def models(self) -> Path:
        """Checkpoints; LAB_MODEL replaces this folder, MLPERF_SCRATCH_PATH its parent."""
        return self._large(MODELS_VARIABLE, "models")

    @property
    def data(self) -> Path:
        """Data sets and reference answers; LAB_DATASET replaces this folder, MLPERF_SCRATCH_PATH its parent."""
        return self._large(DATA_VARIABLE, "data")

    def _large(self, variable: str, name: str) -> Path:
        above = os.environ.get(SCRATCH_VARIABLE) or self.build
        return Path(os.environ.get(variable) or Path(above, name)).resolve()

    @property
    def inference(self) -> Path:
        """The checkout of mlcommons/inference that `make build` makes."""
        return self.build / "inference"

    def stage_log(self, name: str) -> Path:
        """Standard error of a stage of the preparation."""
        return self.stage_logs / f"{name}.log"

    @property
    def stage_logs(self) -> Path:
        """Logs of the preparation and of queries of a Ray cluster."""
        return self.build / "assets"

    @property
    def official(self) -> Path:
        """Outputs of the official accuracy scripts, by the digests of their inputs."""
        return self.build / "official"

    @property
    def scoring(self) -> Path:
        """Temporary folders of accuracy scripts, which the scoring service's containers mount."""
        return self.build / "scoring"

    @property
    def containers(self) -> Path:
        """Logs of image builds and stages, and files that containers mount."""
        return self.build / "containers"

    @property
    def cache(self) -> Path:
        """Caches of libraries, which are in the home directory by default."""
        return self.build / "cache"

    @property
    def submission(self) -> Path:
        """Finished trees."""
        return self.root / "submission"

    @property
    def systems(self) -> Path:
        """`<SYSTEM_NAME>.yaml`: the facts of a system that cannot be detected."""
        return self.submission / "systems"


def log_folder(logs: Path, started: dt.datetime, system: str, benchmark: str) -> Path:
    """The folder of the runs of `benchmark` in a submission that started at `started`, `<scenario>/<test>/`."""
    return logs / f"{started:{LOG_TIME}}" / system / benchmark
