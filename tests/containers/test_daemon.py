"""Errors and exit codes where containers are not available, with a real daemon and an ordinary user."""

import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from account import Account
from dockerd import Dockerd, run, start

pytestmark = pytest.mark.containers

START = ("bash", "setup/start_submission_env.sh", "true")
BUILD = ("bash", "setup/build_submission_env.sh")
SUBMISSION = ("make", "submission", "ENVIRONMENT=container", "COMPANY=Acme", "SYSTEM_NAME=box")


def refused(done: "subprocess.CompletedProcess[str]", *sentences: str) -> None:
    """The command exits with 3, without a traceback, and prints all `sentences`."""
    assert done.returncode == 3, done.stderr
    assert "Traceback" not in done.stderr
    for sentence in sentences:
        assert sentence in done.stderr


@pytest.mark.parametrize("command", [START, BUILD])
def test_stopped_daemon_is_reported(account: Account, command: tuple[str, ...]) -> None:
    done = account.run(*command, DOCKER_HOST="unix:///nowhere.sock")
    refused(
        done,
        "error: Docker daemon not reachable\n  where: unix:///nowhere.sock\n",
        "sudo systemctl enable --now docker",
    )


def test_submission_without_a_daemon_is_refused(account: Account) -> None:
    done = account.run(*SUBMISSION, DOCKER_HOST="unix:///nowhere.sock")
    assert done.returncode == 2  # make's own
    assert "error: Docker daemon not reachable\n" in done.stderr
    assert "Error 3\n" in done.stderr


@pytest.mark.parametrize("command", [START, BUILD])
def test_user_without_docker_permission_is_refused(account: Account, command: tuple[str, ...]) -> None:
    done = replace(account, groups=()).run(*command)
    refused(
        done,
        "error: no permission to use Docker\n",
        "sudo groupadd --force docker\n",
        'docker "$USER"\n',
        "newgrp docker\n",
    )


@pytest.mark.parametrize("gpu", ["h200", "mi300x"])
def test_image_that_is_not_built_is_reported(account: Account, gpu: str) -> None:
    done = account.run(*START, GPU_NAME=gpu)
    platform = {"h200": "cuda", "mi300x": "rocm"}[gpu]
    refused(
        done,
        "error: missing image\n",
        f"harness-llm-submission:{platform}",
        "bash setup/build_submission_env.sh\n",
    )


@pytest.fixture
def cuda_image(dockerd: Dockerd, base_image: str) -> Iterator[str]:
    """An image by the name of the one for NVIDIA's accelerators; what is in it does not matter."""
    tag = "harness-llm-submission:cuda"
    dockerd.docker("tag", base_image, tag)
    yield tag
    dockerd.docker("rmi", tag)


def test_missing_gpu_runtime_is_reported(account: Account, cuda_image: str, dockerd: Dockerd) -> None:
    done = account.run(*START, GPU_NAME="h200")
    refused(
        done,
        "error: GPUs of this machine are not accessible in containers\n",
        "could not select device driver",
        "sudo nvidia-ctk runtime configure --runtime=docker\n",
    )
    assert not dockerd.docker("ps", "--all", "--quiet")


@pytest.fixture
def cpu_image(dockerd: Dockerd, base_image: str) -> Iterator[str]:
    """An image by the name of the one that needs no accelerator, unless it is there already."""
    tag = "harness-llm-submission:cpu"
    there = tag in dockerd.docker("image", "ls", "--format", "{{.Repository}}:{{.Tag}}").split()
    if not there:
        dockerd.docker("tag", base_image, tag)
    yield tag
    if not there:
        dockerd.docker("rmi", tag)


def test_missing_folder_is_refused(account: Account, cpu_image: str) -> None:
    done = account.run(*START, LAB_MODEL="/nowhere/models")
    refused(
        done, "missing folder for /model in the container\n", "where: /nowhere/models\n", "mkdir -p /nowhere/models"
    )
    assert not Path("/nowhere").exists()  # docker's --volume would have made it


def test_unwritable_folder_is_refused(account: Account, cpu_image: str) -> None:
    done = account.run(*START, LAB_DATASET="/usr/share")
    refused(done, "error: no write access of the container's user\n", "where: /usr/share\n", "LAB_DATASET")


def test_full_disk_is_reported(account: Account) -> None:
    """The daemon's disk is one of 64 MiB."""
    disk = account.home / "disk"
    disk.mkdir()
    run("mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", disk)
    try:
        with start(disk / "data") as small:
            done = account.run(*BUILD, DOCKER_HOST=small.host)
    finally:
        run("umount", "--lazy", disk)
    refused(done, "error: not enough disk space for the images\n", f"where: {disk / 'data'}\n", "found: 0.1 GiB\n")


@pytest.mark.parametrize("asked", ["", "0:0", "nobody"])
def test_root_must_name_the_user_of_the_container(account: Account, cpu_image: str, asked: str) -> None:
    done = subprocess.run(
        [
            "bash",
            "-c",
            'exec "$0" -m harness_llm.containers start submission true',
            account.checkout / ".venv-host/bin/python",
        ],
        cwd=account.checkout,
        env={"PATH": "/usr/bin:/bin", "RUN_AS": asked, **account.environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert "RUN_AS" in done.stderr
