"""The command of a run, as recorded in run.json, with changed options."""

import shlex
from typing import Any

from harness_llm.config.options import arguments, option_name
from harness_llm.runs.record import RunRecord


def recorded_command(record: RunRecord, verb: str, **changes: Any) -> str:
    """Return the command line `harness-llm VERB` with the options of the run; `changes` replace or follow them."""
    program, _, *words = shlex.split(record.command)
    replaced = {option_name(name) for name in changes}
    values = {number + 1 for number, word in enumerate(words) if word in replaced}
    kept = [word for number, word in enumerate(words) if word not in replaced and number not in values]
    return shlex.join([program, verb, *kept, *arguments(changes)])
