"""Argument lists of `docker run` and `docker build`. No function needs a daemon."""

import csv
import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from harness_llm.containers.container_spec import Accelerator

BY_NUMBER = "CUDA_VISIBLE_DEVICES"


@dataclass(frozen=True)
class Mount:
    """Bind mount of a folder or file."""

    source: Path
    target: str
    writable: bool = True

    def __str__(self) -> str:
        """Return the value of `--mount`; with `--volume`, Docker creates a missing source as a folder of root."""
        fields = ["type=bind", f"source={self.source}", f"target={self.target}"]
        text = io.StringIO()
        csv.writer(text, lineterminator="").writerow(fields if self.writable else [*fields, "readonly"])
        return text.getvalue()


@dataclass(frozen=True)
class Container:
    """Parameters of one container.

    Attributes:
        program: docker or a compatible program.
        user: `uid:gid` in the container.
        groups: ids of further groups.
        environment: variables in addition to the accelerator's.
        inherited: names of variables to pass from this environment.
        visible: visible devices; None: all.
        wrapper: first words of the command.
        arguments: the user's options for `docker run`; last, so that they override.
        stdin: whether to attach standard input.
        terminal: whether to allocate a terminal.
        podman: whether `program` is rootless podman.
        rootless: whether the daemon is rootless Docker.
    """

    program: str
    image: str
    name: str
    user: str
    mounts: tuple[Mount, ...] = ()
    groups: tuple[int, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    inherited: tuple[str, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    visible: tuple[str, ...] | None = None
    wrapper: tuple[str, ...] = ()
    arguments: tuple[str, ...] = ()
    stdin: bool = False
    terminal: bool = False
    podman: bool = False
    rootless: bool = False


def run_arguments(accelerator: Accelerator, container: Container, command: Sequence[str]) -> list[str]:
    """Return the command line that runs `command` in `container`.

    The image is local and never pulled. `--init` forwards signals and reaps zombies.
    """
    own = [
        *(container.program, "run", "--rm", "--init", "--pull", "never", "--name", container.name),
        *_each("--label", _pairs(container.labels)),
        *(["--interactive"] if container.stdin else []),
        *(["--tty"] if container.terminal else []),
        *identity(container),
    ]
    return [
        *own,
        *_rights(accelerator),
        *_devices(accelerator, container),
        *_each("--mount", map(str, container.mounts)),
        *_each("--env", _pairs(_environment(accelerator, container))),
        *_each("--env", container.inherited),
        *container.arguments,
        *(container.image, *container.wrapper, *command),
    ]


def identity(container: Container) -> Iterator[str]:
    """Yield the options that give the container's process the file permissions of its user on this machine."""
    if container.rootless:
        # The user is root in the container and has no root's rights on the machine; all other ids are unassigned ones.
        yield from ("--user", "0:0")
        return
    yield from ("--user", container.user)
    if container.podman:
        # Otherwise podman maps the user to root and file owners to unassigned ids.
        yield from ("--userns", "keep-id")
    # Group ids of the machine do not exist in podman's user namespace (podman-run(1), --group-add).
    own = ["keep-groups"] if container.podman and container.groups else map(str, container.groups)
    yield from _each("--group-add", own)


def _rights(accelerator: Accelerator) -> Iterator[str]:
    yield from ("--network", accelerator.network, "--cap-drop", "ALL")
    yield from _each("--cap-add", accelerator.capabilities)
    yield from _each("--security-opt", accelerator.security)
    # podman's default is 2048 threads.
    yield from ("--shm-size", accelerator.shm_size, "--pids-limit", "-1")
    yield from _each("--ulimit", _pairs(accelerator.ulimits))


def _devices(accelerator: Accelerator, container: Container) -> Iterator[str]:
    yield from _each("--device", accelerator.devices)
    if accelerator.gpus and container.podman:
        # Names of the Container Device Interface, for which NVIDIA documents podman.
        yield from _each("--device", [f"nvidia.com/gpu={name}" for name in container.visible or ("all",)])
    elif accelerator.gpus:
        # Docker parses the value as CSV: quote the list of devices.
        yield from ("--gpus", "all" if container.visible is None else f'"device={",".join(container.visible)}"')


def _environment(accelerator: Accelerator, container: Container) -> dict[str, str]:
    """Return the variables; CUDA_VISIBLE_DEVICES starts at 0, because NVIDIA's toolkit renumbers visible devices."""
    numbers = {BY_NUMBER: ",".join(map(str, range(len(container.visible))))} if container.visible else {}
    own = {} if BY_NUMBER in container.inherited or not accelerator.gpus else numbers
    return {**accelerator.environment, **own, **container.environment}


@dataclass(frozen=True)
class Build:
    """Parameters of one image build.

    Attributes:
        file: the Dockerfile.
        context: the build context.
        arguments: build arguments.
        inherited: names of build arguments to pass from this environment.
        secrets: secret files by id; no layer contains them.
    """

    program: str
    tag: str
    file: Path
    context: Path
    arguments: Mapping[str, str]
    inherited: tuple[str, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    secrets: Mapping[str, Path] = field(default_factory=dict)


def build_arguments(build: Build) -> list[str]:
    """Return the command line; the host network reaches proxies and mirrors on the machine's loopback."""
    return [
        *(build.program, "build", "--network", "host", "--progress", "plain"),
        *("--tag", build.tag, "--file", str(build.file)),
        *_each("--build-arg", _pairs(build.arguments)),
        *_each("--build-arg", build.inherited),
        *_each("--secret", (f"id={name},src={file}" for name, file in build.secrets.items())),
        *_each("--label", _pairs(build.labels)),
        str(build.context),
    ]


def _pairs(values: Mapping[str, str]) -> Iterator[str]:
    return (f"{name}={value}" for name, value in values.items())


def _each(option: str, values: Iterable[str]) -> Iterator[str]:
    for value in values:
        yield from (option, value)
