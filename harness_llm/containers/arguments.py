"""The argument lists of `docker run` and `docker build`: no decision of theirs needs a daemon."""

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from harness_llm.containers.container_spec import Accelerator

BY_NUMBER = "CUDA_VISIBLE_DEVICES"


@dataclass(frozen=True)
class Mount:
    """A folder or file of the machine, shown inside."""

    source: Path
    target: str
    writable: bool = True

    def __str__(self) -> str:
        """As `--mount` wants it: a source that is missing is an error, where `--volume` makes a folder of root's."""
        fields = ["type=bind", f"source={self.source}", f"target={self.target}"]
        text = io.StringIO()
        csv.writer(text, lineterminator="").writerow(fields if self.writable else [*fields, "readonly"])
        return text.getvalue()


@dataclass(frozen=True)
class Container:
    """One container, as it will be started.

    Attributes:
        program: docker, or what answers as docker.
        user: `uid:gid` inside.
        groups: numbers of further groups.
        environment: variables inside, on top of the accelerator's.
        inherited: variables that are handed on by name.
        visible: the devices that are shown inside; None is all.
        arguments: of the user's own for `docker run`; they come last, so that they win.
        stdin: whether it reads what is typed or piped.
        terminal: whether that is a terminal.
        podman: whether `program` is podman.
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
    arguments: tuple[str, ...] = ()
    stdin: bool = False
    terminal: bool = False
    podman: bool = False


def run_arguments(accelerator: Accelerator, container: Container, command: Sequence[str]) -> list[str]:
    """The whole command that runs `command` in `container`.

    It is never pulled, as its name is nobody's but ours; its first process hands signals on and buries orphans.
    """
    own = [
        *(container.program, "run", "--rm", "--init", "--pull", "never", "--name", container.name),
        *_each("--label", _pairs(container.labels)),
        *(["--interactive"] if container.stdin else []),
        *(["--tty"] if container.terminal else []),
        *("--user", container.user),
        # Without it podman, run by a user, maps that user to root inside and files to numbers that are nobody's.
        *(["--userns", "keep-id"] if container.podman else []),
        *_each("--group-add", map(str, container.groups)),
    ]
    return [
        *own,
        *_rights(accelerator),
        *_devices(accelerator, container),
        *_each("--mount", map(str, container.mounts)),
        *_each("--env", _pairs(_environment(accelerator, container))),
        *_each("--env", container.inherited),
        *container.arguments,
        *(container.image, *command),
    ]


def _rights(accelerator: Accelerator) -> Iterator[str]:
    yield from ("--network", accelerator.network, "--cap-drop", "ALL")
    yield from _each("--cap-add", accelerator.capabilities)
    yield from _each("--security-opt", accelerator.security)
    yield from ("--shm-size", accelerator.shm_size)
    yield from _each("--ulimit", _pairs(accelerator.ulimits))


def _devices(accelerator: Accelerator, container: Container) -> Iterator[str]:
    yield from _each("--device", accelerator.devices)
    if accelerator.gpus:
        # Docker reads this as CSV, so a list of devices is one quoted field.
        yield from ("--gpus", "all" if container.visible is None else f'"device={",".join(container.visible)}"')


def _environment(accelerator: Accelerator, container: Container) -> dict[str, str]:
    """NVIDIA's toolkit numbers the devices that it shows anew; so a program sees how many there are."""
    numbers = {BY_NUMBER: ",".join(map(str, range(len(container.visible))))} if container.visible else {}
    own = {} if BY_NUMBER in container.inherited or not accelerator.gpus else numbers
    return {**accelerator.environment, **own, **container.environment}


@dataclass(frozen=True)
class Build:
    """One image, as it will be built.

    Attributes:
        file: the Dockerfile.
        context: the folder that it copies from.
        arguments: its build arguments.
        inherited: build arguments that are handed on by name.
        secrets: files that it may read and that no layer keeps, by name.
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
    """The whole command; it uses the machine's network, where proxies and mirrors on its loopback answer."""
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


def _each(option: str, values: "Iterator[str] | Sequence[str]") -> Iterator[str]:
    for value in values:
        yield from (option, value)
