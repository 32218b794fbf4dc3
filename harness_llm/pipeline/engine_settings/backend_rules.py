"""Combinations of settings that vLLM's backends reject: `backend_rules.yaml`."""

import functools
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, TypeAdapter

from harness_llm.config.engine_facts import Facts
from harness_llm.fileio import read_yaml

_FILE = Path(__file__).with_name("backend_rules.yaml")


class Rule(BaseModel):
    """A combination of engine facts that a backend rejects.

    Attributes:
        when: values of each fact; the rule applies if all facts match.
        source: file of vLLM that rejects the combination.
        setting: key and value that correct it.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    level: Literal["error", "warning"]
    when: dict[str, tuple[Any, ...]]
    source: str
    found: str
    expected: str
    setting: tuple[str, str]


@functools.cache
def load_rules() -> tuple[Rule, ...]:
    """Load all rules, in the order of the file."""
    return TypeAdapter(tuple[Rule, ...]).validate_python(read_yaml(_FILE))


def broken_rules(facts: Facts) -> list[Rule]:
    """Rules that `facts` break."""
    found = asdict(facts)
    return [rule for rule in load_rules() if all(found[name] in values for name, values in rule.when.items())]
