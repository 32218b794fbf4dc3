from types import SimpleNamespace
from typing import Any, cast

import pytest

from harness_llm.cell import Bench, _require_source
from harness_llm.errors import RunFailed
from harness_llm.subject import source_digest
from harness_llm.supervision import Stall


def line(done: int, in_flight: int = 3) -> dict[str, Any]:
    return {"event": "progress", "issued": 9, "done": done, "tokens": 7 * done, "in_flight": in_flight}


def test_a_fleet_that_answers_nothing_is_noticed() -> None:
    stall = Stall(10)
    stall.check(1000)  # nothing was said yet
    stall.take(line(1), 0)
    stall.take(line(2), 9)
    stall.take(line(2), 18)
    stall.check(19)
    with pytest.raises(RunFailed, match="answers no more"):
        stall.check(19.1)


def test_a_fleet_that_is_asked_nothing_is_not_blamed() -> None:
    stall = Stall(10)
    stall.take(line(2, in_flight=0), 0)
    stall.take(line(2, in_flight=0), 20)
    stall.check(29)


def test_source_that_changed_during_a_run_is_no_result() -> None:
    _require_source(cast("Bench", SimpleNamespace(subject={"harness_llm": source_digest()})))
    with pytest.raises(RunFailed, match="was changed during the run"):
        _require_source(cast("Bench", SimpleNamespace(subject={"harness_llm": "of yesterday"})))
