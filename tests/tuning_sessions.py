"""Tuning sessions for tests; as a program, appends trials to the session in its argument until it is killed."""

import datetime as dt
import itertools
import sys
from pathlib import Path
from typing import Any

from harness_llm.runs.trial_store import Session, Trial, TrialStore

SESSION = Session(
    benchmark="demo",
    scenario="Server",
    system_name="box",
    gpu="cpu",
    what="engine",
    fingerprint="a1",
    command="harness-llm tune",
    started=dt.datetime(2026, 7, 1, 13, tzinfo=dt.UTC),
)


def trial(number: int, **values: Any) -> Trial:
    facts: dict[str, Any] = {
        "kind": "engine",
        "scenario": "Server",
        "state": "VALID",
        "seconds": 9.5,
        "throughput": 80.0,
    }
    return Trial(number=number, **facts | values)


if __name__ == "__main__":
    store = TrialStore(Path(sys.argv[1]))
    for number in itertools.count(store.next_number):
        store.append(trial(number, reason="x" * 2000))
