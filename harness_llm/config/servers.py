"""The kinds of servers, `servers.yaml`, and the commands that start them."""

import functools
import json
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ConfigDict

HOST = "127.0.0.1"
MODELS = "/v1/models"
FLAGS = "{flags}"
"""Place holder of a command: all of llm_config as vLLM's command line has it."""
THIS_PYTHON = "{python}"
"""Place holder of a command: the interpreter of this environment, whose packages the server then uses."""
# Not passed to vLLM's server, which keeps statistics by default: the flag exists only to turn them off.
_KEPT = ("disable_log_stats",)
_DEFAULTS = {"tensor_parallel_size": 1}


class Figure(BaseModel):
    """Where a figure is on a metrics page: the value of `metric`, or of one of its labels."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    metric: str
    label: str = ""


class ServerKind(BaseModel):
    """How servers of one kind are started, asked, and held to the rules; see servers.yaml.

    Attributes:
        command: empty where there is none that fits every model.
        options: content of the file that `{options}` names, YAML.
        version: a page with its version, as `{"version": …}`; empty where none is documented.
        counters: names of the server's own counters by what they count.
        kv_cache: figures by field of KvCache; empty where none are documented.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    command: str
    options: dict[str, Any] = {}
    health: str
    request: dict[str, Any]
    version: str
    metrics: str
    counters: dict[str, tuple[str, ...]]
    kv_cache: dict[str, Figure] = {}


@functools.cache
def server_kinds() -> dict[str, ServerKind]:
    """All kinds by name."""
    table = yaml.safe_load(Path(__file__).with_name("servers.yaml").read_text())
    return {name: ServerKind.model_validate(facts) for name, facts in table.items()}


def flags(llm_config: Mapping[str, Any]) -> list[str]:
    """Engine arguments as `vllm serve` takes them."""
    words: list[str] = []
    for name, value in llm_config.items():
        flag = name.replace("_", "-")
        if name in _KEPT or value is None:
            continue
        if isinstance(value, bool):
            words.append(f"--{flag}" if value else f"--no-{flag}")
        elif isinstance(value, dict):
            words += [f"--{flag}", json.dumps(value)]
        elif isinstance(value, list):
            words += [f"--{flag}", *map(str, value)]
        else:
            words += [f"--{flag}", str(value)]
    return words


def command_line(
    template: str,
    checkpoint: str,
    llm_config: Mapping[str, Any],
    *,
    port: int,
    options: Path,
    program: Sequence[str] = (),
) -> list[str]:
    """The words of a command: each place holder of `template` filled, quotes as a shell has them.

    Raises:
        KeyError: the template names what llm_config does not have.
    """
    whole = {FLAGS: flags(llm_config), "{program}": list(program)}
    places = {"python": sys.executable, "checkpoint": checkpoint, "host": HOST, "port": port, "options": options}
    values = {**_DEFAULTS, **llm_config, **places}
    words: list[str] = []
    for word in shlex.split(template):
        words += whole[word] if word in whole else [word.format_map(values)]
    return words
