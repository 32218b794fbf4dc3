"""`make submission` on a rehearsed node: real containers, LoadGen and tree; accelerators and speeds are faked."""

import datetime as dt
import json
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from account import Account, reset_settings
from images import Ended, timed
from machine import Machine
from speeds import cases, write_speeds
from vendor_image import TAG

from harness_llm.checker.findings import Severity
from harness_llm.checker.tree_round import choose_round
from harness_llm.config.engines import REPLAY
from harness_llm.hardware.gpus import load_gpus
from harness_llm.loadgen.logs import DETAIL, parse_detail
from harness_llm.paths import CHECKOUT, Workspace
from harness_llm.pipeline.submit import check_tree
from harness_llm.runs.record import Run, State, find_runs
from harness_llm.submission.places import PROFILE

pytestmark = pytest.mark.gpu_rehearsal


@dataclass(frozen=True, repr=False)  # pytest takes minutes to shorten it
class Rehearsal:
    """A submission that ended well, and what it left."""

    ended: Ended
    began: dt.datetime
    runs: list[Run]
    tree: Path

    @property
    def first_query_s(self) -> float:
        """Seconds from the command to the first query that LoadGen issued."""
        first = min(
            parse_detail(run.path / DETAIL)._instant("power_begin")
            for run in self.runs
            if (run.path / DETAIL).is_file()
        )
        return (first - self.began).total_seconds()


def rehearse(account: Account, machine: Machine, benchmark: str, gpu: str) -> Rehearsal:
    """Run `make submission` on a node with 8 of `gpu`, which it detects."""
    machine.plug(gpu)
    reset_settings(account)
    write_speeds(benchmark, gpu, account.checkout)
    system = f"8x{gpu}-{benchmark}"
    began = dt.datetime.now(dt.UTC)
    words = ("COMPANY=Acme", f"SYSTEM_NAME={system}", f"MODEL={benchmark}", "PROFILE=rehearsal")
    ended = timed(account, "make", "submission", *words, BASE_IMAGE=TAG)
    runs = find_runs(account.checkout / "build" / "logs", system)
    tree = Path(ended.done.stdout.splitlines()[-2].replace("/lab-mlperf-inference", str(account.checkout)))
    return Rehearsal(ended, began, runs, tree)


@pytest.mark.parametrize(("benchmark", "gpu"), cases())
def test_rehearsed_node_makes_a_checked_tree_that_is_not_submittable(
    benchmark: str, gpu: str, prepared_account: Account, machine: Machine
) -> None:
    done = rehearse(prepared_account, machine, benchmark, gpu)
    sys.stderr.write(f"{benchmark} on {gpu}: first query after {done.first_query_s:.1f} s, ")
    sys.stderr.write(f"end after {done.ended.seconds:.1f} s, {len(done.runs)} runs\n")
    assert {run.state for run in done.runs} == {State.VALID}
    records = [run.record for run in done.runs if run.record]
    assert {record.engine for record in records} == {REPLAY}
    [hardware] = {json.dumps(record.fingerprint["hardware"]) for record in records}
    assert json.loads(hardware)["accelerators_per_node"] == "8"
    assert json.loads(hardware)["accelerator_model_name"] == load_gpus(Workspace(CHECKOUT))[gpu].name
    assert done.tree.name.endswith("-rehearsal")
    assert json.loads(next(done.tree.glob(f"*/*/{PROFILE}")).read_text())["profile"] == "rehearsal"
    assert "this tree is not submittable: its answers are those of the replay engine" in done.ended.done.stderr
    findings, _ = check_tree(choose_round(done.tree, records[0].round))
    assert not [finding.rule for finding in findings if finding.severity is Severity.ERROR]
