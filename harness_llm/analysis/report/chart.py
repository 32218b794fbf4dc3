"""A chart of the report as data; assets/charts.js draws it with Apache ECharts."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Values = Sequence[float] | Floats
_DIGITS = 5  # more are below a pixel


class Scale(StrEnum):
    """Scale of an axis; `NINES` is -log10(1 - share), on which 90, 99 and 99.9 % have equal distances."""

    LINEAR = "linear"
    LOG = "log"
    NINES = "nines"


class Form(StrEnum):
    """How a series is drawn; `BAND` is the area between `y` and `high`."""

    LINE = "line"
    STEPS = "steps"
    MARKED = "marked"
    POINTS = "points"
    BAND = "band"


@dataclass(frozen=True)
class Axis:
    """An axis; `name` has the unit. Without `low` and `high`, the range is that of the values and limits."""

    name: str
    scale: Scale = Scale.LINEAR
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Series:
    """A series; NaN in `y` is a gap.

    Attributes:
        look: number of the colour with its dashes and marker; None for grey.
        notes: for POINTS, a text per point.
    """

    name: str
    x: Values
    y: Values
    form: Form = Form.LINE
    look: int | None = 0
    high: Values = ()
    notes: Sequence[str] = ()


@dataclass(frozen=True)
class Limit:
    """A labelled line across the chart at `value` of an axis, `x` or `y`.

    Attributes:
        outside: whether the label of a line at `y` is beside the chart, because the values are at the line.
    """

    value: float
    label: str
    axis: str = "y"
    outside: bool = False


@dataclass(frozen=True)
class Chart:
    """A chart.

    Attributes:
        topic: what is shown, for example `Throughput`.
        title: what the figure says, in words; also its description for screen readers.
        caption: how the values were made.
        group: charts of one group show the same instant under the pointer.
        wide: whether the chart has the whole width of the page.
    """

    topic: str
    title: str
    x: Axis
    y: Axis
    series: Sequence[Series]
    limits: Sequence[Limit] = ()
    caption: str = ""
    group: str = ""
    wide: bool = False

    @property
    def empty(self) -> bool:
        """Whether no series has a value."""
        return not any(np.isfinite(np.asarray(one.y, dtype=float)).any() for one in self.series)

    @property
    def highest(self) -> float:
        """The highest finite value of y, limits included; 0 without values."""
        values = [np.asarray(one.high if len(one.high) else one.y, dtype=float) for one in self.series]
        limits = [limit.value for limit in self.limits if limit.axis == "y"]
        return float(max([0.0, *limits, *(own[np.isfinite(own)].max(initial=0.0) for own in values)]))

    @property
    def description(self) -> str:
        """Axes, series and limits in words, for screen readers."""
        names = ", ".join(dict.fromkeys(one.name for one in self.series))
        limits = "".join(f" Marked line: {limit.label}." for limit in self.limits)
        return f"Horizontal: {self.x.name}. Vertical: {self.y.name}. Shown: {names}.{limits}"

    def document(self) -> dict[str, Any]:
        """The chart as JSON for charts.js."""
        return {
            "x": _axis(self.x),
            "y": _axis(self.y),
            "series": [_series(one) for one in self.series],
            "limits": [asdict(one) | {"value": _number(one.value)} for one in self.limits],
            "group": self.group,
        }


def _axis(axis: Axis) -> dict[str, Any]:
    return {"name": axis.name, "scale": axis.scale, "low": _number(axis.low), "high": _number(axis.high)}


def _series(series: Series) -> dict[str, Any]:
    return {
        "name": series.name,
        "x": _numbers(series.x),
        "y": _numbers(series.y),
        "form": series.form,
        "look": series.look,
        **({"high": _numbers(series.high)} if len(series.high) else {}),
        **({"notes": list(series.notes)} if series.notes else {}),
    }


def _numbers(values: Values) -> list[float | None]:
    return [_number(value) for value in np.asarray(values, dtype=float).tolist()]


def _number(value: float | None) -> float | int | None:
    """`value` with `_DIGITS` digits; None if it is not finite, because JSON has no NaN."""
    if value is None or not math.isfinite(value):
        return None
    rounded = float(f"{value:.{_DIGITS}g}")
    return int(rounded) if rounded.is_integer() else rounded
