"""Names, divisions and deadlines of submissions."""

import datetime as dt

import pytest
from packages import DEMO, LLAMA, RULES, submission

from harness_llm.config.benchmark import Benchmark
from harness_llm.errors import ConfigError


@pytest.mark.parametrize(
    ("benchmark", "profile", "allowed"),
    [(DEMO, "valid", False), (DEMO, "smoke", False), (LLAMA, "smoke", False), (LLAMA, "valid", True)],
)
def test_closed_accepts_official_benchmarks_at_full_length_only(
    benchmark: Benchmark, profile: str, allowed: bool
) -> None:
    what = submission(benchmark, profile=profile, division="closed")
    if allowed:
        what.check()
    else:
        with pytest.raises(ConfigError, match="the closed division does not allow"):
            what.check()


def test_measurements_with_gaps_are_refused() -> None:
    broken = DEMO.model_copy(update={"measurements": DEMO.measurements | {"retraining": ""}})
    with pytest.raises(ConfigError, match="no value for retraining"):
        submission(broken).check()


def test_passed_deadline_is_reported() -> None:
    before, after = RULES.deadline, RULES.deadline + dt.timedelta(days=1)
    assert not [n for n in submission().notices(before) if "deadline" in n]
    assert [n for n in submission().notices(after) if "deadline of round v6.1 was 2026-07-31" in n]
