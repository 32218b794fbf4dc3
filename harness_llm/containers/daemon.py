"""Docker daemon: connection, permission, images, GPUs, disk space."""

import os
import shutil
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import docker
import requests
from docker.context import ContextAPI
from docker.errors import APIError, DockerException, ImageNotFound
from docker.types import DeviceRequest

from harness_llm.errors import EnvironmentMissing

_GIB = 1024**3
_START = "start it: sudo systemctl enable --now docker (without systemd: sudo dockerd &)"
_START_PODMAN = (
    "this docker is podman; start its service and set DOCKER_HOST:"
    "\n      systemctl --user enable --now podman.socket"
    "\n      export DOCKER_HOST=unix://$XDG_RUNTIME_DIR/podman/podman.sock"
)
_JOIN = (
    "join the group docker (its members have root's rights on this machine):"
    "\n      sudo groupadd --force docker"
    '\n      sudo usermod --append --groups docker "$USER"'
    "\n      newgrp docker"
)
GPU_RUNTIME = (
    "install NVIDIA's Container Toolkit and configure Docker:"
    "\n      sudo apt install nvidia-container-toolkit   (docs.nvidia.com/datacenter/cloud-native)"
    "\n      sudo nvidia-ctk runtime configure --runtime=docker"
    "\n      sudo systemctl restart docker"
    "\n      podman: sudo nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml"
)
_WITHOUT = "\n      or, with NVIDIA GPUs, run without containers: make ENVIRONMENT=local ..."
EXIT_CODES = (125, 126, 127)
"""Exit codes of `docker run` when Docker itself fails (docs.docker.com, "docker container run", exit status)."""
_LIMITS = (
    "the Docker daemon cannot raise a limit above its own; show its limits with"
    '\n      prlimit --pid "$(pidof dockerd)" --memlock --stack'
    "\n      and set lower ones (bytes), for example DOCKER_ARGS='--ulimit memlock=8388608 --ulimit stack=8388608'"
)
_MOUNTS = (
    "the Docker daemon, which runs as root, must see this folder: it does not on another machine, and on NFS with"
    "\n      root_squash if a parent folder is closed for others; use a local disk, or chmod o+x the parent folders"
)
_HINTS = {"rlimit": _LIMITS, "invalid mount config": _MOUNTS}  # by a part of Docker's message
_REQUEST_S = 600
"""Time limit of a request; without persistence mode, the start of a container initializes all GPUs."""
_GPUS_S = 180
"""Time limit of nvidia-smi in a container, which hangs if a GPU's driver does."""
_CONTAINERD = Path("/var/lib/containerd")
_SNAPSHOTTER = "io.containerd.snapshotter.v1"


@dataclass(frozen=True)
class Image:
    """An image of the daemon.

    Attributes:
        id: sha256 of its configuration, which contains the digests of its layers.
    """

    tag: str
    id: str
    labels: Mapping[str, str]


class Daemon:
    """A connected daemon."""

    def __init__(self, client: docker.DockerClient, *, podman: bool = False) -> None:
        """Use `client` of Docker, or of `podman`; `connect` makes one."""
        self.client = client
        self.podman = podman

    def has(self, tag: str) -> bool:
        """Return whether the image exists."""
        try:
            self.client.images.get(tag)
        except ImageNotFound:
            return False
        return True

    def image(self, tag: str) -> Image:
        """Return the image `tag`.

        Raises:
            EnvironmentMissing: missing image.
        """
        try:
            found = self.client.images.get(tag)
        except ImageNotFound as error:
            name = tag.partition(":")[0].removeprefix("harness-llm-")
            raise EnvironmentMissing(
                "missing image",
                where=_address(self.client),
                expected=tag,
                found="no image of this name",
                hint=f"bash setup/build_{name}_env.sh",
            ) from error
        return Image(tag, str(found.id), found.labels)

    def require_gpus(self, tag: str) -> None:
        """Require that a container of the image `tag` sees NVIDIA's GPUs.

        Raises:
            EnvironmentMissing: Docker is not configured for GPUs, or the driver is missing.
        """
        devices: dict[str, Any] = {"count": -1, "capabilities": [["gpu"]]}
        if self.podman:
            devices = {"driver": "cdi", "device_ids": ["nvidia.com/gpu=all"]}
        if failure := self._try(tag, ["nvidia-smi", "-L"], [DeviceRequest(**devices)]):
            raise EnvironmentMissing(
                "GPUs of this machine are not accessible in containers",
                where=_address(self.client),
                expected="nvidia-smi -L in a container started with --gpus all",
                found=failure,
                hint=GPU_RUNTIME,
            )

    def _try(self, tag: str, command: list[str], devices: list[DeviceRequest]) -> str:
        """Run a command in a container; return the error, empty on success."""
        container = self.client.containers.create(tag, command, device_requests=devices, network_mode="none")
        ignored: tuple[type[Exception], ...] = ()
        try:
            container.start()
            code = container.wait(timeout=_GPUS_S)["StatusCode"]
            return container.logs().decode(errors="replace").strip() or f"exit code {code}" if code else ""
        except APIError as error:
            return str(error.explanation or error)
        except (requests.Timeout, requests.ConnectionError):  # docker's client raises either at the time limit
            ignored = (APIError, requests.RequestException)  # a process that the driver blocks cannot be killed
            return f"{' '.join(command)} did not end within {_GPUS_S} s"
        finally:
            with suppress(*ignored):
                container.remove(force=True)

    @property
    def folder(self) -> str:
        """Folder of the images; not of this machine if `free_bytes` is None.

        Docker's containerd image store (default of new installations since 29.0) is the folder of containerd.
        """
        info = self.client.info()
        in_containerd = ["driver-type", _SNAPSHOTTER] in (info.get("DriverStatus") or ()) and not self.is_rootless
        return str(_CONTAINERD if in_containerd and _CONTAINERD.is_dir() else info["DockerRootDir"])

    @property
    def is_rootless(self) -> bool:
        """Whether this is rootless Docker, which has no option to keep the user's id, as podman has."""
        return not self.podman and "name=rootless" in (self.client.info().get("SecurityOptions") or ())

    def free_bytes(self) -> int | None:
        """Free space for images; None if the daemon is on another machine or its folder is not readable."""
        try:
            return shutil.disk_usage(self.folder).free
        except OSError:
            return None

    def has_nvidia_runtime(self) -> bool:
        """Return whether the daemon is configured for NVIDIA's GPUs, by a runtime or CDI (`docker info`)."""
        info = self.client.info()
        devices = [device.get("ID", "") for device in info.get("DiscoveredDevices") or ()]
        return "nvidia" in (info.get("Runtimes") or {}) or any(name.startswith("nvidia.com/gpu") for name in devices)

    def require_space(self, gib: float) -> None:
        """Require free disk space for images.

        Raises:
            EnvironmentMissing: less than `gib` is free.
        """
        free = self.free_bytes()
        if free is not None and free < gib * _GIB:
            raise EnvironmentMissing(
                "not enough disk space for the images",
                where=self.folder,
                expected=f"{gib:g} GiB",
                found=f"{free / _GIB:.1f} GiB",
                hint="docker system df shows the usage; docker builder prune and docker image prune free space",
            )


