"""Facts about the Docker daemon, from replies of a fake one; tests/containers asks a real one."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import docker
import pytest
import requests
from docker.context import ContextAPI
from docker.errors import APIError, DockerException, ImageNotFound
from docker.types import DeviceRequest

from harness_llm.containers import daemon as daemons
from harness_llm.containers.build import require_base, require_buildx
from harness_llm.containers.daemon import Daemon, connect, refusal, require_client
from harness_llm.errors import EnvironmentMissing


class FakeContainer:
    """A container whose command ends with `code`, or never; `refusal` is raised by its removal."""

    def __init__(self, code: int | None, refusal: Exception | None = None) -> None:
        self.code = code
        self.refusal = refusal
        self.removed = False

    def start(self) -> None:
        """Do nothing."""

    def wait(self, timeout: float | None = None) -> dict[str, int]:
        """Return the exit code."""
        if self.code is None:
            assert timeout
            raise requests.ConnectionError("Read timed out.")  # as docker's client over a socket
        return {"StatusCode": self.code}

    def logs(self) -> bytes:
        """Return no output."""
        return b""

    def remove(self, *, force: bool) -> None:
        """Note the removal."""
        self.removed = force
        if self.refusal:
            raise self.refusal


def fake(info: dict[str, Any] | None = None, container: FakeContainer | None = None, **words: bool) -> Daemon:
    client = SimpleNamespace(info=lambda: info or {}, api=SimpleNamespace(base_url="http+docker://localhost"))
    client.asked = []

    def create(*_: object, device_requests: list[DeviceRequest], **__: object) -> FakeContainer | None:
        client.asked += device_requests
        return container

    client.containers = SimpleNamespace(create=create)
    return Daemon(client, **words)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("status", "present", "expected"),
    [
        ([["driver-type", "io.containerd.snapshotter.v1"]], True, "containerd"),
        ([["driver-type", "io.containerd.snapshotter.v1"]], False, "docker"),
        ([["Backing Filesystem", "extfs"]], True, "docker"),
        (None, True, "docker"),
    ],
)
def test_folder_of_the_images_is_that_of_the_image_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, status: list[list[str]] | None, present: bool, expected: str
) -> None:
    monkeypatch.setattr(daemons, "_CONTAINERD", tmp_path / "containerd")
    if present:
        (tmp_path / "containerd").mkdir()
    info = {"DockerRootDir": f"{tmp_path}/docker", "DriverStatus": status}
    assert fake(info).folder == f"{tmp_path}/{expected}"
    assert fake(info | {"SecurityOptions": ["name=rootless"]}).folder == f"{tmp_path}/docker"


def test_rootless_docker_is_found() -> None:
    assert fake({"SecurityOptions": ["name=seccomp,profile=builtin", "name=rootless"]}).is_rootless
    assert not fake({"SecurityOptions": ["name=seccomp,profile=builtin"]}).is_rootless
    assert not fake({"SecurityOptions": None}).is_rootless
    assert not fake({"SecurityOptions": ["name=rootless"]}, podman=True).is_rootless


@pytest.mark.parametrize(
    "refusal",
    [
        None,
        APIError("tried to kill container, but did not receive an exit event"),  # the driver blocks the process
        requests.ReadTimeout("Read timed out."),
    ],
)
def test_hanging_nvidia_smi_in_a_container_is_an_error(refusal: Exception | None) -> None:
    container = FakeContainer(None, refusal)
    with pytest.raises(EnvironmentMissing, match="found: nvidia-smi -L did not end within 180 s"):
        fake(container=container).require_gpus("image:cuda")
    assert container.removed


def test_failing_removal_of_an_exited_container_is_raised() -> None:
    with pytest.raises(APIError, match="device or resource busy"):
        fake(container=FakeContainer(0, APIError("device or resource busy"))).require_gpus("image:cuda")


def test_gpu_request_to_podman_has_their_cdi_name() -> None:
    docker_, podman = fake(container=FakeContainer(0)), fake(container=FakeContainer(0), podman=True)
    for daemon in (docker_, podman):
        daemon.require_gpus("image:cuda")
    assert docker_.client.asked == [DeviceRequest(count=-1, capabilities=[["gpu"]])]  # type: ignore[attr-defined]
    assert podman.client.asked == [DeviceRequest(driver="cdi", device_ids=["nvidia.com/gpu=all"])]  # type: ignore[attr-defined]


def test_start_of_a_container_may_take_longer_than_the_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    client = SimpleNamespace(ping=lambda: None, api=SimpleNamespace(timeout=60))
    monkeypatch.setattr(docker, "from_env", lambda: client)
    assert connect().client.api.timeout == 600


@pytest.mark.parametrize("podman", [False, True])
def test_missing_daemon_is_reported_with_the_way_without_containers(
    monkeypatch: pytest.MonkeyPatch, podman: bool
) -> None:
    def fail() -> None:
        raise DockerException("no such file")

    monkeypatch.setattr(docker, "from_env", fail)
    with pytest.raises(EnvironmentMissing, match="make ENVIRONMENT=local"):
        connect(podman=podman)


def test_folder_that_the_daemon_does_not_see_has_a_hint() -> None:
    said = 'invalid mount config for type "bind": stat /home/me/checkout: permission denied'
    assert "root_squash" in refusal(said, where="docker").hint


def program(folder: Path, script: str) -> str:
    """A program that answers as docker's command line."""
    file = folder / "docker"
    file.write_text(f"#!/bin/sh\n{script}\n")
    file.chmod(0o755)
    return str(file)


