"""Commands and options in messages, as the user types them: those of make for its users, else those of harness-llm."""

import os
import shlex
import sys
from pathlib import Path
from typing import Any

from harness_llm.config.options import Options, arguments, declared_options, option_name, text_of
from harness_llm.paths import CHECKOUT, IMAGE_VARIABLE

MAKE_VARIABLE = "HARNESS_LLM_MAKE"
"""Set by the Makefile for its commands, also in containers."""
TARGETS = {
    "submit": "submission",
    "prepare": "submission",
    "package": "submission",
    "doctor": "doctor",
    "download": "download",
}
"""The target of make that does what a command of harness-llm does; `make submission` prepares and packages too."""
SETTINGS = {name: d.variable or d.always_read for name, (_, d) in declared_options().items()} | {"part": "PART"}
"""The setting of make of each option, by field; empty without one."""


def command(verb: str, *words: str, **options: Any) -> str:
    """Return the command line that this user types for `harness-llm VERB WORDS OPTIONS`.

    Args:
        options: by name, with underscores.
    """
    if _is_make() and verb in TARGETS and not words and all(SETTINGS.get(name) for name in options):
        return " ".join(["make", TARGETS[verb], *(_setting(name, value) for name, value in options.items())])
    return f"{_program()} {shlex.join([verb, *words, *arguments(options)])}"


def command_line(verb: str, *words: str, **options: Any) -> str:
    """Return the command line of harness-llm, for files that others read."""
    return shlex.join(["harness-llm", verb, *words, *arguments(options)])


def repeat(options: Options, *scenarios: str, verb: str = "submit", **more: Any) -> str:
    """Return the command line of this user that repeats all tests of `scenarios`, or of all; with options `more`."""
    return command(verb, **options.repeatable(*scenarios).given, **more)


def typed(**options: Any) -> str:
    """Return the options, or settings of make, that set `options`."""
    return " ".join(
        _setting(name, value) if _is_make() and SETTINGS.get(name) else shlex.join(arguments({name: value}))
        for name, value in options.items()
    )


def name_of(field: str) -> str:
    """Return the name of the option, or of make's setting."""
    setting = SETTINGS.get(field) if _is_make() else ""
    return setting or option_name(field)


def engine_setting(key: str, value: object) -> str:
    """Return what sets `section.key` of the engine settings; make has no setting for them."""
    return f"{key}: {value} in models/<benchmark>/<gpu>.yaml" if _is_make() else typed(set=f"{key}={value}")


def _is_make() -> bool:
    return bool(os.environ.get(MAKE_VARIABLE))


def _setting(name: str, value: object) -> str:
    return f"{SETTINGS[name]}={shlex.quote('1' if value is True else text_of(value))}"


def _program() -> str:
    """The program; make's users need not have it on PATH."""
    if not _is_make():
        return "harness-llm"
    if os.environ.get(IMAGE_VARIABLE):
        return "bash setup/start_submission_env.sh harness-llm"
    return os.path.relpath(Path(sys.executable).parent / "harness-llm", CHECKOUT)