def connect(podman: bool = False) -> Daemon:
    """Connect to the daemon of DOCKER_HOST, of docker's current context, or of this machine.

    Args:
        podman: whether the program called docker is podman.

    Raises:
        EnvironmentMissing: no daemon, or no permission.
    """
    try:
        client = docker.from_env()
        client.ping()
    except DockerException as error:
        raise _explain(error, podman) from error
    client.api.timeout = _REQUEST_S
    return Daemon(client, podman=podman)


def _explain(error: DockerException, podman: bool) -> EnvironmentMissing:
    cause, where = _os_error(error), _endpoint()
    if isinstance(cause, PermissionError):
        return EnvironmentMissing("no permission to use Docker", where=where, found=str(cause), hint=_JOIN + _WITHOUT)
    return EnvironmentMissing(
        "Docker daemon not reachable",
        where=where,
        found=str(cause or error),
        hint=(_START_PODMAN if podman else _START) + _WITHOUT,
    )


def _endpoint() -> str:
    """Return the address that `docker.from_env` uses."""
    if named := os.environ.get("DOCKER_HOST"):
        return named
    of_context = ContextAPI.kwargs_from_context(environment=os.environ).get("base_url")
    return f"{of_context}, of docker's context (docker context ls)" if of_context else "docker's usual socket"


def require_client(program: str, daemon: Daemon) -> None:
    """Require that docker's command line, which builds images and creates containers, reaches the same daemon.

    Raises:
        EnvironmentMissing: it reaches none or another one.
    """
    if daemon.podman:
        return
    done = subprocess.run([program, "info", "--format", "{{.ID}}"], capture_output=True, text=True, check=False)
    found, expected = done.stdout.strip(), daemon.client.info()["ID"]
    if found != expected:
        raise EnvironmentMissing(
            "docker's command line does not use this Docker daemon",
            where=_address(daemon.client),
            expected=f"daemon {expected}",
            found=f"daemon {found}" if found else done.stderr.strip(),
            hint="unset DOCKER_CONTEXT and DOCKER_HOST, or set them to the same daemon; docker context ls",
        )


def _os_error(error: BaseException) -> OSError | None:
    """Return the OSError in the chain of `error`; libraries also store it in the arguments of their errors."""
    inner = [error.__cause__, error.__context__, *(part for part in error.args if isinstance(part, BaseException))]
    if isinstance(error, OSError) and error.errno:
        return error
    found = (_os_error(part) for part in inner if part is not None)
    return next((cause for cause in found if cause), None)


def _address(client: docker.DockerClient) -> str:
    return str(client.api.base_url).replace("http+docker://localhost", "docker's socket")


def refusal(message: str, *, where: str) -> EnvironmentMissing:
    """Return the error with Docker's message.

    Args:
        where: the image or program.
    """
    hint = next((hint for part, hint in _HINTS.items() if part in message), "")
    return EnvironmentMissing("Docker cannot start the container", where=where, found=message.strip(), hint=hint)
