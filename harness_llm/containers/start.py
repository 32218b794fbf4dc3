"""Run a shell or a command in a new container, which is removed at its end."""

import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from harness_llm.containers import from_environment as setting
from harness_llm.containers.arguments import Container, run_arguments
from harness_llm.containers.container_spec import Accelerator, ImageName, load_accelerator
from harness_llm.containers.container_stage import not_ignored
from harness_llm.containers.daemon import Daemon, connect
from harness_llm.containers.mounts import prepare
from harness_llm.containers.scoring_server import offer
from harness_llm.containers.secrets import cloudflared_mounts, find_token, with_secrets
from harness_llm.errors import ConfigError
from harness_llm.runs.fingerprint import IMAGE_ID_VARIABLE

SHELL = ("bash",)


def start(image: ImageName, command: Sequence[str], environ: Mapping[str, str], *, printed: bool) -> int:
    """Run a container, or print the command; return the exit code of the command or of docker.

    Args:
        command: command in the container; default: a shell, if this process has a terminal.

    Raises:
        ConfigError: neither a command nor a terminal, or an invalid variable.
        EnvironmentMissing: missing daemon, image, device or folder.
    """
    name, accelerator = load_accelerator(environ.get("GPU_NAME", ""))
    keyboard = sys.stdin.isatty()
    terminal = keyboard and sys.stdout.isatty()
    # Keyboard input needs a terminal in the container; piped input does not.
    container = replace(
        setting.container(image, name, accelerator, environ), stdin=terminal or not keyboard, terminal=terminal
    )
    if not (command or terminal or printed):
        raise ConfigError(
            "missing command, and no terminal for a shell",
            hint=f"bash setup/start_{image}_env.sh COMMAND [ARGUMENT ...]",
        )
    if printed:
        sys.stdout.write(f"{shlex.join(run_arguments(accelerator, container, command or SHELL))}\n")
        return 0
    daemon = connect(podman=container.podman)
    daemon.image(container.image)
    if accelerator.gpus:
        daemon.require_gpus(container.image)
    with completed(container, daemon, accelerator, environ) as started:
        return _run(run_arguments(accelerator, started, command or SHELL), terminal=terminal)


@contextmanager
def completed(
    container: Container, daemon: Daemon, accelerator: Accelerator, environ: Mapping[str, str]
) -> Iterator[Container]:
    """Check the mounts; yield `container` with the id of its image, the scoring service and the secrets.

    Raises:
        EnvironmentMissing: missing image, device or folder.
    """
    prepare(container, accelerator, environ)
    image = {IMAGE_ID_VARIABLE: daemon.image(container.image).id}
    own = replace(container, environment={**container.environment, **image}, rootless=daemon.is_rootless)
    token, login = find_token(environ, Path.home()), cloudflared_mounts(Path.home())
    variables = setting.secret_variables(accelerator, environ)
    with offer(own) as served, with_secrets(served, token, variables, login) as started:
        yield started


def _run(arguments: Sequence[str], *, terminal: bool) -> int:
    """Run docker and forward signals to it; docker forwards them to the container.

    Without a terminal, docker gets its own process group, so that Ctrl-C reaches it only once.
    """
    process = subprocess.Popen(arguments, process_group=None if terminal else 0)
    for number in not_ignored(signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda received, _: process.send_signal(received))
    return process.wait()
