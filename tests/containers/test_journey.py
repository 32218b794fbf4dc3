"""Both images from a clean daemon, and a submission in them by an ordinary user: interrupted, continued, checked."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pytest
from account import Account
from dockerd import PATH, Dockerd
from images import IMAGES, SECRET, Ended, timed
from ways import PROGRAM, RUNS, done

from harness_llm.config.assets import Assets
from harness_llm.runs.record import Run, State, find_runs

pytestmark = pytest.mark.containers

SYSTEM = "test-box"
SUBMISSION = ("make", "submission", "ENVIRONMENT=container", "COMPANY=Acme", f"SYSTEM_NAME={SYSTEM}")
TREE = "submission/inference_results_6.1-smoke"


def image_id(dockerd: Dockerd, tag: str) -> str:
    return dockerd.docker("image", "inspect", "--format", "{{.Id}}", tag).strip()


@pytest.mark.parametrize("name", IMAGES)
def test_images_are_built_from_a_clean_daemon(
    name: str, builds: dict[str, Ended], account: Account, dockerd: Dockerd
) -> None:
    sys.stderr.write(f"{name}: built in {builds[name].seconds:.0f} s\n")
    assert builds[name].done.stdout == f"{IMAGES[name]}\n"
    labels = json.loads(dockerd.docker("image", "inspect", "--format", "{{json .Config.Labels}}", IMAGES[name]))
    commit = account.run("git", "rev-parse", "HEAD").stdout.strip()
    assert labels["org.opencontainers.image.revision"].startswith(commit)
    assert labels["harness-llm.image"] == name
    assert labels["harness-llm.version.torch"]


@pytest.mark.parametrize("name", IMAGES)
def test_each_image_starts_as_the_user_in_the_checkout(name: str, builds: dict[str, Ended], account: Account) -> None:
    words = "id -u; id -g; pwd; command -v harness-llm; touch /model/x /data/x submission/x; python -c 'import torch'"
    done = timed(account, "bash", f"setup/start_{name}_env.sh", "sh", "-c", words).done
    assert done.stdout.split()[:3] == [str(account.uid), str(account.gid), "/lab-mlperf-inference"]
    assert done.stdout.split()[3].startswith("/opt/harness/")
    for file in (account.checkout / folder / "x" for folder in ("build/models", "build/data", "submission")):
        assert (file.stat().st_uid, file.stat().st_gid) == (account.uid, account.gid)
        file.unlink()


def test_built_image_starts(builds: dict[str, Ended], account: Account) -> None:
    took = [timed(account, "bash", "setup/start_submission_env.sh", "true").seconds for _ in range(3)]
    sys.stderr.write(f"starts: {', '.join(f'{s:.1f}' for s in took)} s\n")


def test_exit_code_of_the_command_is_passed_on(builds: dict[str, Ended], account: Account) -> None:
    assert account.run("bash", "setup/start_submission_env.sh", "sh", "-c", "exit 7").returncode == 7


def test_script_of_a_benchmark_runs_in_the_container(builds: dict[str, Ended], account: Account) -> None:
    command = ("bash", "/lab-mlperf-inference/submission/llama2_70b.sh", "--dry-run")
    words = ("COMPANY=Acme", f"SYSTEM_NAME={SYSTEM}", "GPU_NAME=cpu", "STAND_IN=1")
    done = timed(account, "bash", "setup/start_submission_env.sh", "env", *words, *command).done
    assert "Offline      performance" in done.stderr


def test_changed_code_is_built_again(builds: dict[str, Ended], account: Account, dockerd: Dockerd) -> None:
    before = image_id(dockerd, IMAGES["submission"])
    with (account.checkout / "harness_llm" / "errors.py").open("a") as file:
        file.write("# changed\n")
    again = timed(account, "bash", "setup/build_submission_env.sh")
    sys.stderr.write(f"rebuilt in {again.seconds:.1f} s\n")
    assert image_id(dockerd, IMAGES["submission"]) != before


def runs(account: Account) -> list[Run]:
    return find_runs(account.checkout / "build" / "logs", SYSTEM)


def in_server_accuracy(account: Account, process: "subprocess.Popen[str]") -> bool:
    assert process.poll() is None, process.communicate()
    return any(
        (run.run_key.scenario, run.run_key.test, run.state) == ("Server", "accuracy", State.RUNNING)
        for run in runs(account)
    )


@dataclass(frozen=True)
class Journey:
    """A submission that Ctrl-C ended in its Server accuracy run, and the same command once more, with its image."""

    interrupted: "subprocess.CompletedProcess[str]"
    states: list[State]
    left: str
    again: Ended
    image: str


@pytest.fixture(scope="module")
def journey(builds: dict[str, Ended], account: Account, dockerd: Dockerd, assets: Assets) -> Journey:
    """The model is trained already; it is quantized, and its answers are scored, in the first container."""
    build = account.checkout / "build"
    account.copy(assets.original, build / "models" / assets.original.name)
    account.copy(assets.calibration.parent, build / "data" / assets.calibration.parent.name, without="reference")
    process = account.start(*SUBMISSION, HF_TOKEN=SECRET)
    while not in_server_accuracy(account, process):
        time.sleep(0.2)
    time.sleep(2)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does
    out, err = process.communicate()
    interrupted = subprocess.CompletedProcess(SUBMISSION, process.returncode, out, err)
    states, left = [run.state for run in runs(account)], dockerd.docker("ps", "--all", "--quiet")
    again = timed(account, *SUBMISSION, HF_TOKEN=SECRET)
    return Journey(interrupted, states, left, again, image_id(dockerd, IMAGES["submission"]))


def test_ctrl_c_ends_the_stage_and_leaves_no_container(journey: Journey) -> None:
    assert "interrupted; the same command continues\n" in journey.interrupted.stderr
    assert journey.interrupted.returncode
    assert Counter(journey.states) == {State.VALID: 4, State.INTERRUPTED: 1}
    assert not journey.left


def test_same_command_continues_to_a_checked_tree_of_its_user(journey: Journey, account: Account) -> None:
    sys.stderr.write(f"continued in {journey.again.seconds:.0f} s\n")
    assert Counter(run.state for run in runs(account)) == {State.VALID: 6, State.INTERRUPTED: 1}
    assert journey.again.done.stdout.splitlines()[-2].endswith(TREE)
    files = [account.checkout / TREE, *(account.checkout / TREE).rglob("*")]
    assert {(file.stat().st_uid, file.stat().st_gid) for file in files} == {(account.uid, account.gid)}
    assert "0 errors" in journey.again.done.stderr
    assert "this tree is not submittable: its runs are short" in journey.again.done.stderr


NAMES = ("--company", "Acme", "--system-name", SYSTEM)
START = ("bash", "setup/start_submission_env.sh")


@pytest.mark.parametrize(
    "command",
    [
        ("make", "status", "ENVIRONMENT=container", f"SYSTEM_NAME={SYSTEM}"),
        (*START, "harness-llm", "submit", "--dry-run", *NAMES),
        (*START, "sh", "setup/harness_llm.sh", "submit", "--dry-run", "--model", "demo", *NAMES),
        (*START, "make", "status", "MODEL=demo", f"SYSTEM_NAME={SYSTEM}"),
    ],
)
def test_other_ways_into_the_container_plan_nothing(
    journey: Journey, account: Account, command: tuple[str, ...]
) -> None:
    ended = timed(account, *command).done
    assert done(ended.stdout + ended.stderr) == RUNS


def test_plan_on_the_machine_names_the_image(journey: Journey, account: Account) -> None:
    environ = {"PATH": PATH, "HARNESS_LLM_WORKSPACE": str(account.checkout)}
    command = [PROGRAM, "submit", "--dry-run", *NAMES]
    plan = subprocess.run(command, env=environ, capture_output=True, text=True, check=True).stderr
    named = rf"image: {journey.image[:50]}\S* vs empty"  # a plan shortens values
    assert (done(plan), len(re.findall(named, plan))) == (0, RUNS), plan


def test_run_records_name_their_image(journey: Journey, account: Account) -> None:
    images = {run.record.fingerprint["image"] for run in runs(account) if run.record}
    assert images == {journey.image}


def test_no_run_log_or_tree_holds_the_token(journey: Journey, account: Account) -> None:
    folders = [account.checkout / "build", account.checkout / "submission"]
    held = subprocess.run(["grep", "-rlF", SECRET, *folders], capture_output=True, text=True, check=False)
    assert held.stdout == ""
    assert SECRET not in journey.again.done.stdout + journey.again.done.stderr
    assert Path(account.checkout, "build/containers/submit.log").stat().st_size