def test_command_line_of_docker_must_use_the_same_daemon(tmp_path: Path) -> None:
    require_client(program(tmp_path, "echo one"), fake({"ID": "one"}))
    with pytest.raises(EnvironmentMissing, match=r"expected: daemon one\n  found: daemon two\n(.|\n)*DOCKER_CONTEXT"):
        require_client(program(tmp_path, "echo two"), fake({"ID": "one"}))
    with pytest.raises(EnvironmentMissing, match=r"found: context not found\n"):
        require_client(program(tmp_path, "echo context not found >&2; exit 1"), fake({"ID": "one"}))
    require_client("/none", fake({}, podman=True))


def test_address_of_the_current_context_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DOCKER_HOST", raising=False)
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    (tmp_path / "config.json").write_text("{}")  # without it, contexts are in the working directory
    ContextAPI.create_context("other", host=f"unix://{tmp_path}/none.sock")
    monkeypatch.setenv("DOCKER_CONTEXT", "other")
    assert f"unix://{tmp_path}/none.sock, of docker's context" in daemons._endpoint()
    monkeypatch.setenv("DOCKER_HOST", "unix:///mine.sock")
    assert daemons._endpoint() == "unix:///mine.sock"


@pytest.mark.parametrize(
    ("version", "buildx", "found"),
    [
        ("Docker version 28.2.2, build e6534b4", 1, True),
        ("Docker version 28.2.2, build e6534b4", 0, False),
        ("Docker version 20.10.24+dfsg1, build 297e128", 1, False),
        ("podman version 4.3.1", 1, False),
    ],
)
def test_missing_buildx_is_found_where_docker_needs_it(
    tmp_path: Path, version: str, buildx: int, *, found: bool
) -> None:
    docker_ = program(
        tmp_path, f'[ "$1" = --version ] && echo "{version}" && exit; echo unknown command >&2; exit {buildx}'
    )
    if not found:
        require_buildx(docker_)
        return
    with pytest.raises(EnvironmentMissing, match=r"missing buildx component of docker\n(.|\n)*found: unknown command"):
        require_buildx(docker_)


@pytest.mark.parametrize(
    ("local", "podman", "refused"), [(True, False, False), (False, True, False), (False, False, True)]
)
def test_base_image_must_be_here_or_in_its_registry(*, local: bool, podman: bool, refused: bool) -> None:
    def get(_: str) -> None:
        if not local:
            raise ImageNotFound("none")

    def ask(_: str) -> None:
        raise APIError("500 Server Error", explanation="dial tcp: no such host")

    daemon = fake(podman=podman)
    daemon.client.images = SimpleNamespace(get=get, get_registry_data=ask)  # type: ignore[misc]
    if not refused:
        require_base(daemon, "mine:1")
        return
    with pytest.raises(EnvironmentMissing, match=r"base image not available\n  where: mine:1\n(.|\n)*no such host"):
        require_base(daemon, "mine:1")
