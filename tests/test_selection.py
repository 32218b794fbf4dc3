"""Selection of the runs that form a result, and reasons for the others."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from runs import BENCHMARK, SUBJECT, SYSTEM, write_all, write_run

from harness_llm.runs.record import Run, RunKey, State, find_runs, finish
from harness_llm.runs.selection import Candidates, Selection, Wanted, differences, select

TESTS = ("performance", "accuracy", "TEST06")
WANTED = Wanted(benchmark=BENCHMARK, profile="smoke", round="v6.1", division="open", fingerprints={"Offline": SUBJECT})
OTHER = SUBJECT | {"llm_config": {"max_num_seqs": 256}}


def choose(runs: list[Run], *scenarios: str, **wanted: Any) -> Selection:
    facts = {"benchmark": BENCHMARK, "profile": "smoke", "round": "v6.1", "division": "open"} | wanted
    return select(runs, scenarios or ("Offline",), TESTS, Wanted(**facts))


def reason(selection: Selection, test: str) -> tuple[str, str]:
    (status,) = [s for s in selection.run_keys if s.run_key.test == test]
    return status.state_text, status.reason


def test_newest_valid_runs_of_one_fingerprint_are_selected(tmp_path: Path) -> None:
    write_all(tmp_path)
    newer = write_all(tmp_path, hour=1)
    write_run(tmp_path, "Offline", "performance", hour=2, state=State.INVALID, reasons=["too short"])
    selection = choose(find_runs(tmp_path, SYSTEM))
    assert not selection.missing
    assert [r.path for r in selection.runs["Offline"].values()] == [r.path for r in newer]


def test_complete_fingerprint_is_preferred_to_a_newer_incomplete_one(tmp_path: Path) -> None:
    old = write_all(tmp_path)
    write_run(tmp_path, "Offline", "performance", hour=1, fingerprint=OTHER)
    write_run(tmp_path, "Offline", "accuracy", hour=1, fingerprint=OTHER)
    selection = choose(find_runs(tmp_path, SYSTEM))
    assert {r.path for r in selection.runs["Offline"].values()} == {r.path for r in old}


def test_newer_complete_fingerprint_replaces_an_older_one(tmp_path: Path) -> None:
    write_all(tmp_path)
    new = write_all(tmp_path, hour=1, fingerprint=OTHER)
    selection = choose(find_runs(tmp_path, SYSTEM))
    assert {r.path for r in selection.runs["Offline"].values()} == {r.path for r in new}


def test_runs_of_different_fingerprints_are_not_combined(tmp_path: Path) -> None:
    write_run(tmp_path, "Offline", "accuracy", fingerprint=OTHER)
    write_run(tmp_path, "Offline", "performance", hour=1)
    write_run(tmp_path, "Offline", "TEST06", hour=1)
    selection = choose(find_runs(tmp_path, SYSTEM))
    assert [s.run_key.test for s in selection.missing] == ["accuracy"]
    assert reason(selection, "accuracy") == (
        "NOT COUNTED",
        "VALID but of another fingerprint: llm_config.max_num_seqs: 256 vs 128",
    )


def test_requested_fingerprint_is_the_only_one_selected(tmp_path: Path) -> None:
    write_all(tmp_path)
    wanted = SUBJECT | {"image": "sha256:1"}
    selection = choose(find_runs(tmp_path, SYSTEM), fingerprints={"Offline": wanted})
    assert len(selection.missing) == 3
    assert reason(selection, "TEST06")[1] == "VALID but of another fingerprint: image: absent vs sha256:1"


def test_long_lists_of_differences_are_shortened(tmp_path: Path) -> None:
    write_all(tmp_path)
    wanted = SUBJECT | {f"key{i}": i for i in range(9)}
    selection = choose(find_runs(tmp_path, SYSTEM), fingerprints={"Offline": wanted})
    assert reason(selection, "accuracy")[1].endswith("key3: absent vs 3; and 5 more")


def test_nodes_are_compared_one_by_one(tmp_path: Path) -> None:
    write_all(tmp_path, fingerprint=SUBJECT | {"nodes": [{"hardware": {"cpu": "EPYC"}, "operating_system": "22.04"}]})
    nodes = [{"hardware": {"cpu": "EPYC"}, "operating_system": version} for version in ("24.04", "22.04")]
    selection = choose(find_runs(tmp_path, SYSTEM), fingerprints={"Offline": SUBJECT | {"nodes": nodes}})
    assert reason(selection, "TEST06")[1].removeprefix("VALID but of another fingerprint: ").split("; ") == [
        "nodes.0.operating_system: 22.04 vs 24.04",
        "nodes.1.hardware.cpu: absent vs EPYC",
        "nodes.1.operating_system: absent vs 22.04",
    ]


@given(st.integers(0, 150), st.text("ab", max_size=80), st.text("ab", max_size=80))
def test_texts_of_a_difference_are_short_and_unequal(equal: int, ours: str, theirs: str) -> None:
    lines = differences({"key": "x" * equal + ours}, {"key": "x" * equal + theirs})
    assert bool(lines) == (ours != theirs)
    for line in lines:
        one, other = line.removeprefix("key: ").split(" vs ")
        assert one != other
        assert max(len(one), len(other)) <= 60


@pytest.mark.parametrize(
    ("changes", "state_text", "said"),
    [
        (
            {"state": State.INVALID, "reasons": ["ran 5 s of 600 s", "p99 TTFT 2.5 s"]},
            "INVALID",
            "p99 TTFT 2.5 s",
        ),
        ({"state": State.DEGRADED, "reasons": ["replica-3 failed"]}, "DEGRADED", "replica-3 failed"),
        ({"state": State.FAILED, "reasons": ["no memory"]}, "FAILED", "no memory"),
        ({"state": State.PROFILED, "reasons": ["profiled for 30 s"]}, "PROFILED", "profiled for 30 s"),
        ({"state": State.MEASURED}, "MEASURED", "its judgement was interrupted"),
        ({"state": State.MEASURED, "reasons": ["no nltk data"]}, "MEASURED", "no nltk data"),
        ({"state": State.MEASURED, "engine": "replay"}, "NOT COUNTED", "MEASURED but of the replay engine"),
        ({"finished": False}, "INTERRUPTED", "ended without a record"),
        ({"engine": "replay"}, "NOT COUNTED", "replay"),
        ({"profile": "valid"}, "MISSING", "no run"),
        ({"round": "v6.0"}, "MISSING", "no run"),
    ],
)
def test_only_valid_runs_of_the_profile_and_round_count(
    tmp_path: Path, changes: dict[str, Any], state_text: str, said: str
) -> None:
    write_run(tmp_path, "Offline", "accuracy", **changes)
    selection = choose(find_runs(tmp_path, SYSTEM))
    assert selection.runs == {}
    found = reason(selection, "accuracy")
    assert found[0] == state_text
    assert said in found[1]


def test_rehearsal_selects_runs_of_the_replay_engine_only(tmp_path: Path) -> None:
    write_run(tmp_path, "Offline", "performance", engine="replay")
    write_run(tmp_path, "Offline", "accuracy")
    selection = choose(find_runs(tmp_path, SYSTEM), rehearsed=True)
    assert list(selection.runs["Offline"]) == ["performance"]
    assert "this profile uses the replay engine" in reason(selection, "accuracy")[1]


def test_closed_selects_closed_runs_only_and_open_selects_both(tmp_path: Path) -> None:
    write_all(tmp_path)
    runs = find_runs(tmp_path, SYSTEM)
    assert reason(choose(runs, division="closed"), "accuracy")[1] == "VALID but made for the open division"
    write_all(tmp_path, hour=1, division="closed")
    assert not choose(find_runs(tmp_path, SYSTEM), division="open").missing
    assert not choose(find_runs(tmp_path, SYSTEM), division="closed").missing


def test_closed_selects_no_run_with_violations(tmp_path: Path) -> None:
    """Cache hits are known only after the run, which is VALID."""
    violations = ["prompt tokens were taken from a cache: 9"]
    write_run(tmp_path, "Offline", "accuracy", division="closed", run_facts={"violations": violations})
    runs = find_runs(tmp_path, SYSTEM)
    assert reason(choose(runs, division="closed"), "accuracy") == (
        "NOT COUNTED",
        f"VALID but not allowed in closed: {violations[0]}",
    )
    assert reason(choose(runs, division="open"), "accuracy")[0] == "VALID"


def test_each_scenario_has_its_own_fingerprint(tmp_path: Path) -> None:
    write_all(tmp_path, "Offline")
    write_all(tmp_path, "Server", fingerprint=OTHER)
    selection = choose(find_runs(tmp_path, SYSTEM), "Offline", "Server")
    assert not selection.missing
    assert list(selection.runs) == ["Offline", "Server"]


def test_runs_are_listed_in_the_requested_order() -> None:
    selection = choose([], "Server", "Offline")
    assert [s.run_key for s in selection.run_keys][:4] == [
        *(RunKey(BENCHMARK, "Server", t) for t in TESTS),
        RunKey(BENCHMARK, "Offline", "performance"),
    ]


def test_newest_measured_run_of_the_fingerprint_is_judged_again_unless_one_is_valid(tmp_path: Path) -> None:
    first, newest = (
        write_run(tmp_path, "Offline", "accuracy", hour=hour, state=State.MEASURED, reasons=["no nltk data"])
        for hour in (0, 1)
    )
    write_run(tmp_path, "Offline", "accuracy", hour=2, state=State.MEASURED, fingerprint=OTHER)
    write_run(tmp_path, "Offline", "accuracy", hour=3, finished=False)
    candidates = Candidates(find_runs(tmp_path, SYSTEM), ("Offline",), ("accuracy",), WANTED)
    [status] = candidates.select().run_keys
    assert status.measured
    assert (status.measured.path, status.state_text, status.reason) == (newest.path, "MEASURED", "no nltk data")
    assert not status.done

    record = first.record
    assert record
    judged = finish(first.path, record.model_copy(update={"state": State.VALID, "reasons": []}))
    [status] = candidates.select([judged]).run_keys
    assert status.done
    assert status.measured is None
    assert status.run == judged
