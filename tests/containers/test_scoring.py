"""Scoring from inside a container: programs that a model wrote run in containers that the host starts.

The asking container has the base image with this checkout and its environment, as an image of ours takes minutes.
"""

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from dockerd import PATH, Dockerd
from images import SECRET

from harness_llm.containers.arguments import Container, Mount
from harness_llm.containers.scoring_server import offer
from harness_llm.errors import HarnessError
from harness_llm.evaluate import scoring_service as service
from harness_llm.evaluate.mbxp.container import IMAGE, arguments, run_programs
from harness_llm.evaluate.mbxp.programs import Program
from harness_llm.paths import CHECKOUT

pytestmark = pytest.mark.containers

SLOW = Program("python", "import time; time.sleep(600)")
PROGRAMS = {
    "import os; assert os.getuid() == 65534 and os.getpid() != 1": True,
    "import os; assert os.listdir('/sys/class/net') == ['lo']": True,
    "import os; assert not os.path.exists('/run/secrets/hf_token') and not os.path.exists('/run/harness-llm')": True,
    f"import os; assert {SECRET!r} not in str(os.environ)": True,
    f"import os; os.listdir({str(CHECKOUT)!r})": False,
    "x = bytearray(4 << 30)": False,
    "import os\nwhile True: os.fork()": False,
    "while True: pass": False,
    "assert True": True,
}
"""Programs in one container, and whether each one passes: limits hold, and the next program still runs."""
RUN_PROGRAMS = """
import json, os, sys
from harness_llm.evaluate.mbxp.container import run_programs
from harness_llm.evaluate.mbxp.programs import Program
assert os.path.exists("/run/secrets/hf_token")
print(json.dumps(run_programs([Program("python", code) for code in json.loads(sys.argv[1])], 1)))
"""
# In place of the reference's script: it looks for what it must not see.
EVALUATOR = f"""
import os, sys

def refused(path):
    try:
        open(path, "w")
    except OSError:
        return True

def main():
    assert os.listdir("/sys/class/net") == ["lo"]
    assert not os.path.exists("/run/secrets/hf_token") and {SECRET!r} not in str(os.environ)
    assert refused(__file__) and refused("/data/x")
    assert os.path.isfile("openai/gpt-oss-120b/tokenizer.json")
    assert os.path.isfile("submodules/LiveCodeBench/livecodebench/code_generation_lite/test.jsonl")
    open(sys.argv[sys.argv.index("--output-file") + 1], "w")
    print("'exact_match': 83.130")
"""
EVALUATE = """
from pathlib import Path
from harness_llm.evaluate.official.script_runner import evaluate, require_accuracy_script
from harness_llm.evaluate.official.scripts import Inputs
require_accuracy_script("gpt-oss-120b")
data = Path("/data")
print(evaluate("gpt-oss-120b", Inputs(data / "log.json", data / "log.json", data, data), 2))
"""


@pytest.fixture
def asking(dockerd: Dockerd, base_image: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Container]:
    """A container with a scoring service; the base image is also MBXP's, with Python alone."""
    dockerd.docker("tag", base_image, IMAGE)
    monkeypatch.setenv("DOCKER_HOST", dockerd.host)
    monkeypatch.setenv("PATH", f"{PATH}:{os.environ['PATH']}")
    for name in ("workspace", "data", "graders/bin"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "graders/bin/python").symlink_to("/usr/bin/python3.11")
    mounts = [Mount(CHECKOUT, str(CHECKOUT)), Mount(Path(sys.base_prefix), sys.base_prefix)]
    own = {"workspace": "/workspace", "data": "/data", "graders": "/.venv-graders"}
    mounts += [Mount(tmp_path / name, target) for name, target in own.items()]
    with offer(Container("docker", base_image, "stage", "0:0", tuple(mounts))) as served:
        yield served


