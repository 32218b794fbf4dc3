"""Kinds of servers, `servers.yaml`, and their command lines."""

import functools
import json
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

from harness_llm.fileio import read_yaml

HOST = "127.0.0.1"
MODELS = "/v1/models"
FLAGS = "{flags}"
"""Placeholder in a command: llm_config as options of vLLM's command line."""
THIS_PYTHON = "{python}"
"""Placeholder in a command: the Python interpreter of this environment."""
# Not passed to vLLM's server: statistics are the default, and the flag only disables them.
_OMITTED = ("disable_log_stats",)
_DEFAULTS = {"tensor_parallel_size": 1}


class Figure(BaseModel):
    """A metric on a metrics page: the value of `metric`, or of its `label`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    metric: str
    label: str = ""


class ServerKind(BaseModel):
    """Command, API and metrics of one kind of server; see servers.yaml.

    Attributes:
        command: empty if no command fits every model.
        options: content of the YAML file `{options}`.
        version: page with the version, `{"version": …}`; empty if none is documented.
        counters: names of the server's counters, by their subject.
        kv_cache: metrics by field of KvCache; empty if none are documented.
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

    def unproven(self, *, running: bool) -> list[str]:
        """The proofs that closed requires and servers of this kind do not report.

        Args:
            running: whether the server runs before the submission, so that its version is not that of a package here.
        """
        found = [] if self.metrics and self.counters.get("cache_hits") else ["counters of cache hits"]
        return found + (["version"] if running and not self.version else [])


@functools.cache
def server_kinds() -> dict[str, ServerKind]:
    """All kinds by name."""
    table = read_yaml(Path(__file__).with_name("servers.yaml"))
    return {name: ServerKind.model_validate(facts) for name, facts in table.items()}


def flags(llm_config: Mapping[str, Any]) -> list[str]:
    """Engine arguments as options of `vllm serve`."""
    words: list[str] = []
    for name, value in llm_config.items():
        flag = name.replace("_", "-")
        if name in _OMITTED or value is None:
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
    """The arguments of a command: `template` with placeholders filled in, split as by a shell.

    Raises:
        KeyError: the template has a placeholder that llm_config lacks.
    """
    whole = {FLAGS: flags(llm_config), "{program}": list(program)}
    places = {"python": sys.executable, "checkpoint": checkpoint, "host": HOST, "port": port, "options": options}
    values = {**_DEFAULTS, **llm_config, **places}
    words: list[str] = []
    for word in shlex.split(template):
        words += whole[word] if word in whole else [word.format_map(values)]
    return words
