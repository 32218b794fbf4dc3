"""A container can use the Hugging Face token; no other file, layer or process shows it."""

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from account import Account
from dockerd import PATH, Dockerd
from images import IMAGES, SECRET, Ended
from publisher import Publisher

from harness_llm.config.benchmark import load_benchmark
from harness_llm.paths import CHECKOUT, Workspace

pytestmark = pytest.mark.containers

START = ("bash", "setup/start_model_and_dataset_env.sh")
FILE = "/run/secrets/hf_token"
BENCHMARK = "llama2-70b"


@pytest.fixture
def hub() -> Iterator[Publisher]:
    """Hugging Face, with the benchmark's files, each a few bytes."""
    wanted = next(d for d in load_benchmark(BENCHMARK, Workspace(CHECKOUT)).downloads if d.part == "model")
    names = [name.replace("*", "1") for name in wanted.files]
    with Publisher() as publisher:
        publisher.repository(str(wanted.repo), str(wanted.revision), dict.fromkeys(names, b"{}"))
        yield publisher


@pytest.mark.parametrize("source", ["variable", "file"])
def test_download_in_a_container_sends_the_token(
    source: str,
    builds: dict[str, Ended],
    account: Account,
    hub: Publisher,
    tmp_path: Path,
) -> None:
    login = account.home / ".cache/huggingface/token"
    if source == "file":
        account.write(login, SECRET)
    command = ("env", "NO_PROXY=127.0.0.1", "harness-llm", "download", "--model", BENCHMARK, "--part", "model")
    models = account.home / f"models-{source}"
    account.run("mkdir", models)
    variable = {"HUGGINGFACE_ACCESS_TOKEN": SECRET} if source == "variable" else {}
    done = account.run(*START, *command, LAB_MODEL=str(models), HF_ENDPOINT=hub.url, **variable)
    login.unlink(missing_ok=True)
    assert done.returncode == 0, done.stderr
    assert {asked.headers.get("Authorization") for asked in hub.asked} == {f"Bearer {SECRET}"}
    assert any(models.rglob("config.json"))


def arguments() -> str:
    """Those of every process of this machine, containers among them."""
    files = Path("/proc").glob("[0-9]*/cmdline")
    return "\n".join(read(file) for file in files)


def read(file: Path) -> str:
    try:
        return file.read_text(errors="replace")
    except OSError:  # ended meanwhile
        return ""


def test_token_is_only_in_its_file(
    builds: dict[str, Ended],
    account: Account,
    dockerd: Dockerd,
) -> None:
    inside = f"cat {FILE}; stat --format ' %a %u' {FILE}; touch {FILE} 2>&1; env; sleep 1000"
    process = account.start(*START, "sh", "-c", inside, HF_TOKEN=SECRET)
    try:
        while not (running := dockerd.docker("ps", "--quiet").split()):
            assert process.poll() is None, process.communicate()
            time.sleep(0.1)
        time.sleep(1)
        told = [dockerd.docker("inspect", running[0]), arguments()]
        said = dockerd.docker("logs", running[0]).splitlines()
        assert said[0] == f"{SECRET} 400 {account.uid}"
        assert "Read-only file system" in said[1] or "Permission denied" in said[1]
        told += said[2:]  # its environment
    finally:
        dockerd.docker("kill", *dockerd.docker("ps", "--quiet").split())
        process.communicate()
    assert not [text for text in told if SECRET in text]
    assert not list(Path("/dev/shm").glob("harness-llm-*"))  # noqa: S108
    assert process.returncode


def test_service_account_is_a_variable_of_the_command(builds: dict[str, Ended], account: Account) -> None:
    done = account.run(*START, "printenv", "CF_ACCESS_CLIENT_SECRET", CF_ACCESS_CLIENT_SECRET=SECRET)
    assert done.stdout == f"{SECRET}\n", done.stderr


def test_no_image_layer_contains_the_token(
    builds: dict[str, Ended],
    dockerd: Dockerd,
) -> None:
    names = list(IMAGES.values())
    assert SECRET not in dockerd.docker("image", "inspect", *names)
    assert not [name for name in names if SECRET in dockerd.docker("history", "--no-trunc", name)]
    pipe = 'docker --host "$0" save "${@:2}" | LC_ALL=C grep --count --fixed-strings --binary-files=text -- "$1"'
    command = ["bash", "-c", pipe, dockerd.host, SECRET, *names]  # layers that both have are saved once
    found = subprocess.run(command, env={"PATH": PATH}, capture_output=True, text=True, check=False)
    assert (found.stdout, found.returncode) == ("0\n", 1), found.stderr
