"""Runs of the real LoadGen against HTTP servers without a model: the answer to a prompt follows from the prompt."""

import json
import os
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import psutil
from live_runs import Runs
from token_server import TokenServer, answer_to
from workspaces import make_workspace

from harness_llm.config.assets import Assets
from harness_llm.config.request import Request
from harness_llm.evaluate.run_result import RunResult, Scorer
from harness_llm.loadgen.logs import DETAIL, parse_detail
from harness_llm.protocol.child_processes import Child, start
from harness_llm.protocol.token_store import write_store
from harness_llm.replicas.pool import ReplicaPool
from harness_llm.replicas.replica import ReplicaSpec
from harness_llm.runs.record import State

SAMPLES = 60
WARM_UP = 8
BEFORE = 2 + WARM_UP  # completions until a replica is ready: two of the engine's own, and the calibration prompts
PROGRAM = Path(__file__).with_name("token_server.py")
SETS = ("harness_config.warm_up_tokens=4", f"llm_config.max_num_seqs={WARM_UP}", "harness_config.backlog=4")
PROMPTS = [[7 + index, 8, 9 + index % 7] for index in range(SAMPLES)]


class Unscored(Scorer):
    """Judges a run by LoadGen's log alone: answers without a model have no score."""

    def judge(self, run: Path, samples: int, *, enforce: bool) -> RunResult:
        log = parse_detail(run / DETAIL)
        return RunResult(State.INVALID if log.errors else State.VALID, [str(error) for error in log.errors])


def make_runs(folder: Path) -> Runs:
    workspace = make_workspace(folder / "workspace")
    return Runs(workspace, make_assets(folder / "assets"), "openai", *SETS, samples=SAMPLES, scorer=Unscored)


def make_assets(folder: Path) -> Assets:
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"vocab_size": 512}))
    write_store(folder / "evaluation", PROMPTS, ["text"] * SAMPLES)
    write_store(folder / "calibration", PROMPTS[:WARM_UP], ["text"] * WARM_UP)
    return Assets(folder, folder, {"evaluation": folder / "evaluation"}, folder / "calibration")


@contextmanager
def pool_of(
    runs: Runs, scenario: str, server: TokenServer, *sets: str, samples: int | None = None
) -> Iterator[tuple[Request, ReplicaPool]]:
    """A run's request, and one replica in front of `server`."""
    request = runs.request(scenario, f"server_config.url={server.url}", *sets, samples=samples)
    with runs.pool(request) as pool:
        yield request, pool


def own_server(*words: object) -> str:
    """The setting by which a replica starts a server of its own."""
    return f"server_config.command='{{python}} {PROGRAM} --port {{port}} {' '.join(map(str, words))}'"


def right(index: int) -> list[int]:
    """The answer to sample `index`."""
    return answer_to(PROMPTS[index], {"stop_token_ids": [2], "max_tokens": 48})[0]


def continued(index: int) -> list[int]:
    """The answer to sample `index` when a second server continues after the reported first token."""
    first = right(index)[:1]
    return first + answer_to(PROMPTS[index] + first, {"stop_token_ids": [2], "max_tokens": 47})[0]


# Ways to break a replica


class BreaksWhenHeld:
    """Breaks a replica once, when the queries in flight are those whose answers the servers hold back.

    That is when `issued` queries were issued and two status lines have the same number of answers.
    """

    def __init__(self, fault: Callable[[Child], object], replica: Child, issued: int = SAMPLES) -> None:
        self._fault, self._replica, self._issued = fault, replica, issued
        self._done = -1
        self.acted = False

    def progress(self, body: Mapping[str, Any]) -> None:
        held = body.get("unanswered") and body["issued"] >= self._issued
        if not self.acted and held and body["done"] == self._done:
            self.acted = True
            self._fault(self._replica)
        self._done = body.get("done", -1)


def kill(replica: Child) -> None:
    replica.process.kill()


def suspend(replica: Child) -> None:
    os.kill(replica.process.pid, signal.SIGSTOP)


def end_server(replica: Child) -> None:
    """End the server that the replica has started, so that its engine raises."""
    [server] = [p for p in psutil.Process(replica.process.pid).children(recursive=True) if not p.children()]
    server.kill()


def exhaust_memory(replica: Child) -> None:
    """Let the engine's next step ask for more memory than there is."""
    replica.log.with_suffix(".hungry").touch()


def launch_hungry(name: str, specs: Sequence[ReplicaSpec], environment: Mapping[str, str], log: Path) -> Child:
    """Start a replica that `exhaust_memory` can break."""
    file = Path(environment["TMPDIR"]) / f"{name}.json"
    file.write_bytes(msgspec.json.encode(specs[0]))
    more = {"HUNGRY": str(log.with_suffix(".hungry")), "PYTHONPATH": str(PROGRAM.parent)}
    return start("hungry_replica", [str(file)], name=name, log=log, environment={**environment, **more})
