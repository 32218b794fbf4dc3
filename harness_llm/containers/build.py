"""Build and remove the images. Build arguments: setup/containers.yaml, the rules and the environment."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from docker.errors import APIError

from harness_llm.config.inference_checkout import COMMIT, SUBMODULES, URL
from harness_llm.config.rules import load_round, round_names
from harness_llm.containers import packages
from harness_llm.containers.arguments import Build, build_arguments
from harness_llm.containers.certificates import bundle_file, extra_certificate, write_bundle
from harness_llm.containers.container_spec import (
    SHARED,
    Accelerator,
    ImageName,
    image_tag,
    load_accelerator,
    required_gib,
)
from harness_llm.containers.daemon import Daemon, connect
from harness_llm.containers.from_environment import CHECKOUT_LABEL, container_program, is_podman
from harness_llm.errors import EnvironmentMissing, HarnessError, RunFailed
from harness_llm.evaluate.mbxp.container import IMAGE, IMAGE_SOURCE
from harness_llm.paths import CHECKOUT, Workspace
from harness_llm.runs.fingerprint import PACKAGES

LABEL = "harness-llm"
BASE_LABEL = f"{LABEL}.base-image"
_PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY")
_TAIL = 12
_NO_BUILDX = (
    "missing buildx component of docker",
    "apt install docker-buildx (Docker's own packages: docker-buildx-plugin)",
)
_DOCKER_VERSION = re.compile(r"Docker version (\d+)")
_BUILDX_SINCE = 23
_NO_BASE = ("base image not available", "choose a local image or a reachable registry: BASE_IMAGE=registry/name:tag")
_CAUSES = (
    (
        ("no space left",),
        "disk of the Docker daemon is full",
        "free some space: docker system df shows the usage, docker builder prune removes the build cache",
    ),
    (("buildx component is missing", "buildkit is enabled but"), *_NO_BUILDX),
    (
        ("pull access denied", "failed to resolve", "failed to do request", "manifest unknown", "manifest for"),
        *_NO_BASE,
    ),
)


def build(image: ImageName, environ: Mapping[str, str], *, printed: bool) -> None:
    """Build an image and print its name, or print the command.

    Raises:
        ConfigError: unknown GPU, or invalid certificate.
        EnvironmentMissing: missing Docker, base image, packages or disk space.
        RunFailed: another failure of the build.
    """
    name, accelerator = load_accelerator(environ.get("GPU_NAME", ""))
    planned = plan(image, name, accelerator, environ)
    if printed:
        sys.stdout.write(f"DOCKER_BUILDKIT=1 {shlex.join(build_arguments(planned))}\n")
        return
    daemon = connect(podman=is_podman(planned.program))
    if not daemon.has(planned.tag):
        daemon.require_space(required_gib(name, accelerator, daemon.has))
    _prepare(environ)
    _run(build_arguments(planned), Workspace(CHECKOUT).containers / f"build_{image}.log")
    sys.stdout.write(f"{planned.tag}\n")


def require_buildx(program: str) -> None:
    """Require BuildKit's client: a plugin since Docker 23 (its release notes); earlier versions and podman contain it.

    Raises:
        EnvironmentMissing: it is not installed.
    """

    def ask(*words: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run([program, *words], capture_output=True, text=True, check=False)

    version = _DOCKER_VERSION.match(ask("--version").stdout)
    if version and int(version[1]) >= _BUILDX_SINCE and (done := ask("buildx", "version")).returncode:
        what, hint = _NO_BUILDX
        raise EnvironmentMissing(what, where=program, found=done.stderr.partition("\n")[0], hint=hint)


def require_base(daemon: Daemon, image: str) -> None:
    """Require that the daemon has the base image, or finds it in its registry; podman's API cannot ask a registry.

    Raises:
        EnvironmentMissing: it has not.
    """
    if daemon.podman or daemon.has(image):
        return
    try:
        daemon.client.images.get_registry_data(image)
    except APIError as error:
        what, hint = _NO_BASE
        raise EnvironmentMissing(what, where=image, found=str(error.explanation), hint=hint) from error


def clean(environ: Mapping[str, str]) -> None:
    """Remove the images and print their names; keep runs, models and data.

    Raises:
        EnvironmentMissing: no Docker daemon, or a container of such an image exists.
    """
    daemon = connect(podman=is_podman(container_program(environ)))
    containers = daemon.client.containers.list(all=True, filters={"label": CHECKOUT_LABEL})
    if containers:
        names = " ".join(str(container.name) for container in containers)
        raise EnvironmentMissing(
            "images are in use by containers",
            found=names,
            hint=f"wait for them, or stop them with docker rm --force {names}; they may be another user's",
        )
    for image in daemon.client.images.list(filters={"label": f"{LABEL}.image"}):
        try:
            daemon.client.images.remove(str(image.id), force=True)
        except APIError as error:
            raise EnvironmentMissing(
                "cannot remove image", where=" ".join(image.tags) or str(image.id), found=str(error.explanation)
            ) from error
        sys.stdout.write(f"{' '.join(image.tags) or image.short_id}\n")


def build_mbxp(program: str) -> None:
    """Build the image that runs MBXP's test programs, with the container engine `program`.

    Raises:
        ConfigError: invalid certificate.
        EnvironmentMissing: missing base images or disk space.
        RunFailed: another failure of the build.
    """
    log = Workspace(CHECKOUT).containers / f"build_{IMAGE}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    _write_certificates(os.environ)
    folder = CHECKOUT / IMAGE_SOURCE
    planned = Build(
        program=program,
        tag=IMAGE,
        file=folder / "Dockerfile",
        context=folder,
        arguments={},
        inherited=tuple(_proxies(os.environ)),
        labels={f"{LABEL}.image": "mbxp"},
        secrets=_certificate_secret(os.environ),
    )
    _run(build_arguments(planned), log)


def plan(image: ImageName, name: str, accelerator: Accelerator, environ: Mapping[str, str]) -> Build:
    """Return the build's parameters without writing files; raises as `build`."""
    files = Workspace(CHECKOUT).containers
    checker = image == "submission"
    labels = _labels(image, name, accelerator, environ)
    return Build(
        program=container_program(environ),
        tag=image_tag(image, name),
        file=CHECKOUT / "setup" / "Dockerfile",
        context=CHECKOUT,
        arguments={
            "BASE_IMAGE": labels[BASE_LABEL],
            "PACKAGES": " ".join(accelerator.packages),
            "SHARED_LAYERS": " ".join(accelerator.layers[SHARED]),
            "LAYERS": " ".join(accelerator.layers[image]),
            "INFERENCE_URL": URL if checker else "",
            "INFERENCE_COMMIT": COMMIT if checker else "",
            "INFERENCE_SUBMODULES": " ".join(SUBMODULES) if checker else "",
            "IMAGE": image,
        },
        inherited=tuple(_proxies(environ)),
        labels=labels | {"org.opencontainers.image.revision": _commit()},
        secrets={"pip.conf": files / "pip.conf", **_certificate_secret(environ)},
    )


