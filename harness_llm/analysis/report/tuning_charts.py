"""Charts of a tuning session. Pure functions."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean

import numpy as np

from harness_llm.analysis.report.chart import Axis, Chart, Form, Limit, Scale, Series
from harness_llm.analysis.report.wording import number, percent
from harness_llm.runs.bracket import Verdict, bracket
from harness_llm.runs.trial_store import Session, Trial

STATES = {"VALID": 2, "INVALID": 1, "FAILED": 3, "PRUNED": 7}
"""Look of each state: colour and marker."""
_LOWEST = -100.0
"""Percent below which a margin is drawn at the edge."""
_ENGINE = "engine"
_SHIPPED = 0
_POINTS = "A point per trial, with its number if there is room; marker and colour show the verdict."
_MARGINS = (
    f"Lines join the probes. Margin: 1 - p99 ÷ limit; below {number(_LOWEST)} % at the edge. A probe whose queue grows "
    "is INVALID with any margin."
)
_DECADES = 5  # ratio of targets from which their axis is logarithmic


@dataclass(frozen=True)
class _Figure:
    """A value of a trial; None if it has none."""

    name: str
    of: Callable[[Trial], float | None]


def nearest_margin(trial: Trial) -> float | None:
    """The margin to the nearest limit; None without limits."""
    known = [one for one in (trial.ttft_margin, trial.tpot_margin) if one is not None]
    return min(known) if known else None


_MARGIN = _Figure("margin to the nearest limit (%)", lambda trial: _percent(nearest_margin(trial)))
_RATE = _Figure("samples/s", lambda trial: trial.throughput)
_TARGET = _Figure("target (queries/s)", lambda trial: trial.target_qps)
_NUMBER = _Figure("trial", lambda trial: trial.number)


def _percent(margin: float | None) -> float | None:
    return None if margin is None else max(margin * 100, _LOWEST)


def tuning_charts(session: Session, trials: Sequence[Trial]) -> Iterator[Chart]:
    """The curve of the search for a target, its path, and the throughput of engine settings; without empty ones."""
    loads = [trial for trial in trials if trial.kind != _ENGINE]
    found = found_target(session)
    charts = [_curve(loads, found), _path(loads, found), _engine([one for one in trials if one.kind == _ENGINE])]
    yield from (chart for chart in charts if not chart.empty)


def found_target(session: Session) -> float | None:
    """The target that the session found; None without one."""
    value = (session.found or {}).get("target")
    return float(value) if isinstance(value, int | float) else None


def _curve(trials: Sequence[Trial], found: float | None) -> Chart:
    """Margins, or throughput in a scenario without limits, against the target."""
    margins = any(nearest_margin(trial) is not None for trial in trials)
    figure = _MARGIN if margins else _RATE
    limits = [Limit(0, "limit")] if margins else []
    limits += [Limit(found, f"found: {number(found)}", "x")] if found else []
    title = f"Found: {number(found)} queries/s" if found else "No value found yet"
    lines = list(_margin_lines([one for one in trials if one.kind == "probe"])) if margins else []
    return Chart(
        "Tuning curve",
        "; ".join([title, *(_bracket_title(trials) if margins else [])]),
        Axis(_TARGET.name, _scale(trials)),
        Axis(figure.name, low=_LOWEST, high=-_LOWEST) if margins else Axis(figure.name, low=0),
        [*lines, *_by_state(trials, _TARGET, figure)],
        limits,
        caption=f"{_POINTS} {_MARGINS}" if margins else _POINTS,
        wide=True,
    )


def _scale(trials: Sequence[Trial]) -> Scale:
    """A search that begins far from the result spans decades."""
    targets = [one.target_qps for one in trials if one.target_qps]
    return Scale.LOG if targets and max(targets) > _DECADES * min(targets) else Scale.LINEAR


def _bracket_title(trials: Sequence[Trial]) -> Iterator[str]:
    measured = [(one.target_qps, one) for one in trials if one.state in ("VALID", "INVALID")]
    verdicts = [Verdict(at, one.state == "VALID", one.kind != "probe") for at, one in measured if at is not None]
    known = bracket(verdicts)
    if known.valid:
        yield f"highest VALID target {number(known.valid)}"
    if known.invalid < math.inf:
        yield f"lowest INVALID target{' above it' if known.valid else ''} {number(known.invalid)}"


def _margin_lines(trials: Sequence[Trial]) -> Iterator[Series]:
    ordered = sorted((one for one in trials if one.target_qps is not None), key=lambda one: one.target_qps or 0.0)
    for look, (name, values) in enumerate(
        (
            ("TTFT", [_percent(one.ttft_margin) for one in ordered]),
            ("TPOT", [_percent(one.tpot_margin) for one in ordered]),
        )
    ):
        known = np.array([np.nan if value is None else value for value in values])
        there = np.isfinite(known)
        if there.any():
            targets = np.array([one.target_qps for one in ordered], dtype=float)
            yield Series(name, targets[there], known[there], Form.LINE, look * 6)


def _by_state(trials: Sequence[Trial], x: _Figure, y: _Figure) -> Iterator[Series]:
    for state, look in STATES.items():
        points = [(x.of(one), y.of(one), str(one.number)) for one in trials if one.state == state]
        known = [(a, b, note) for a, b, note in points if a is not None and b is not None]
        if known:
            across, up, notes = zip(*known, strict=True)
            yield Series(state, across, up, Form.POINTS, look, notes=notes)


def _path(trials: Sequence[Trial], found: float | None) -> Chart:
    seconds = sum(trial.seconds for trial in trials)
    probes = sum(trial.kind == "probe" for trial in trials)
    return Chart(
        "Path of the search",
        f"{_counted(probes, 'probe')} and {_counted(len(trials) - probes, 'confirmation')}, {seconds / 60:.1f} minutes",
        Axis(_NUMBER.name, low=-0.5, high=max((one.number for one in trials), default=0) + 0.5),
        Axis(_TARGET.name, _scale(trials)),
        list(_by_state(trials, _NUMBER, _TARGET)),
        [Limit(found, f"found: {number(found)}", outside=True)] if found else [],
        caption="Target of each trial in order of time.",
        wide=True,
    )


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


def _engine(trials: Sequence[Trial]) -> Chart:
    """Throughput of each trial of engine settings, and the mean of those with the shipped settings."""
    shipped = [one for one in trials if not one.settings]
    others = [one for one in trials if one.settings]
    rates = [one.throughput for one in shipped if one.throughput is not None]
    points = [(float(one.number), one.throughput, str(one.number)) for one in shipped if one.throughput is not None]
    series = list(_by_state(others, _NUMBER, _RATE))
    if points:
        across, up, notes = zip(*points, strict=True)
        series.insert(0, Series("shipped settings", across, up, Form.POINTS, _SHIPPED, notes=notes))
    return Chart(
        "Engine settings",
        _engine_title(others, rates),
        Axis(_NUMBER.name, low=-0.5, high=max((one.number for one in trials), default=0) + 0.5),
        Axis(_RATE.name, low=0),
        series,
        [Limit(fmean(rates), f"shipped: {number(fmean(rates))}", outside=True)] if rates else [],
        caption=f"{_POINTS} Circles are the shipped settings. Single measurements: only the comparison in the summary "
        "has an interval.",
        wide=True,
    )


def _engine_title(others: Sequence[Trial], shipped: Sequence[float]) -> str:
    distinct = {str(sorted(one.settings.items())) for one in others}
    measured = [one for one in others if one.throughput is not None and one.state != "PRUNED"]
    title = f"{len(distinct)} settings measured beside the shipped ones"
    if not measured or not shipped:
        return title
    best = max(measured, key=lambda one: one.throughput or 0.0)
    share = (best.throughput or 0.0) / fmean(shipped) - 1
    side = "above" if share >= 0 else "below"
    return f"{title}; fastest single trial: {best.number}, {percent(abs(share))} {side} the mean of the shipped ones"
