"""Parameters of a container from environment variables (RUN_AS, DOCKER_ARGS, …) and the machine."""

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from harness_llm.containers.arguments import Container
from harness_llm.containers.certificates import INSIDE, VARIABLES, extra_certificate
from harness_llm.containers.container_spec import Accelerator, ImageName, image_tag
from harness_llm.containers.mounts import folders, named_paths, owning_groups
from harness_llm.errors import ConfigError, EnvironmentMissing
from harness_llm.paths import CHECKOUT
from harness_llm.runs.inherited_environment import names_path, steers

PROGRAM_VARIABLE = "DOCKER"
CHECKOUT_LABEL = "harness-llm.checkout"
_PROGRAMS = ("docker", "podman")
_IDS = re.compile(r"(\d+):(\d+)")


def container(
    image: ImageName, accelerator_name: str, accelerator: Accelerator, environ: Mapping[str, str]
) -> Container:
    """Return the parameters of a container of `image`, without writing files.

    Raises:
        ConfigError: invalid RUN_AS, DOCKER_ARGS, EXTRA_CA_CERT or path variable.
        EnvironmentMissing: neither docker nor podman is installed.
    """
    program = container_program(environ)
    certificate = extra_certificate(environ)
    uid, gid = run_as(environ, os.getuid(), os.getgid())
    mounts = tuple(folders(accelerator, environ))
    environment = dict.fromkeys(VARIABLES, INSIDE) if certificate else {}
    environment |= {name: str(path) for name, path in named_paths(accelerator, environ).items()}
    return Container(
        program=program,
        image=image_tag(image, accelerator_name),
        name=f"harness-llm-{image}-{os.getpid()}",
        user=f"{uid}:{gid}",
        mounts=mounts,
        groups=tuple(sorted(_device_groups(accelerator.device_groups) | owning_groups(mounts, accelerator, uid))),
        environment=environment,
        inherited=tuple(_inherited(accelerator, environ, {**accelerator.environment, **environment})),
        labels={CHECKOUT_LABEL: str(CHECKOUT)},
        visible=visible_devices(environ.get(accelerator.gpus, "all")),
        arguments=_docker_args(environ.get("DOCKER_ARGS", "")),
        podman=is_podman(program),
    )


def secret_variables(accelerator: Accelerator, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the secret variables that are set."""
    return {name: environ[name] for name in accelerator.secret_variables if environ.get(name)}


def container_program(environ: Mapping[str, str]) -> str:
    """Return the program that runs containers: DOCKER, else docker, else podman.

    Raises:
        EnvironmentMissing: missing program.
    """
    named = environ.get(PROGRAM_VARIABLE)
    for program in (named,) if named else _PROGRAMS:
        if shutil.which(program):
            return program
    raise EnvironmentMissing(
        f"{named or 'Docker'} is not installed",
        expected=named or " or ".join(_PROGRAMS),
        hint="install it, for example apt install docker.io; set DOCKER=/path/to/docker if it is not on PATH",
    )


def is_podman(program: str) -> bool:
    """Return whether `program` is rootless podman, whatever its name."""
    version = subprocess.run([program, "--version"], capture_output=True, text=True, check=False).stdout
    return version.startswith("podman") and os.getuid() != 0


def run_as(environ: Mapping[str, str], uid: int, gid: int) -> tuple[int, int]:
    """Return user and group in the container: RUN_AS, else the current user, who must not be root.

    Raises:
        ConfigError: invalid RUN_AS, root without RUN_AS, or RUN_AS of another user without root.
    """
    asked = environ.get("RUN_AS", "")
    ids = _IDS.fullmatch(asked)
    if asked and not (ids and int(ids[1])):
        raise ConfigError("invalid RUN_AS", expected="uid:gid, not root", found=asked)
    if ids:
        return _permitted(int(ids[1]), int(ids[2]), uid, gid)
    if uid:
        return uid, gid
    example = "{}:{}".format(environ.get("SUDO_UID", "1000"), environ.get("SUDO_GID", "1000"))
    raise ConfigError(
        "missing RUN_AS: the containers do not run as root",
        where="RUN_AS",
        expected="uid:gid of the owner of the written files",
        hint=f"set RUN_AS={example} before the command, or run it as that user, in the group docker",
    )


def _permitted(uid: int, gid: int, own_uid: int, own_gid: int) -> tuple[int, int]:
    """Return `uid` and `gid`; only root can give another user the files of the token and of the scoring service."""
    if own_uid in (0, uid):
        return uid, gid
    raise ConfigError(
        "only root can start containers as another user",
        where="RUN_AS",
        expected=f"{own_uid}:{own_gid}",
        found=f"{uid}:{gid}",
        hint="run the same command without RUN_AS, or as root",
    )


def _inherited(accelerator: Accelerator, environ: Mapping[str, str], own: Mapping[str, str]) -> Iterator[str]:
    """Yield the variables to pass, empty ones too, without those that the container sets: `own`."""
    engine = (name for name in sorted(environ) if _is_for_engine(name, environ[name]))
    for name in dict.fromkeys((*accelerator.inherited, *engine)):
        if name in environ and name not in own:
            yield name


def _is_for_engine(name: str, value: str) -> bool:
    """Return whether the variable configures an engine in any container; paths and device numbers are the machine's."""
    return steers(name) and not name.endswith("_VISIBLE_DEVICES") and not names_path(value)


def visible_devices(text: str) -> tuple[str, ...] | None:
    """Parse a subset of NVIDIA's devices, by number or UUID; None: all.

    Raises:
        ConfigError: no devices.
    """
    if text.strip() in ("", "none", "void"):
        raise ConfigError(
            "NVIDIA_VISIBLE_DEVICES hides all GPUs",
            where="environment",
            expected="all, or devices separated by commas",
            found=f"NVIDIA_VISIBLE_DEVICES={text}",
            hint="unset NVIDIA_VISIBLE_DEVICES; GPU_NAME=cpu ignores the GPUs",
        )
    return None if text == "all" else tuple(part.strip() for part in text.split(","))


def _device_groups(patterns: Sequence[str]) -> set[int]:
    """Return the groups, except root's, of the files that match `patterns`."""
    files = [file for pattern in patterns for file in Path("/").glob(pattern.removeprefix("/"))]
    return {file.stat().st_gid for file in files} - {0}


def _docker_args(text: str) -> tuple[str, ...]:
    try:
        return tuple(shlex.split(text))
    except ValueError as error:
        raise ConfigError("unbalanced quote in DOCKER_ARGS", found=text) from error
