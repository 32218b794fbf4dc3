"""`make submission` on the host: one container prepares model and data, another runs, packages and checks."""

import datetime as dt
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from harness_llm.containers import lifeline, setting
from harness_llm.containers.build import build
from harness_llm.containers.command import Container, run_arguments
from harness_llm.containers.daemon import Daemon, connect
from harness_llm.containers.mounts import prepare
from harness_llm.containers.secrets import ENVIRONMENT, find_token, token_mounts
from harness_llm.containers.spec import Accelerator, ImageName, image_tag, load_accelerator
from harness_llm.containers.stage import run_stage
from harness_llm.subject import IMAGE_VARIABLE
from harness_llm.workspace import CHECKOUT, Workspace

STAGES: dict[ImageName, str] = {"model_and_dataset": "prepare", "submission": "submit"}
"""What harness-llm is told to do in a container of each image, in this order."""


def submit(options: Sequence[str], environ: Mapping[str, str]) -> int:
    """Build what is missing and go through the stages; returns the exit code of the first that fails, or 0.

    Args:
        options: of `harness-llm submit`.

    Raises:
        HarnessError: as building an image, starting a container and running a stage do.
    """
    name, accelerator = load_accelerator(environ.get("GPU_NAME", ""))
    daemon = connect(podman=setting.is_podman(setting.container_program(environ)))
    for image in STAGES:
        if not daemon.has(image_tag(image, name)):
            build(image, environ, printed=False)
    if accelerator.gpus:
        daemon.require_gpus(image_tag("submission", name))
    machine = _Machine(daemon, name, accelerator, environ)
    return next((code for image in STAGES if (code := machine.run(image, options))), 0)


@dataclass(frozen=True)
class _Machine:
    """Where the stages run."""

    daemon: Daemon
    name: str
    accelerator: Accelerator
    environ: Mapping[str, str]

    def run(self, image: ImageName, options: Sequence[str]) -> int:
        """Run the stage of `image`; returns its exit code."""
        container = self._container(image)
        prepare(container, self.accelerator, self.environ)
        uid, gid = map(int, container.user.split(":"))
        logs = Workspace(CHECKOUT).build / "containers"
        line = logs / f"{container.name}.lifeline"
        words = ["harness-llm", STAGES[image], *options]
        sys.stderr.write(f"{STAGES[image]}: in {container.image}\n")
        with lifeline.hold(line), token_mounts(find_token(self.environ, Path.home()), uid, gid) as token:
            inside = f"{self.accelerator.mounts.checkout}/{line.relative_to(CHECKOUT)}"
            own = replace(
                container,
                mounts=(*container.mounts, *token),
                environment={**container.environment, **ENVIRONMENT, lifeline.VARIABLE: inside},
            )
            program, _, *arguments = run_arguments(self.accelerator, own, words)
            create = [program, "create", *arguments]
            return run_stage(self.daemon, own.name, create, logs / f"{STAGES[image]}.log", terminal=own.terminal)

    def _container(self, image: ImageName) -> Container:
        container = setting.container(image, self.name, self.accelerator, self.environ)
        found = self.daemon.image(container.image)
        return replace(
            container,
            name=f"harness-llm-{STAGES[image]}-{dt.datetime.now(dt.UTC):%Y%m%dT%H%M%SZ}-{os.getpid()}",
            environment={**container.environment, IMAGE_VARIABLE: found.id},
            terminal=sys.stdout.isatty() and sys.stderr.isatty(),
        )
