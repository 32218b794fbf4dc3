"""Which LoadGen a run uses: each round has its own, in a folder of its own.

All are the module mlperf_loadgen with the seeds of a round compiled in, so the folder stands first on the path of the
LoadGen process, and of no other. setup/environments.py puts them there.
"""

import importlib.metadata
import sys
from pathlib import Path

from harness_llm.errors import EnvironmentMissing
from harness_llm.rules import Round


def loadgen_folder(round_: Round) -> Path:
    """The folder in this virtual environment that holds the round's LoadGen.

    Raises:
        EnvironmentMissing: it is not there, or holds another version.
    """
    rules = round_.loadgen
    folder = Path(sys.prefix) / "loadgen" / rules.version
    found = [d.version for d in importlib.metadata.distributions(name=rules.package, path=[str(folder)])]
    if found != [rules.version]:
        raise EnvironmentMissing(
            f"the LoadGen of round {round_.round} is not installed",
            where=str(folder),
            expected=f"{rules.package} {rules.version}",
            found=", ".join(found) or "none",
            hint="make setup",
        )
    return folder


def loadgen_version(round_: Round) -> str:
    """The version of the round's LoadGen; raises as `loadgen_folder` does."""
    return loadgen_folder(round_).name
