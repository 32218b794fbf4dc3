"""Numbers, times and margins in words, the same in titles, tables and descriptions."""

import datetime as dt
import math

_WHOLE, _FOUR_DIGITS = 1000, 100
_MINUTE, _HOUR = 60, 3600
ABSENT = "\N{EN DASH}"
NEAR = 0.02
"""Margin to a limit below which a repeat may miss it."""


def number(value: float | None) -> str:
    """`value` with three digits, from 100 on four, from 1000 on whole, with commas; a dash without value."""
    if value is None:
        return ABSENT
    if abs(value) >= _WHOLE:
        return f"{value:,.0f}"
    return f"{value:.4g}" if abs(value) >= _FOUR_DIGITS else f"{value:.3g}"


def seconds(value: float) -> str:
    """A duration: 24.9 s, 12 min 30 s, 1 h 5 min."""
    if value < _MINUTE:
        return f"{value:.3g} s"
    if value < _HOUR:
        return f"{int(value // _MINUTE)} min {round(value % _MINUTE)} s"
    return f"{int(value // _HOUR)} h {round(value % _HOUR / _MINUTE)} min"


def percent(share: float) -> str:
    """A share as a percentage with up to three digits."""
    return f"{share * 100:.3g} %"


def margin_text(margin: float) -> str:
    """A margin of 1 - value / limit in words."""
    if margin >= 0:
        return f"{percent(margin)} below the limit"
    if margin < -1:
        return f"{number(1 - margin)} times the limit"
    return f"{percent(-margin)} above the limit"


def instant(time: dt.datetime) -> str:
    """Date and time in UTC."""
    return f"{time.astimezone(dt.UTC):%Y-%m-%d %H:%M} UTC"


def nice_ceiling(value: float) -> float:
    """The lowest round number that is not below `value`, for the end of an axis."""
    if value <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return next(step * power for step in (1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10) if step * power >= value * (1 - 1e-9))
