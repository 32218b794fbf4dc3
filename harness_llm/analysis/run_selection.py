"""Conditions, order and number of the rows of `harness-llm runs`."""

import operator
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from fnmatch import fnmatch
from typing import Any

from harness_llm.analysis.run_row import RunRow
from harness_llm.errors import ConfigError

NAMES = tuple(field.name for field in fields(RunRow))
_NUMBERS = {field.name for field in fields(RunRow) if field.type == float | None}
_CONDITION = re.compile(r"\s*(\w+)\s*(!=|>=|<=|=|>|<)\s*(.*?)\s*")
_ORDERED: dict[str, Callable[[Any, Any], bool]] = {
    ">": operator.gt,
    "<": operator.lt,
    ">=": operator.ge,
    "<=": operator.le,
}


@dataclass(frozen=True)
class Condition:
    """`name`, operator and value; `=` and `!=` compare text without case, and `*` matches any text."""

    name: str
    operator: str
    value: str

    def holds(self, row: RunRow) -> bool:
        """Whether `row` meets the condition; a missing number meets only `!=`."""
        found = getattr(row, self.name)
        if found is None:
            return self.operator == "!="
        if self.operator in _ORDERED:
            wanted = float(self.value) if self.name in _NUMBERS else self.value
            return _ORDERED[self.operator](found, wanted)
        equal = found == float(self.value) if self.name in _NUMBERS else fnmatch(found.lower(), self.value.lower())
        return equal == (self.operator == "=")


def parse_condition(text: str) -> Condition:
    """Read a condition such as `state=INVALID` or `tokens_per_second>=1000`.

    Raises:
        ConfigError: it is no condition, or its field or number is wrong.
    """
    found = _CONDITION.fullmatch(text)
    if not found:
        raise ConfigError("invalid --where", expected="FIELD=VALUE, or with != > < >= <=", found=text)
    condition = Condition(_require_name(found[1], "--where"), found[2], found[3])
    if condition.name in _NUMBERS:
        try:
            float(condition.value)
        except ValueError as error:
            raise ConfigError("invalid --where", expected=f"{condition.name}: a number", found=text) from error
    return condition


def _require_name(name: str, option: str) -> str:
    if name not in NAMES:
        raise ConfigError(f"unknown field {name}", where=option, expected=", ".join(NAMES))
    return name


def choose(rows: Sequence[RunRow], conditions: Sequence[str], order: str, last: int | None) -> list[RunRow]:
    """The `last` newest of the rows that meet all `conditions`, in the `order` of a field, or `-FIELD` descending.

    Rows without the field are last.

    Raises:
        ConfigError: a condition or the order is wrong.
    """
    name = _require_name(order.removeprefix("-"), "--sort")
    parsed = [parse_condition(text) for text in conditions]
    chosen = [row for row in rows if all(condition.holds(row) for condition in parsed)]
    chosen = sorted(chosen, key=lambda row: row.started)[-last if last else 0 :]
    present = [row for row in chosen if getattr(row, name) is not None]
    absent = [row for row in chosen if getattr(row, name) is None]
    return sorted(present, key=operator.attrgetter(name), reverse=order.startswith("-")) + absent