def _proxies(environ: Mapping[str, str]) -> Iterator[str]:
    return (name for proxy in _PROXIES for name in (proxy, proxy.lower()) if environ.get(name))


def outdated(
    image: ImageName, name: str, accelerator: Accelerator, environ: Mapping[str, str], found: Mapping[str, str]
) -> list[str]:
    """Return the labels of an existing image, `found`, whose values a new build would change, with both values.

    Labels that the image lacks are not compared: an earlier version of this package, which wrote fewer, built it.
    """
    wanted = _labels(image, name, accelerator, environ)
    return [
        f"{label.removeprefix(LABEL + '.')}: {found[label]} instead of {value}"
        for label, value in wanted.items()
        if label in found and _short(found[label]) != _short(value)
    ]


def _short(value: str) -> str:
    """Return an image's name without Docker's default registry; other labels as they are."""
    return value.removeprefix("docker.io/").removeprefix("library/")


def _labels(image: ImageName, name: str, accelerator: Accelerator, environ: Mapping[str, str]) -> dict[str, str]:
    layers = (*accelerator.layers[SHARED], *accelerator.layers[image])
    labels = {
        "image": image,
        "accelerator": name,
        "packages": packages.digest(layers),
    }
    if image == "submission":
        labels |= {
            "rounds": " ".join(round_names()),
            "loadgen": " ".join(load_round(name).loadgen.version for name in round_names()),
            "inference-commit": COMMIT,
        }
    pins = packages.pins(layers)
    labels |= {f"version.{package}": pins[package] for package in PACKAGES if package in pins}
    base = environ.get("BASE_IMAGE") or accelerator.base_image
    return {f"{LABEL}.{key}": value for key, value in labels.items()} | {BASE_LABEL: base}


def _commit() -> str:
    """Return the commit of the checkout, with `-dirty` for modified files; empty outside a repository."""

    def git(*words: str) -> str:
        done = subprocess.run(["git", *words], cwd=CHECKOUT, capture_output=True, text=True, check=False)
        return done.stdout.strip()

    if not shutil.which("git"):
        return ""
    return git("describe", "--always", "--abbrev=40", "--exclude=*", "--dirty")


def _certificate(environ: Mapping[str, str]) -> Path | None:
    return extra_certificate(environ) or packages.certificate()


def _certificate_secret(environ: Mapping[str, str]) -> dict[str, Path]:
    return {"ca.pem": bundle_file(Workspace(CHECKOUT))} if _certificate(environ) else {}


def _write_certificates(environ: Mapping[str, str]) -> None:
    if found := _certificate(environ):
        write_bundle(found, bundle_file(Workspace(CHECKOUT)))


def _prepare(environ: Mapping[str, str]) -> None:
    """Write the files that the Dockerfile mounts: pip.conf, wheels, certificates."""
    folder = Workspace(CHECKOUT).containers
    folder.mkdir(parents=True, exist_ok=True)
    packages.write(folder, environ.get("WHEELHOUSE", ""))
    _write_certificates(environ)


def _run(command: Sequence[str], log: Path) -> None:
    """Run a build; show its output, write it to `log`, and raise the error of a failure."""
    tail: deque[str] = deque(maxlen=_TAIL)
    with (
        log.open("w") as kept,
        subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            env=os.environ | {"DOCKER_BUILDKIT": "1"},
        ) as process,
    ):
        for line in process.stdout or ():
            tail.append(line)
            kept.write(line)
            sys.stderr.write(line)
    if process.returncode:
        raise explain("".join(tail), process.returncode, log)


def explain(tail: str, code: int, log: Path) -> HarnessError:
    """Return the error of a build that exited with `code`, from its last lines."""
    found = "    ".join(tail.splitlines(keepends=True)).strip() or f"exit code {code}"
    for signs, what, hint in _CAUSES:
        if any(sign in tail.lower() for sign in signs):
            return EnvironmentMissing(what, where=str(log), found=found, hint=hint)
    return RunFailed("image build failed", where=str(log), found=found)
