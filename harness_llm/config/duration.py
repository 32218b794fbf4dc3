"""Durations of the command line: 30s, 5m, 2h, or a number of seconds."""

import re

from harness_llm.errors import ConfigError

_SECONDS = {"": 1, "s": 1, "m": 60, "h": 3600}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*([smh]?)")


def parse_duration(text: str, where: str) -> float:
    """Return the seconds of `text`, the value of the option `where`.

    Raises:
        ConfigError: it is no positive duration.
    """
    found = _DURATION.fullmatch(text.strip())
    seconds = float(found[1]) * _SECONDS[found[2]] if found else 0.0
    if seconds <= 0:
        raise ConfigError("invalid duration", where=where, expected="a duration such as 30s, 5m or 2h", found=text)
    return seconds
