"""Charts of a tuning session. Pure functions."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from harness_llm.analysis.report.chart import Axis, Chart, Form, Limit, Scale, Series
from harness_llm.analysis.report.wording import number, percent
from harness_llm.runs.trial_store import Session, Trial

STATES = {"VALID": 2, "INVALID": 1, "FAILED": 3, "PRUNED": 7}
"""Look of each state: colour and marker."""
_LOWEST = -100.0
"""Percent below which a margin is drawn at the edge."""
_ENGINE = "engine"
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
    found = _found_target(session)
    charts = [_curve(loads, found), _path(loads, found), _engine([one for one in trials if one.kind == _ENGINE])]
    yield from (chart for chart in charts if not chart.empty)


def _found_target(session: Session) -> float | None:
    value = (session.found or {}).get("target_qps")
    return float(value) if isinstance(value, int | float) else None


def _curve(trials: Sequence[Trial], found: float | None) -> Chart:
    """Margins, or throughput in a scenario without limits, against the target."""
    margins = any(nearest_margin(trial) is not None for trial in trials)
    figure = _MARGIN if margins else _RATE
    limits = [Limit(0, "limit")] if margins else []
    limits += [Limit(found, f"found: {number(found)}", "x")] if found else []
    lines = list(_margin_lines(trials)) if margins else []
    return Chart(
        "Tuning curve",
        _curve_title(trials, found),
        Axis(_TARGET.name, _scale(trials)),
        Axis(figure.name, low=_LOWEST, high=-_LOWEST) if margins else Axis(figure.name, low=0),
        [*lines, *_by_state(trials, _TARGET, figure)],
        limits,
        caption="A point per trial, with its number; marker and colour show the verdict. Lines join the trials by "
        f"target. Margin: 1 - p99 ÷ limit; margins below {number(_LOWEST)} % are drawn at the edge."
        if margins
        else "A point per trial, with its number; marker and colour show the verdict.",
        wide=True,
    )


def _scale(trials: Sequence[Trial]) -> Scale:
    """A search that begins far from the result spans decades."""
    targets = [one.target_qps for one in trials if one.target_qps]
    return Scale.LOG if targets and max(targets) > _DECADES * min(targets) else Scale.LINEAR


def _curve_title(trials: Sequence[Trial], found: float | None) -> str:
    valid = [one.target_qps for one in trials if one.state == "VALID" and one.target_qps is not None]
    invalid = [one.target_qps for one in trials if one.state == "INVALID" and one.target_qps is not None]
    parts = [f"Found: {number(found)} queries/s"] if found else ["No value found yet"]
    if valid:
        parts.append(f"highest VALID target {number(max(valid))}")
    if invalid:
        parts.append(f"lowest INVALID target {number(min(invalid))}")
    return "; ".join(parts)


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
        f"{probes} probes and {len(trials) - probes} confirmations, {seconds / 60:.0f} minutes in all",
        Axis(_NUMBER.name, low=-0.5, high=max((one.number for one in trials), default=0) + 0.5),
        Axis(_TARGET.name, _scale(trials)),
        list(_by_state(trials, _NUMBER, _TARGET)),
        [Limit(found, f"found: {number(found)} queries/s")] if found else [],
        caption="Target of each trial in order of time.",
        wide=True,
    )


def _engine(trials: Sequence[Trial]) -> Chart:
    """Throughput of each trial of engine settings, with the best so far."""
    done = [one for one in trials if one.throughput is not None and one.state == "VALID"]
    best = np.maximum.accumulate([one.throughput or 0.0 for one in done]) if done else np.array([])
    failed = sum(one.state == "FAILED" for one in trials)
    title = f"{len(trials)} trials of engine settings, {failed} FAILED"
    if done:
        first, top = done[0], max(done, key=lambda one: one.throughput or 0.0)
        gain = (top.throughput or 0.0) / (first.throughput or 1.0) - 1
        title += f"; best: trial {top.number} with {number(top.throughput)} samples/s, {percent(gain)} above the first"
    return Chart(
        "Engine settings",
        title,
        Axis(_NUMBER.name),
        Axis(_RATE.name),
        [
            Series("best so far", [one.number for one in done], best, Form.STEPS, 0),
            *_by_state(trials, _NUMBER, _RATE),
        ],
        caption="A point per trial; marker and colour show the verdict. Single measurements: differences below the "
        "noise of the machine mean nothing, see the confirmation.",
        wide=True,
    )
