"""A container as the environment of who starts it says, RUN_AS, DOCKER_ARGS ..., and as the machine is found."""

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from harness_llm.containers.arguments import Container
from harness_llm.containers.certificates import INSIDE, VARIABLES, extra_certificate
from harness_llm.containers.container_spec import Accelerator, ImageName, image_tag
from harness_llm.containers.mounts import folders
from harness_llm.errors import ConfigError, EnvironmentMissing
from harness_llm.paths import CHECKOUT

PROGRAM_VARIABLE = "DOCKER"
CHECKOUT_LABEL = "harness-llm.checkout"
_PROGRAMS = ("docker", "podman")
_IDS = re.compile(r"(\d+):(\d+)")


def container(
    image: ImageName, accelerator_name: str, accelerator: Accelerator, environ: Mapping[str, str]
) -> Container:
    """What a container of `image` is started with; nothing is written.

    Raises:
        ConfigError: RUN_AS is missing or wrong, or DOCKER_ARGS cannot be read.
        EnvironmentMissing: neither docker nor podman is installed.
    """
    program = container_program(environ)
    certificate = extra_certificate(environ)
    return Container(
        program=program,
        image=image_tag(image, accelerator_name),
        name=f"harness-llm-{image}-{os.getpid()}",
        user="{}:{}".format(*run_as(environ, os.getuid(), os.getgid())),
        mounts=tuple(folders(accelerator, environ)),
        groups=_owning_groups(accelerator.device_groups),
        environment=dict.fromkeys(VARIABLES, INSIDE) if certificate else {},
        inherited=tuple(name for name in accelerator.inherited if environ.get(name)),
        labels={CHECKOUT_LABEL: str(CHECKOUT)},
        visible=visible_devices(environ.get(accelerator.gpus, "")),
        arguments=_words(environ.get("DOCKER_ARGS", "")),
        podman=is_podman(program),
    )


def container_program(environ: Mapping[str, str]) -> str:
    """The program that runs containers: DOCKER, else docker or podman, whichever is there.

    Raises:
        EnvironmentMissing: it is not.
    """
    named = environ.get(PROGRAM_VARIABLE)
    for program in (named,) if named else _PROGRAMS:
        if shutil.which(program):
            return program
    raise EnvironmentMissing(
        f"{named or 'Docker'} is not installed",
        expected=named or " or ".join(_PROGRAMS),
        hint="apt install docker.io, or the like; DOCKER=/path/to/docker names one that is not on PATH",
    )


def is_podman(program: str) -> bool:
    """Whether it is podman, under whatever name, run by a user: its containers then have that user's rights at most."""
    said = subprocess.run([program, "--version"], capture_output=True, text=True, check=False).stdout
    return said.startswith("podman") and os.getuid() != 0


def run_as(environ: Mapping[str, str], uid: int, gid: int) -> tuple[int, int]:
    """The user and group inside: those who ask, or those whom root names.

    Raises:
        ConfigError: root names nobody, or root.
    """
    asked = environ.get("RUN_AS", "")
    ids = _IDS.fullmatch(asked)
    if asked and not (ids and int(ids[1])):
        raise ConfigError("RUN_AS is no user and group other than root's", expected="uid:gid", found=asked)
    if ids:
        return int(ids[1]), int(ids[2])
    if uid:
        return uid, gid
    example = "{}:{}".format(environ.get("SUDO_UID", "1000"), environ.get("SUDO_GID", "1000"))
    raise ConfigError(
        "nothing runs as root in these containers, and root started them",
        where="RUN_AS",
        expected="uid:gid of who is to own what they write",
        hint=f"RUN_AS={example} before the command; or be that user, in the group docker",
    )


def visible_devices(text: str) -> tuple[str, ...] | None:
    """The subset of NVIDIA's devices that is asked for, by number or UUID; None is all."""
    return None if text in ("", "all") else tuple(part.strip() for part in text.split(","))


def _owning_groups(patterns: Sequence[str]) -> tuple[int, ...]:
    """The groups of the files that `patterns` match, but root's."""
    files = [file for pattern in patterns for file in Path("/").glob(pattern.removeprefix("/"))]
    return tuple(sorted({file.stat().st_gid for file in files} - {0}))


def _words(text: str) -> tuple[str, ...]:
    try:
        return tuple(shlex.split(text))
    except ValueError as error:
        raise ConfigError("DOCKER_ARGS has a quote without its end", found=text) from error
