"""LoadGen versions: each round has its own, in its own folder.

Each is a module mlperf_loadgen with the round's seeds compiled in. The folder is the first entry of the Python path of
LoadGen's process only. setup/environments.py installs them.
"""

import importlib.metadata
import sys
from pathlib import Path

from harness_llm.config.rules import Round
from harness_llm.errors import EnvironmentMissing
from harness_llm.paths import installed_by


def loadgen_folder(round_: Round) -> Path:
    """Return the folder in this virtual environment that contains the round's LoadGen.

    Raises:
        EnvironmentMissing: it is not installed, or is another version.
    """
    rules = round_.loadgen
    folder = Path(sys.prefix) / "loadgen" / rules.version
    found = [d.version for d in importlib.metadata.distributions(name=rules.package, path=[str(folder)])]
    if found != [rules.version]:
        raise EnvironmentMissing(
            f"LoadGen of round {round_.round} is not installed",
            where=str(folder),
            expected=f"{rules.package} {rules.version}",
            found=", ".join(found) or "none",
            hint=installed_by("setup"),
        )
    return folder


def loadgen_version(round_: Round) -> str:
    """Return the version of the round's LoadGen; raises as `loadgen_folder` does."""
    return loadgen_folder(round_).name
