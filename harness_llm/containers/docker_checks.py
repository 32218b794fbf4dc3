"""Checks of `doctor` on the machine that starts the containers: host checks, Docker, GPUs, user and mounts."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import get_args

from harness_llm.containers import from_environment as setting
from harness_llm.containers.build import outdated, require_base, require_buildx
from harness_llm.containers.certificates import VARIABLES, extra_certificate, write_bundle
from harness_llm.containers.container_spec import Accelerator, ImageName, image_tag, required_gib
from harness_llm.containers.daemon import (
    EXIT_CODES,
    GPU_RUNTIME,
    Daemon,
    connect,
    refusal,
    require_client,
)
from harness_llm.containers.mounts import faults, folders
from harness_llm.containers.secrets import find_token
from harness_llm.errors import ConfigError, HarnessError
from harness_llm.hardware.drivers import IMAGE_BRANCHES, image_cuda, suits_image
from harness_llm.hardware.gpu_state import read_devices
from harness_llm.paths import DATA_VARIABLE, MODELS_VARIABLE
from harness_llm.pipeline.doctor.check_result import (
    CheckResult,
    Level,
    errors,
    failed,
    from_error,
    not_checked,
    passed,
    warned,
)
from harness_llm.pipeline.doctor.disk_space import IMAGES_VARIABLE
from harness_llm.pipeline.doctor.doctor_report import from_json
from harness_llm.pipeline.doctor.download_checks import ACCESS, TOKEN
from harness_llm.pipeline.doctor.gpu_checks import check_nvidia_driver
from harness_llm.pipeline.doctor.purpose import Part

_GIB = 2**30
_NVIDIA = "10de"
_TOOLKIT = ("nvidia-container-runtime-hook", "nvidia-container-runtime", "nvidia-ctk")


def command(part: Part, options: Sequence[str]) -> list[str]:
    """Return the command `harness-llm doctor` for one part, with the options of `harness-llm submit`."""
    return ["harness-llm", "doctor", "--part", part, "--json", *options]


def read_results(done: "subprocess.CompletedProcess[str]", name: str) -> list[CheckResult]:
    """Return the results that `command` printed, or one error if it printed none.

    Args:
        name: name of the image or check.
    """
    try:
        return from_json(json.loads(done.stdout))
    except json.JSONDecodeError:
        found = done.stderr.strip() or f"exit code {done.returncode}"
        if done.returncode in EXIT_CODES:
            return [from_error("Container", refusal(found, where=name))]
        error = ConfigError("no results from the doctor", where=name, found=found)
        return [from_error(name, error)]


def check_host(options: Sequence[str], accelerator: Accelerator, environ: Mapping[str, str]) -> list[CheckResult]:
    """Run the checks that need no image, with the folders of models and data that containers will mount."""
    program = str(Path(sys.executable).with_name("harness-llm"))
    _, *arguments = command(Part.HOST, options)
    with tempfile.TemporaryDirectory() as folder:
        own = {**environ, **_variables(accelerator, environ, Path(folder))}
        done = subprocess.run([program, *arguments], env=own, capture_output=True, text=True, check=False)
    results = read_results(done, "Options")
    if any(result.name == ACCESS and result.level is Level.OK for result in results):
        results.append(not_checked(ACCESS, "access from a container; this machine has it"))
    return results


def _variables(accelerator: Accelerator, environ: Mapping[str, str], scratch: Path) -> dict[str, str]:
    """Return the variables for the folders and certificates of the containers; `check_docker` reports invalid ones."""
    variables = {accelerator.mounts.models: MODELS_VARIABLE, accelerator.mounts.data: DATA_VARIABLE}
    try:
        large = {variables[m.target]: str(m.source) for m in folders(accelerator, environ) if m.target in variables}
        certificate = extra_certificate(environ)
    except HarnessError:
        return {}
    if certificate:
        write_bundle(certificate, bundle := scratch / "ca.pem")
        return large | dict.fromkeys(VARIABLES, str(bundle))
    return large


def image_space(name: str, accelerator: Accelerator, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variable with the space of the missing images; none if the daemon's disk is unknown."""
    try:
        daemon = connect(podman=setting.is_podman(setting.container_program(environ)))
    except HarnessError:
        return {}  # an error of check_docker
    needed = required_gib(name, accelerator, daemon.has)
    known = needed and daemon.free_bytes() is not None
    return {IMAGES_VARIABLE: f"{needed * _GIB:.0f}:{daemon.folder}"} if known else {}


