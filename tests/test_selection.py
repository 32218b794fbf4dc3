"""Selection of the runs that form a result, and reasons for the others."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from runs import BENCHMARK, SUBJECT, SYSTEM, write_all, write_run

from harness_llm.runs.facts import ComparedFacts, differences, recorded_facts, run_facts_of
from harness_llm.runs.record import Run, RunKey, State, find_runs, finish
from harness_llm.runs.selection import Candidates, Present, RunStatus, Selection, Todo, Wanted, select

TESTS = ("performance", "accuracy", "TEST06")
OTHER = SUBJECT | {"llm_config": {"max_num_seqs": 256}}
TARGET = "demo.Server.target_qps = {}\ndemo.Server.min_query_count = {}\n"


def present(
    fingerprint: dict[str, Any] = SUBJECT, conf: str = "", judged_by: str = "", at_default: tuple[str, ...] = ()
) -> dict[RunKey, Present]:
    """The runs of both scenarios as they would be made now."""
    return {
        RunKey(BENCHMARK, scenario, test): Present(
            run_facts_of(fingerprint, {"user_conf": conf}, test, at_default), judged_by
        )
        for scenario in ("Offline", "Server")
        for test in TESTS
    }


def choose(runs: list[Run], *scenarios: str, **wanted: Any) -> Selection:
    facts = {"benchmark": BENCHMARK, "profile": "smoke", "round": "v6.1", "division": "open"} | wanted
    return select(runs, scenarios or ("Offline",), TESTS, Wanted(**{"present": present()} | facts))


def newest(runs: list[Run], *scenarios: str, **wanted: Any) -> Selection:
    return choose(runs, *scenarios, newest=True, **wanted)


def status_of(selection: Selection, test: str = "performance") -> RunStatus:
    (status,) = [s for s in selection.run_keys if s.run_key.test == test]
    return status


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
    selection = newest(find_runs(tmp_path, SYSTEM))
    assert {r.path for r in selection.runs["Offline"].values()} == {r.path for r in old}


def test_newer_complete_fingerprint_replaces_an_older_one(tmp_path: Path) -> None:
    write_all(tmp_path)
    new = write_all(tmp_path, hour=1, fingerprint=OTHER)
    selection = newest(find_runs(tmp_path, SYSTEM))
    assert {r.path for r in selection.runs["Offline"].values()} == {r.path for r in new}


def test_runs_of_different_fingerprints_are_not_combined(tmp_path: Path) -> None:
    write_run(tmp_path, "Offline", "accuracy", fingerprint=OTHER)
    write_run(tmp_path, "Offline", "performance", hour=1)
    write_run(tmp_path, "Offline", "TEST06", hour=1)
    selection = newest(find_runs(tmp_path, SYSTEM))
    assert [s.run_key.test for s in selection.missing] == ["accuracy"]
    assert reason(selection, "accuracy") == (
        "NOT COUNTED",
        "VALID but not equal to the other runs of the result: llm_config.max_num_seqs: 256 vs 128",
    )


def test_requested_fingerprint_is_the_only_one_selected(tmp_path: Path) -> None:
    write_all(tmp_path)
    wanted = SUBJECT | {"image": "sha256:1"}
    selection = choose(find_runs(tmp_path, SYSTEM), present=present(wanted))
    assert len(selection.missing) == 3
    assert reason(selection, "TEST06")[1] == "VALID but not equal to a run made now: image: absent vs sha256:1"


def test_long_lists_of_differences_are_shortened(tmp_path: Path) -> None:
    write_all(tmp_path)
    wanted = SUBJECT | {f"key{i}": i for i in range(9)}
    selection = choose(find_runs(tmp_path, SYSTEM), present=present(wanted))
    assert reason(selection, "accuracy")[1].endswith("key3: absent vs 3; and 5 more")


def test_nodes_are_compared_one_by_one(tmp_path: Path) -> None:
    write_all(tmp_path, fingerprint=SUBJECT | {"nodes": [{"hardware": {"cpu": "EPYC"}, "operating_system": "22.04"}]})
    nodes = [{"hardware": {"cpu": "EPYC"}, "operating_system": version} for version in ("24.04", "22.04")]
    selection = choose(find_runs(tmp_path, SYSTEM), present=present(SUBJECT | {"nodes": nodes}))
    assert reason(selection, "TEST06")[1].removeprefix("VALID but not equal to a run made now: ").split("; ") == [
        "nodes.0.operating_system: 22.04 vs 24.04",
        "nodes.1.hardware.cpu: absent vs EPYC",
        "nodes.1.operating_system: absent vs 22.04",
    ]


def test_empty_value_differs_from_an_absent_one() -> None:
    assert differences({"inherited": {}}, {"inherited": {"X": ""}}) == ["inherited.X: absent vs empty"]


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
        ({"profile": "valid", "finished": False}, "MISSING", "no run"),
        ({"version": 0}, "NOT COUNTED", "VALID but measured by an earlier version of harness-llm"),
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
    selection = newest(find_runs(tmp_path, SYSTEM), "Offline", "Server")
    assert not selection.missing
    assert list(selection.runs) == ["Offline", "Server"]


def test_runs_are_listed_in_the_requested_order() -> None:
    selection = choose([], "Server", "Offline")
    assert [s.run_key for s in selection.run_keys][:4] == [
        *(RunKey(BENCHMARK, "Server", t) for t in TESTS),
        RunKey(BENCHMARK, "Offline", "performance"),
    ]


def test_newest_measured_run_of_the_fingerprint_is_judged_again_unless_one_is_valid(tmp_path: Path) -> None:
    first, last = (
        write_run(tmp_path, "Offline", "accuracy", hour=hour, state=State.MEASURED, reasons=["no nltk data"])
        for hour in (0, 1)
    )
    write_run(tmp_path, "Offline", "accuracy", hour=2, state=State.MEASURED, fingerprint=OTHER)
    write_run(tmp_path, "Offline", "accuracy", hour=3, finished=False)
    wanted = Wanted(benchmark=BENCHMARK, profile="smoke", round="v6.1", division="open", present=present())
    candidates = Candidates(find_runs(tmp_path, SYSTEM), ("Offline",), ("accuracy",), wanted)
    [status] = candidates.select().run_keys
    assert status.run
    assert (status.run.path, status.state_text, status.reason) == (last.path, "MEASURED", "no nltk data")
    assert status.todo is Todo.JUDGE

    record = first.record
    assert record
    judged = finish(first.path, record.model_copy(update={"state": State.VALID, "reasons": []}))
    [status] = candidates.select([judged]).run_keys
    assert status.done
    assert status.run == judged


@pytest.mark.parametrize("test", TESTS)
def test_target_counts_for_performance_only_and_sample_counts_for_all_tests(tmp_path: Path, test: str) -> None:
    run = write_run(tmp_path, "Server", test, run_facts={"user_conf": TARGET.format(100, 2048)})
    same = status_of(choose([run], "Server", present=present(conf=TARGET.format("100.0", 2048))), test)
    higher = status_of(choose([run], "Server", present=present(conf=TARGET.format(300, 2048))), test)
    more = status_of(choose([run], "Server", present=present(conf=TARGET.format(100, 4096))), test)
    assert same.done
    assert higher.done == (test != "performance")
    assert (more.todo, more.reason) == (
        Todo.MEASURE,
        "VALID but not equal to a run made now: user_conf.demo.Server.min_query_count: 2048 vs 4096",
    )


def test_run_of_a_target_that_is_set_back_counts_again(tmp_path: Path) -> None:
    first = write_run(tmp_path, "Server", "performance", run_facts={"user_conf": TARGET.format(100, 9)})
    write_run(tmp_path, "Server", "performance", hour=1, run_facts={"user_conf": TARGET.format(300, 9)})
    status = status_of(choose(find_runs(tmp_path), "Server", present=present(conf=TARGET.format(100, 9))))
    assert status.done
    assert status.run == first
    other = status_of(choose([first], "Server", present=present(conf=TARGET.format(300, 9))))
    assert (other.todo, other.earlier) == (Todo.MEASURE, first)


def test_invalid_run_with_the_present_settings_is_measured_again_only_with_again(tmp_path: Path) -> None:
    facts = {"user_conf": TARGET.format(300, 9)}
    earlier = write_run(tmp_path, "Server", "performance", run_facts={"user_conf": TARGET.format(100, 9)})
    write_run(tmp_path, "Server", "performance", hour=1, state=State.INVALID, reasons=["slow"], run_facts=facts)
    now = present(conf=TARGET.format(300, 9))
    status = status_of(choose(find_runs(tmp_path), "Server", present=now))
    assert (status.todo, status.done, status.state_text, status.earlier) == (Todo.NOTHING, False, "INVALID", earlier)
    assert status.reason.startswith("slow (measured with the present settings; --again")
    again = status_of(choose(find_runs(tmp_path), "Server", present=now, again=True))
    assert (again.todo, again.reason) == (Todo.MEASURE, "slow")


@pytest.mark.parametrize("state", [State.VALID, State.INVALID])
def test_run_of_another_judgement_is_judged_again(tmp_path: Path, state: State) -> None:
    run = write_run(tmp_path, "Server", "performance", state=state, judged_by="old")
    assert status_of(choose([run], "Server", present=present(judged_by="new"))).todo is Todo.JUDGE
    assert status_of(choose([run], "Server", present=present(judged_by="old"))).todo is Todo.NOTHING
    refused = write_run(tmp_path, "Server", "performance", hour=1, state=State.INVALID, judged_by="")
    assert status_of(choose([refused], "Server", present=present(judged_by="new"))).todo is Todo.NOTHING


def test_field_at_its_default_that_only_one_version_has_is_no_difference(tmp_path: Path) -> None:
    newer = SUBJECT | {"harness_config": {"replicas": 1, "new": 3}}
    old, new = (
        write_run(tmp_path, "Server", "accuracy", hour=hour, fingerprint=fingerprint, at_default=names)
        for hour, (fingerprint, names) in enumerate([(SUBJECT, []), (newer, ["harness_config.new"])])
    )
    added = present(newer, at_default=("harness_config.new",))
    assert status_of(choose([old], "Server", present=added), "accuracy").done
    assert status_of(choose([new], "Server", present=present()), "accuracy").done
    assert not status_of(choose([old], "Server", present=present(newer)), "accuracy").done
    assert recorded_facts(old).differences(ComparedFacts({}))
