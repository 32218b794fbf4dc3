"""Options as tests write them."""

from dataclasses import replace
from typing import Any

from harness_llm.config.options import Options, split_names
from harness_llm.config.request import load_request
from harness_llm.paths import Workspace


def options(**values: Any) -> Options:
    """Options of `values`, with scenarios and tests as one text, as on the command line."""
    for name in ("scenarios", "tests"):
        if isinstance(values.get(name), str):
            values[name] = split_names(values[name])
    if "set" in values:
        values["set"] = tuple(values["set"])
    return replace(Options(), **values)


def filled(workspace: Workspace | None = None, **values: Any) -> Options:
    """`options` with all defaults."""
    return load_request(options(**values), workspace or Workspace()).options