def check_docker(name: str, accelerator: Accelerator, environ: Mapping[str, str]) -> Iterator[CheckResult]:
    """Check the container's user, Docker, the mounts, the disk and GPUs of Docker, and the base of missing images.

    Args:
        name: the accelerator in setup/containers.yaml.
    """
    user = _user(environ)
    yield user
    try:
        program = setting.container_program(environ)
    except HarnessError as error:
        yield from_error("Docker", error)
        return
    yield from _token(environ)
    if not errors([user]):
        yield from _mounts(name, accelerator, environ)
    try:
        daemon = connect(podman=setting.is_podman(program))
        require_client(program, daemon)
        yield passed("Docker", "reachable")
    except HarnessError as error:
        yield from_error("Docker", error)
        return
    yield from _images(daemon, name, accelerator, environ)
    if required_gib(name, accelerator, daemon.has):
        yield from _build(daemon, program, environ.get("BASE_IMAGE") or accelerator.base_image)
    if accelerator.gpus:
        yield from _gpus(daemon, name, accelerator, environ)


def _user(environ: Mapping[str, str]) -> CheckResult:
    label = "Container user"
    try:
        uid, gid = setting.run_as(environ, os.getuid(), os.getgid())
    except HarnessError as error:
        return from_error(label, error)
    return passed(label, f"{uid}:{gid}")


def _token(environ: Mapping[str, str]) -> Iterator[CheckResult]:
    """Check that the file of the token, which every container gets, can be read."""
    try:
        find_token(environ, Path.home())
    except HarnessError as error:
        yield from_error(TOKEN, error)


def _build(daemon: Daemon, program: str, base: str) -> Iterator[CheckResult]:
    """Check what the build of a missing image requires before its first step; `check_space` checks its disk."""
    label = "Image build"
    requirements: tuple[Callable[[], None], ...] = (
        lambda: require_buildx(program),
        lambda: require_base(daemon, base),
    )
    for require in requirements:
        try:
            require()
        except HarnessError as error:
            yield from_error(label, error)
    if daemon.free_bytes() is None:
        yield not_checked(label, "disk space for the images: the daemon's folder is not readable")
    yield not_checked(label, "access to the package index and to the distribution's packages, until the build")


def _images(daemon: Daemon, name: str, accelerator: Accelerator, environ: Mapping[str, str]) -> Iterator[CheckResult]:
    """Warn of existing images of another source: they are not rebuilt, because their runs could not be combined."""
    for image in get_args(ImageName):
        tag = image_tag(image, name)
        if daemon.has(tag) and (old := outdated(image, name, accelerator, environ, daemon.image(tag).labels)):
            yield warned(
                "Image",
                "; ".join(old),
                where=tag,
                expected="an image built from this checkout, with this BASE_IMAGE",
                hint=f"bash setup/build_{image}_env.sh; results of the existing image then need new runs",
            )


def _gpus(daemon: Daemon, name: str, accelerator: Accelerator, environ: Mapping[str, str]) -> Iterator[CheckResult]:
    """Check GPU access: in a container if the image exists, else by the configuration of daemon and machine."""
    label, tag = "GPU containers", image_tag("submission", name)
    try:
        cuda = image_cuda(environ.get("BASE_IMAGE") or accelerator.base_image)
        found = read_devices(_NVIDIA)
        yield check_nvidia_driver(found, cuda)
        yield from _driver_branch(found.driver, cuda)
    except ValueError as error:
        yield not_checked("GPU driver", str(error))
    if daemon.has(tag):
        try:
            daemon.require_gpus(tag)
            yield passed(label, "nvidia-smi -L works in a container")
        except HarnessError as error:
            yield from_error(label, error)
    elif daemon.has_nvidia_runtime() or any(shutil.which(program) for program in _TOOLKIT):
        yield passed(label, "NVIDIA's Container Toolkit is installed")
    else:
        yield failed(label, "NVIDIA's Container Toolkit is not installed", hint=GPU_RUNTIME)


def _driver_branch(driver: str, cuda: tuple[int, int]) -> Iterator[CheckResult]:
    if driver and not suits_image(driver, cuda):
        message = f"unsatisfied condition: cuda>={cuda[0]}.{cuda[1]}"
        yield warned(
            "GPU driver branch",
            driver,
            expected=f"{', '.join(map(str, IMAGE_BRANCHES[cuda]))} or newer, which the image requires",
            hint=f"if containers do not start ({message}), install a driver of such a branch",
        )


def _mounts(name: str, accelerator: Accelerator, environ: Mapping[str, str]) -> Iterator[CheckResult]:
    label = "Mounts"
    try:
        started = setting.container("submission", name, accelerator, environ)
    except HarnessError as error:
        yield from_error("Container settings", error)
        return
    found = [from_error(label, error) for error in faults(started, accelerator)]
    yield from found or [passed(label, ", ".join(dict.fromkeys(str(mount.source) for mount in started.mounts)))]
