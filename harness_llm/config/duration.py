"""Durations of the command line: 30s, 90m, 1h30m, or a number of seconds."""

import re

from harness_llm.errors import ConfigError

_NUMBER = r"(\d+(?:\.\d+)?)"
_DURATION = re.compile(rf"(?:{_NUMBER}h)?(?:{_NUMBER}m)?(?:{_NUMBER}s?)?")


def parse_duration(text: str, where: str) -> float:
    """Return the seconds of `text`, the value of the option `where`.

    Raises:
        ConfigError: it is no positive duration.
    """
    found = _DURATION.fullmatch(text.strip())
    parts = [float(part or 0) for part in found.groups()] if found else []
    seconds = sum(part * unit for part, unit in zip(parts, (3600, 60, 1), strict=False))
    if seconds <= 0:
        raise ConfigError("invalid duration", where=where, expected="a duration such as 30s, 90m or 1h30m", found=text)
    return seconds
