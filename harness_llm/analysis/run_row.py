"""One row per run: system, settings, figures and reasons in short. `harness-llm runs`."""

import datetime as dt
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness_llm.errors import ConfigError
from harness_llm.loadgen.logs import DETAIL, DetailLog, parse_detail
from harness_llm.paths import LOG_TIME
from harness_llm.runs.fingerprint import SOURCE
from harness_llm.runs.record import LOCK, Run, RunRecord

DIGITS = 8
"""Characters of a digest in a row."""
_DEPTH = 5  # folders of a run below build/logs: harness_llm/paths.py
_TARGET = re.compile(r"\.(?:target_qps|target_latency) = (\S+)")
_PERFORMANCE, _ACCURACY = "performance", "accuracy"


@dataclass(frozen=True)
class RunRow:
    """A run; None for values that it has not.

    Attributes:
        started: ISO 8601, UTC.
        fingerprint: first characters of the digest; equal for runs that can be combined in one result.
        engine: name and version.
        harness: first characters of the digest of harness_llm's source.
        target: queries per second; in SingleStream, milliseconds per query.
        ttft_limit_ms, tpot_limit_ms: LoadGen's limits of the two percentiles.
        score: of the accuracy run; the benchmark's first metric, `score_metric`.
    """

    started: str
    system: str
    benchmark: str
    scenario: str
    test: str
    state: str
    tokens_per_second: float | None
    samples_per_second: float | None
    p99_ttft_ms: float | None
    ttft_limit_ms: float | None
    p99_tpot_ms: float | None
    tpot_limit_ms: float | None
    score: float | None
    score_metric: str
    target: float | None
    fingerprint: str
    profile: str
    round: str
    division: str
    engine: str
    loadgen: str
    harness: str
    reason: str
    path: str

    @property
    def name(self) -> str:
        """The path below build/logs, which other commands accept."""
        return "/".join(Path(self.path).parts[-_DEPTH:])


def run_row(run: Run) -> RunRow:
    """The row of `run`; of a run without record, only what its path contains."""
    record = run.record
    metrics = record.metrics if record else {}
    log = _detail(run) if run.run_key.test == _PERFORMANCE and metrics else None
    metric = next(iter(metrics), "") if run.run_key.test == _ACCURACY else ""
    return RunRow(
        started=_started(run).isoformat(timespec="seconds").replace("+00:00", "Z"),
        system=run.system,
        benchmark=run.run_key.benchmark,
        scenario=run.run_key.scenario,
        test=run.run_key.test,
        state=str(run.state),
        tokens_per_second=metrics.get("tokens_per_second"),
        samples_per_second=metrics.get("samples_per_second"),
        p99_ttft_ms=metrics.get("p99_ttft_ms"),
        ttft_limit_ms=log.requested_ttft_ms if log and "p99_ttft_ms" in metrics else None,
        p99_tpot_ms=metrics.get("p99_tpot_ms"),
        tpot_limit_ms=log.requested_tpot_ms if log and "p99_tpot_ms" in metrics else None,
        score=metrics.get(metric),
        score_metric=metric,
        **_settings(record),
        reason="; ".join([*run.reasons, *run.notes]),
        path=str(run.path),
    )


def _settings(record: RunRecord | None) -> dict[str, Any]:
    if record is None:
        names = ("fingerprint", "profile", "round", "division", "engine", "loadgen", "harness")
        return {"target": None} | dict.fromkeys(names, "")
    target = _TARGET.search(str(record.run_facts.get("user_conf", "")))
    return {
        "target": float(target[1]) if target else None,
        "fingerprint": record.fingerprint_digest[:DIGITS],
        "profile": record.profile,
        "round": record.round,
        "division": record.division,
        "engine": " ".join(filter(None, (record.engine, _engine_version(record.engine, record.fingerprint)))),
        "loadgen": str(record.fingerprint.get("loadgen", "")),
        "harness": str(record.fingerprint.get(SOURCE, ""))[:DIGITS],
    }


def _engine_version(engine: str, fingerprint: Mapping[str, Any]) -> str:
    """The version of the engine's package, else the one that the first server reports."""
    packages = fingerprint.get("packages") or {}
    servers = fingerprint.get("servers") or [{}]
    return str(packages.get(engine) or packages.get(f"{engine}-cpu") or servers[0].get("version") or "")


def _detail(run: Run) -> DetailLog | None:
    try:
        return parse_detail(run.path / DETAIL)
    except ConfigError:
        return None


def _started(run: Run) -> dt.datetime:
    """When the run started; without a record, when its submission started, or when the lock was written."""
    if run.record:
        return run.record.started.astimezone(dt.UTC)
    try:
        return dt.datetime.strptime(run.path.parts[-_DEPTH], LOG_TIME).replace(tzinfo=dt.UTC)
    except ValueError:  # the folder was renamed
        return dt.datetime.fromtimestamp((run.path / LOCK).stat().st_mtime, dt.UTC)
