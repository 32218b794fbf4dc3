"""The report of a tuning session."""

import datetime as dt
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from harness_llm.analysis.report.html_page import render_page
from harness_llm.analysis.report.tuning_charts import found_target, nearest_margin, tuning_charts
from harness_llm.analysis.report.wording import instant, number, percent, seconds
from harness_llm.runs.trial_store import Session, Trial, read_session, read_trials


def tuning_page(folder: Path) -> str:
    """The page of the session in `folder`.

    Raises:
        ConfigError: a file of the session is missing or damaged.
    """
    session, trials = read_session(folder), read_trials(folder)
    return render_page(
        "tuning.html.j2",
        {
            "title": f"Tuning of {session.benchmark} {session.scenario} on {session.system_name}",
            "subtitle": f"{session.what}; started {instant(session.started)}; report of "
            f"{instant(dt.datetime.now(dt.UTC))}",
            "session": session,
            "found": found_target(session),
            "trials": trials,
            "folder": folder,
            "summary": list(_summary(session, trials)),
            "plots": list(tuning_charts(session, trials)),
            "settings": _setting_names(trials),
            "nearest_margin": nearest_margin,
        },
    )


def _setting_names(trials: Sequence[Trial]) -> list[str]:
    return sorted({name for trial in trials for name in trial.settings})


def _summary(session: Session, trials: Sequence[Trial]) -> list[str]:
    counts = {state: sum(one.state == state for one in trials) for state in dict.fromkeys(one.state for one in trials)}
    spent = sum(one.seconds for one in trials)
    lines = [
        f"{len(trials)} trials in {seconds(spent)} of measurement: "
        + (", ".join(f"{count} {state}" for state, count in counts.items()) or "none finished")
        + "."
    ]
    if session.found is None:
        lines.append("The session has not ended: the same command continues it.")
    elif session.found:
        lines += _found(session.found)
    else:
        lines.append("The session ended without a value that is VALID.")
    confirmed = [one for one in trials if one.kind == "confirmation"]
    lines += [_confirmation(one) for one in confirmed]
    if "target" in (session.found or {}) and not any(one.state == "VALID" for one in confirmed):
        lines.append("No confirmation is VALID: do not use the value without a run of full length.")
    return lines


def _confirmation(trial: Trial) -> str:
    margin = nearest_margin(trial)
    near = f", nearest margin {percent(margin)}" if margin is not None else ""
    why = f": {trial.reason}" if trial.reason else ""
    return f"Confirmation {trial.number} at {number(trial.target_qps)} queries/s is {trial.state}{near}{why}."


def _found(found: Mapping[str, Any]) -> list[str]:
    """The result in the words of the session, and the settings."""
    texts = [line.strip() for key in ("text", "engine") for line in str(found.get(key, "")).splitlines()]
    settings = ", ".join(f"{name} = {value}" for name, value in (found.get("settings") or {}).items())
    return [*filter(None, texts), *([f"Settings found: {settings}."] if settings else [])]
