"""`make submission` in containers: check, prepare model and data in one container, run and package in another."""

import datetime as dt
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from harness_llm.containers import docker_checks as checks
from harness_llm.containers import from_environment as setting
from harness_llm.containers import lifeline
from harness_llm.containers.arguments import Container, run_arguments
from harness_llm.containers.build import build
from harness_llm.containers.container_spec import Accelerator, ImageName, image_tag, load_accelerator
from harness_llm.containers.container_stage import run_stage
from harness_llm.containers.daemon import Daemon, connect
from harness_llm.containers.start import completed
from harness_llm.paths import CHECKOUT, Workspace
from harness_llm.pipeline.doctor.check_result import CheckResult, Level, errors, not_checked
from harness_llm.pipeline.doctor.doctor import show
from harness_llm.pipeline.doctor.doctor_report import require
from harness_llm.pipeline.doctor.purpose import Part

STAGES: dict[ImageName, str] = {"model_and_dataset": "prepare", "submission": "submit"}
"""Command of harness-llm in a container of each image, in order."""
_JSON = "--json"


def submit(options: Sequence[str], environ: Mapping[str, str]) -> int:
    """Check, build missing images and run the stages; return the exit code of the first failed stage, or 0.

    The checks of the image's software (LoadGen, vLLM, evaluators) run in it before the first stage downloads models.

    Args:
        options: options of `harness-llm submit`.

    Raises:
        ConfigError, EnvironmentMissing: failed checks.
        HarnessError: from building an image, starting a container or running a stage.
    """
    name, accelerator = load_accelerator(environ.get("GPU_NAME", ""))
    machine, results = _examine(options, environ)
    require(results, _tell)
    machine = machine or _machine(name, accelerator, environ)
    built = machine.is_built
    for image in STAGES:
        if not machine.daemon.has(image_tag(image, name)):
            build(image, environ, printed=False)
    if not built:
        if accelerator.gpus:
            machine.daemon.require_gpus(image_tag("submission", name))
        require(_more(results, machine.check(options)), _tell)
    return next((code for image in STAGES if (code := machine.run(image, options))), 0)


def doctor(options: Sequence[str], environ: Mapping[str, str]) -> int:
    """Print the results of all checks of `submit`; return the exit code of failed checks, else 0.

    Args:
        options: options of `harness-llm submit`, and --json.
    """
    machine, results = _examine([option for option in options if option != _JSON], environ)
    if not (machine and machine.is_built):
        results.append(not_checked("Software", "LoadGen, vLLM and evaluators, until the image is built"))
    return show(results, as_json=_JSON in options)


def _examine(options: Sequence[str], environ: Mapping[str, str]) -> "tuple[_Machine | None, list[CheckResult]]":
    """Return the results for this machine and an existing image; no machine if containers cannot start."""
    name, accelerator = load_accelerator(environ.get("GPU_NAME", ""))
    results = checks.check_host(options, accelerator, {**environ, **checks.image_space(name, accelerator, environ)})
    docker = list(checks.check_docker(name, accelerator, environ))
    results = list(dict.fromkeys([*results, *docker]))
    if errors(docker):
        return None, results
    machine = _machine(name, accelerator, environ)
    if not machine.is_built:
        return machine, results
    inside = _more(results, machine.check(options))
    names = {result.name for result in inside}
    return machine, [result for result in results if result.name not in names] + inside


def _more(outside: Sequence[CheckResult], inside: Sequence[CheckResult]) -> list[CheckResult]:
    """Return the results of a container, without those of checks that found a problem on this machine."""
    found = {result.name for result in outside if result.level in (Level.ERROR, Level.WARNING)}
    return [result for result in inside if result.name not in found]


def _tell(line: str) -> None:
    sys.stderr.write(f"{line}\n")


def _machine(name: str, accelerator: Accelerator, environ: Mapping[str, str]) -> "_Machine":
    daemon = connect(podman=setting.is_podman(setting.container_program(environ)))
    return _Machine(daemon, name, accelerator, environ)


@dataclass(frozen=True)
class _Machine:
    """Docker and accelerator of the stages."""

    daemon: Daemon
    name: str
    accelerator: Accelerator
    environ: Mapping[str, str]

    @property
    def is_built(self) -> bool:
        """Whether the image with the software exists."""
        return self.daemon.has(image_tag("submission", self.name))

    def check(self, options: Sequence[str]) -> list[CheckResult]:
        """Run the checks of the container that will run the benchmarks, above all those of its software."""
        with self._container("submission", "doctor") as container:
            command = run_arguments(
                self.accelerator, replace(container, terminal=False), checks.command(Part.CONTAINER, options)
            )
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            return checks.read_results(done, container.image)

    def run(self, image: ImageName, options: Sequence[str]) -> int:
        """Run the stage of `image`; return its exit code."""
        stage, logs = STAGES[image], Workspace(CHECKOUT).containers
        with self._container(image, stage) as container:
            line = logs / f"{container.name}.lifeline"
            sys.stderr.write(f"{stage}: in {container.image}\n")
            with lifeline.hold(line):
                inside = f"{self.accelerator.mounts.checkout}/{line.relative_to(CHECKOUT)}"
                own = replace(container, environment={**container.environment, lifeline.VARIABLE: inside})
                program, _, *arguments = run_arguments(self.accelerator, own, ["harness-llm", stage, *options])
                create = [program, "create", *arguments]
                return run_stage(self.daemon, own.name, create, logs / f"{stage}.log", terminal=own.terminal)

    @contextmanager
    def _container(self, image: ImageName, verb: str) -> Iterator[Container]:
        """Yield the parameters of a container of `image`, with its token and scoring service."""
        named = replace(
            setting.container(image, self.name, self.accelerator, self.environ),
            name=f"harness-llm-{verb}-{dt.datetime.now(dt.UTC):%Y%m%dT%H%M%SZ}-{os.getpid()}",
            terminal=sys.stdout.isatty() and sys.stderr.isatty(),
        )
        with completed(named, self.daemon, self.accelerator, self.environ) as started:
            yield started
