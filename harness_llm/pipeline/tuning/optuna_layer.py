"""Optuna, an optional layer of the environments, which is installed on first use."""

import importlib
import importlib.util
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from harness_llm.errors import EnvironmentMissing
from harness_llm.paths import CHECKOUT

_LAYERS = ("engine", "optuna")


def require_optuna(say: Callable[[str], None]) -> None:
    """Install Optuna into this environment, unless it is installed.

    Raises:
        EnvironmentMissing: the installation failed, or this interpreter is not one of the checkout's environments.
    """
    if importlib.util.find_spec("optuna"):
        return
    say("installing Optuna, which the search of engine settings needs")
    script = CHECKOUT / "setup" / "environments.sh"
    made = subprocess.run([str(script), "here", *_LAYERS], stdout=subprocess.PIPE, text=True, check=False)
    importlib.invalidate_caches()
    if made.returncode or not importlib.util.find_spec("optuna"):
        raise EnvironmentMissing(
            "missing package optuna",
            where=str(Path(sys.prefix)),
            expected="the environment of the checkout, or an environment with optuna",
            found=f"exit code {made.returncode} of setup/environments.sh" if made.returncode else made.stdout.strip(),
            hint=f"setup/environments.sh here {' '.join(_LAYERS)}",
        )
