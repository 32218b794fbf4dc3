"""The documented ways to start one submission: make, harness-llm and scripts, with the same settings."""

import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from terminal import Ended, Terminal

from harness_llm.paths import CHECKOUT

RUNS = 6
PROGRAM = str(Path(sys.executable).with_name("harness-llm"))
SETUP_SCRIPT = "setup/harness_llm.sh"  # the scripts of setup/ and submission/ call it
DEFAULTS = {"PROFILE": "smoke", "GPU_NAME": "cpu", "ENGINE": "vllm", "SCENARIOS": "Offline,Server"}


@dataclass(frozen=True)
class Way:
    """A command.

    Attributes:
        words: program and arguments.
        environ: exported variables.
        folder: where the command is typed.
    """

    words: tuple[str, ...]
    environ: Mapping[str, str] = field(default_factory=dict)
    folder: Path = CHECKOUT

    def run(self, terminal: Terminal, **environ: str) -> Ended:
        """Run it with the variables of a login shell and `environ`."""
        return terminal.as_user(*self.words, folder=self.folder, **self.environ, **environ)

    def plan(self, terminal: Terminal, **environ: str) -> str:
        """The output of a command that plans."""
        ended = self.run(terminal, **environ)
        assert ended.code == 0, ended.err
        return ended.out + ended.err


def typed(settings: Mapping[str, str]) -> tuple[str, ...]:
    """Settings on make's command line."""
    return tuple(f"{name}={value}" for name, value in settings.items())


def options(settings: Mapping[str, str]) -> list[str]:
    """Options of harness-llm for the settings of make."""
    names = {"STAND_IN": "stand-in", "GPU_NAME": "gpu"}
    pairs = [(names.get(name, name.lower().replace("_", "-")), value) for name, value in settings.items()]
    return [f"--{name}" if name == "stand-in" else f"--{name}={value}" for name, value in pairs]


def without_model(settings: Mapping[str, str]) -> dict[str, str]:
    """Settings of a script of submission/, which has the name of a model."""
    return {name: value for name, value in settings.items() if name != "MODEL"}


def plans(settings: Mapping[str, str], scratch: Path) -> dict[str, Way]:
    """Commands that plan the submission of `settings` and start nothing; `scratch` is another folder."""
    turned = dict(reversed(settings.items()))
    one, others = dict([*settings.items()][:1]), dict([*settings.items()][1:])
    caches = {name: str(scratch / name) for name in ("HF_HOME", "XDG_CACHE_HOME", "TRITON_HOME", "TRITON_CACHE_DIR")}
    submit = ("submit", "--dry-run")
    return {
        "make": Way(("make", "status", *typed(settings))),
        "make, exported settings": Way(("make", "status"), settings),
        "make, some settings exported": Way(("make", "status", *typed(others)), one),
        "make, another order and folder": Way(("make", "-C", str(CHECKOUT), *typed(turned), "status"), folder=scratch),
        "make, defaults": Way(("make", "status", *typed(settings | DEFAULTS))),
        "make, other caches": Way(("make", "status", *typed(settings)), caches),
        "harness-llm": Way((PROGRAM, *submit, *options(settings))),
        "harness-llm, another order and folder": Way(
            (PROGRAM, "submit", *options(turned), "--dry-run"), folder=scratch
        ),
        "harness-llm, defaults": Way((PROGRAM, *submit, *options(settings | DEFAULTS))),
        "harness-llm, exported settings": Way((PROGRAM, *submit, "--environment"), settings),
        "harness-llm status": Way((PROGRAM, "status", *options(settings))),
        "script of setup": Way(("sh", SETUP_SCRIPT, *submit, *options(settings))),
    }


def scripts(settings: Mapping[str, str], script: str, scratch: Path) -> dict[str, Way]:
    """Plans of a script of submission/, as `plans`."""
    own = without_model(settings)
    command = ("sh", f"submission/{script}", "--dry-run")
    elsewhere = ("bash", str(CHECKOUT / "submission" / script), *options(own), "--dry-run")
    return {"script": Way(command, own), "script, options, another folder": Way(elsewhere, folder=scratch)}


def done(plan: str) -> int:
    """The number of finished runs in the output of `submit --dry-run` or of `status`."""
    return len(re.findall(r"^ +\w+ +\w+ +done$", plan, re.MULTILINE)) + len(re.findall(r"\bVALID(?! but)", plan))


def refused(plan: str, difference: str) -> int:
    """The number of VALID runs of a plan that are not done because of `difference` alone."""
    line = rf"VALID but not equal to a run made now: {re.escape(difference)}\)?$"
    return len(re.findall(line, plan, re.MULTILINE))
