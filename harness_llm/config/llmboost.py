"""LLMBoost's program: on PATH, as in MangoBoost's containers, or in the wheel of LLMBOOST_WHEEL.

Not tested with the wheel, which is not public.
"""

import importlib.metadata
import os
import shutil
import sys
import zipfile
from pathlib import Path

from harness_llm.errors import EnvironmentMissing

PROGRAM = "llmboost"
WHEEL_VARIABLE = "LLMBOOST_WHEEL"

_SCRIPT = """\
import sys

sys.path.insert(0, {folder!r})
from {module} import {attribute}

if __name__ == "__main__":
    sys.exit({attribute}())
"""


def find_wheel() -> Path | None:
    """The wheel; None if the program is on PATH instead.

    Raises:
        EnvironmentMissing: both are missing.
    """
    named = os.environ.get(WHEEL_VARIABLE, "")
    if named and Path(named).is_file():
        return Path(named)
    if not named and shutil.which(PROGRAM):
        return None
    raise EnvironmentMissing(
        "LLMBoost is not installed",
        where=WHEEL_VARIABLE,
        expected="the path of LLMBoost's wheel, or the program llmboost on PATH",
        found=named or "neither",
        hint=f"{WHEEL_VARIABLE}=/path/to/llmboost-….whl; MangoBoost's customers get it",
    )


def llmboost_program(folder: Path) -> list[str]:
    """The program and first arguments of LLMBoost's command line; a wheel is unpacked in `folder`."""
    wheel = find_wheel()
    if wheel is None:
        return [PROGRAM]
    target = folder / PROGRAM
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(target)
    (distribution,) = importlib.metadata.distributions(path=[str(target)])
    scripts = distribution.entry_points.select(group="console_scripts", name=PROGRAM)
    if not scripts:
        raise EnvironmentMissing(f"the wheel has no program {PROGRAM}", where=str(wheel))
    (entry,) = scripts
    script = folder / "llmboost.py"
    script.write_text(_SCRIPT.format(folder=str(target), module=entry.module, attribute=entry.attr))
    return [sys.executable, str(script)]