def run_inside(asking: Container, token: Path, *command: str) -> str:
    """The output of a command in the container, which has a token."""
    token.write_text(SECRET)
    words = ["docker", "run", "--rm", "--network", "none", "--cap-drop", "ALL", "--env", f"HF_TOKEN={SECRET}"]
    words += ["--env", "HARNESS_LLM_WORKSPACE=/workspace", "--env", f"PYTHONPATH={CHECKOUT}"]
    for mount in (*asking.mounts, Mount(token, "/run/secrets/hf_token", writable=False)):
        words += ["--mount", str(mount)]
    for name, value in asking.environment.items():
        words += ["--env", f"{name}={value}"]
    done = subprocess.run([*words, asking.image, *command], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_programs_run_in_a_container_of_the_host(asking: Container, dockerd: Dockerd, tmp_path: Path) -> None:
    command = (sys.executable, "-c", RUN_PROGRAMS, json.dumps(list(PROGRAMS)))
    assert json.loads(run_inside(asking, tmp_path / "token", *command)) == list(PROGRAMS.values())
    assert not dockerd.docker("ps", "--all", "--quiet")


def test_evaluator_runs_in_a_container_of_the_host(asking: Container, dockerd: Dockerd, tmp_path: Path) -> None:
    script = tmp_path / "workspace/build/inference/language/gpt-oss-120b/eval_mlperf_accuracy.py"
    router = script.parent / "submodules/LiveCodeBench/lcb_runner/runner/scenario_router.py"
    router.parent.mkdir(parents=True)
    router.write_text("")
    script.write_text(EVALUATOR)
    answers = [{"seq_id": i, "qsl_idx": i, "data": np.array([i], "<i4").tobytes().hex()} for i in range(2)]
    for name, text in {"log.json": json.dumps(answers), "tokenizer.json": "", "test.jsonl": ""}.items():
        (tmp_path / "data" / name).write_text(text)
    printed = run_inside(asking, tmp_path / "token", sys.executable, "-c", EVALUATE)
    assert printed == "{'TOKENS_PER_SAMPLE': 1.0, 'GEN_NUM': 2, 'EXACT_MATCH': 83.13}\n"
    assert not dockerd.docker("ps", "--all", "--quiet")


def test_other_users_cannot_connect(asking: Container, dockerd: Dockerd) -> None:
    connect = f"import socket; socket.socket(socket.AF_UNIX).connect({asking.environment[service.VARIABLE]!r})"
    words = ("run", "--rm", "--user", "1234:1234", "--cap-drop", "ALL", "--mount", str(asking.mounts[-1]))
    with pytest.raises(AssertionError, match="PermissionError"):
        dockerd.docker(*words, "--network", "none", asking.image, "python3", "-c", connect)


def runs(dockerd: Dockerd, program: Program) -> bool:
    """Whether a container runs a program; before it, one with small programs starts and ends."""
    names = dockerd.docker("ps", "--format", "{{.Names}}").split()
    command = ["docker", "exec", *names[:1], "sh", "-c", "cat /tmp/*/main.py"]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    return program.code in found.stdout


def wait_until_gone(dockerd: Dockerd) -> None:
    deadline = time.monotonic() + 60
    while dockerd.docker("ps", "--all", "--quiet"):
        assert time.monotonic() < deadline
        time.sleep(0.2)


def test_programs_end_with_the_stage(
    dockerd: Dockerd, base_image: str, asking: Container, monkeypatch: pytest.MonkeyPatch
) -> None:
    failures: list[HarnessError] = []

    def score() -> None:
        try:
            run_programs([SLOW], 1)
        except HarnessError as error:
            failures.append(error)

    thread = threading.Thread(target=score)
    with offer(Container("docker", base_image, "stage", "0:0")) as served:
        monkeypatch.setenv(service.VARIABLE, str(served.mounts[-1].source / "scoring.sock"))
        thread.start()
        while not runs(dockerd, SLOW):
            thread.join(0.2)
            assert thread.is_alive()
    thread.join(60)
    assert [error.what for error in failures] == ["scoring was interrupted"]
    assert not dockerd.docker("ps", "--all", "--quiet")


def test_programs_end_when_the_process_on_the_host_is_killed(dockerd: Dockerd, asking: Container) -> None:
    with subprocess.Popen(arguments("docker", "killed"), stdin=subprocess.PIPE, text=True) as process:
        assert process.stdin
        process.stdin.write(f"{json.dumps(SLOW._asdict())}\n\n")
        process.stdin.flush()
        while not runs(dockerd, SLOW):
            assert process.poll() is None
            time.sleep(0.2)
        process.kill()
    wait_until_gone(dockerd)
