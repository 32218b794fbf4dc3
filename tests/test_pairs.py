"""A submission by one documented way, then the plan of every other one: it measures nothing again.

The runs are real ones, of make, of harness-llm and of a script. Between a container and the machine the plan names the
difference; the container is represented by the variables that `docker run` passes to it.
"""

import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from terminal import Terminal, prepared_workspace
from ways import PROGRAM, RUNS, Way, done, options, plans, refused, scripts, typed, without_model

from harness_llm.config.assets import Assets
from harness_llm.containers import from_environment
from harness_llm.containers.arguments import run_arguments
from harness_llm.containers.container_spec import load_accelerator
from harness_llm.paths import IMAGE_VARIABLE, Workspace
from harness_llm.runs.fingerprint import IMAGE_ID_VARIABLE
from harness_llm.runs.record import RECORD, State, find_runs

pytestmark = [pytest.mark.engine(seconds=180), pytest.mark.slow]

SYSTEM, SCRIPT = "pair-box", "llama2_70b.sh"
SETTINGS = {"MODEL": "llama2-70b", "STAND_IN": "1", "COMPANY": "Acme", "SYSTEM_NAME": SYSTEM}
FIRST = {
    "make": Way(("make", "submission", *typed(SETTINGS))),
    "harness-llm": Way((PROGRAM, "submit", *options(SETTINGS))),
    "script": Way(("sh", f"submission/{SCRIPT}"), without_model(SETTINGS)),
}
SECOND = [*plans(SETTINGS, Path()), *scripts(SETTINGS, SCRIPT, Path())]
IMAGE_ID = "sha256:0123"
CONTAINER_SETTINGS = {"RUN_AS": f"{os.getuid() or 1000}:1000", "DOCKER": "/bin/true"}


def short_workspace(root: Path, assets: Assets) -> Workspace:
    """A workspace whose smoke runs take seconds, and are VALID beside other programs that use all cores."""
    workspace = prepared_workspace(root, assets)
    for file, before, after in (
        (workspace.benchmarks / "profiles.yaml", "samples: 2048", "samples: 512"),
        (workspace.user_confs / "user_stand-in.conf", "Server.target_qps = 40", "Server.target_qps = 20"),
    ):
        text = file.read_text()
        assert before in text
        file.write_text(text.replace(before, after))
    return workspace


@pytest.fixture(scope="module")
def submission(assets: Assets, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Terminal]:
    """A finished submission through make."""
    terminal = Terminal(short_workspace(tmp_path_factory.mktemp("make"), assets))
    ended = terminal.until_valid(lambda: FIRST["make"].run(terminal))
    assert ended.code == 0, ended.err
    yield terminal
    terminal.close()


@pytest.fixture(scope="module")
def copied(
    submission: Terminal, assets: Assets, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[], Terminal]]:
    """Return a function that copies the finished submission into a workspace of its own."""
    made: list[Terminal] = []

    def copy() -> Terminal:
        workspace = short_workspace(tmp_path_factory.mktemp("copy"), assets)
        for name in ("logs", "data"):
            source, target = (getattr(each, name) for each in (submission.workspace, workspace))
            shutil.copytree(source, target, dirs_exist_ok=True)
        made.append(Terminal(workspace))
        return made[-1]

    yield copy
    for terminal in made:
        terminal.close()


@pytest.fixture(scope="module", params=FIRST)
def first(request: pytest.FixtureRequest, submission: Terminal, copied: Callable[[], Terminal]) -> Terminal:
    """A submission that this way has finished: all runs through make, or the last missing one through another way."""
    if request.param == "make":
        return submission
    terminal = copied()
    before = find_runs(terminal.workspace.logs, SYSTEM)
    [removed] = [run for run in before if (run.run_key.scenario, run.run_key.test) == ("Offline", "performance")]
    shutil.rmtree(removed.path)
    ended = FIRST[request.param].run(terminal)
    assert ended.code == 0, ended.err
    new = [run for run in find_runs(terminal.workspace.logs, SYSTEM) if run.path not in {one.path for one in before}]
    assert [(run.run_key, run.state) for run in new] == [(removed.run_key, State.VALID)]
    return terminal


@pytest.mark.parametrize("way", SECOND)
def test_another_way_plans_nothing(first: Terminal, way: str, tmp_path: Path) -> None:
    ways = plans(SETTINGS, tmp_path) | scripts(SETTINGS, SCRIPT, tmp_path)
    assert done(ways[way].plan(first)) == RUNS


@pytest.mark.parametrize("way", ["make", "harness-llm", "script"])
@pytest.mark.parametrize(("name", "value"), [("CUDA_VISIBLE_DEVICES", ""), ("HSA_NO_SCRATCH_RECLAIM", "1")])
def test_exported_variable_of_an_engine_is_named(submission: Terminal, way: str, name: str, value: str) -> None:
    ways = plans(SETTINGS, Path()) | scripts(SETTINGS, SCRIPT, Path())
    plan = ways[way].plan(submission, **{name: value})
    assert (done(plan), refused(plan, f"inherited.{name}: absent vs {value or 'empty'}")) == (0, RUNS)


# Between a container and the machine


def in_container(terminal: Terminal) -> str:
    """The plan with the variables of a container of the submission image, and the folders of this workspace."""
    accelerator = load_accelerator("cpu")[1]
    container = from_environment.container("submission", "cpu", accelerator, CONTAINER_SETTINGS)
    words = run_arguments(accelerator, container, ["harness-llm"])
    passed = [words[place + 1] for place, word in enumerate(words) if word == "--env"]
    workspace = terminal.workspace
    own = {"LAB_MODEL": str(workspace.models), "LAB_DATASET": str(workspace.data)}
    environ = dict(pair.split("=", 1) for pair in passed) | own
    of_image = {IMAGE_VARIABLE: "submission", IMAGE_ID_VARIABLE: IMAGE_ID}
    return Way((PROGRAM, "submit", "--dry-run", *options(SETTINGS)), environ | of_image).plan(terminal)


@pytest.fixture(scope="module")
def container(copied: Callable[[], Terminal]) -> Terminal:
    """A submission whose records are those of a container: they differ in the image alone."""
    terminal = copied()
    for record in terminal.workspace.logs.rglob(RECORD):
        document = json.loads(record.read_text())
        assert document["fingerprint"]["image"] == ""
        document["fingerprint"]["image"] = IMAGE_ID
        record.write_text(json.dumps(document))
    return terminal


def test_plan_in_a_container_names_the_image_after_runs_on_the_machine(submission: Terminal) -> None:
    plan = in_container(submission)
    assert (done(plan), refused(plan, f"image: empty vs {IMAGE_ID}")) == (0, RUNS)


def test_plan_on_the_machine_names_the_image_after_runs_in_a_container(container: Terminal) -> None:
    plan = plans(SETTINGS, Path())["harness-llm"].plan(container)
    assert (done(plan), refused(plan, f"image: {IMAGE_ID} vs empty")) == (0, RUNS)


def test_container_plans_nothing_after_runs_in_a_container(container: Terminal) -> None:
    assert done(in_container(container)) == RUNS


def test_pairs_are_at_least_twenty() -> None:
    assert len(FIRST) * len(SECOND) >= 20
