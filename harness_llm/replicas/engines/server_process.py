"""Starts the server of a replica on a free port of the loopback interface."""

import os
import shlex
import shutil
import socket
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from harness_llm.config.commands import engine_setting
from harness_llm.config.llmboost import llmboost_program
from harness_llm.config.servers import HOST, THIS_PYTHON, command_line, server_kinds
from harness_llm.errors import ConfigError, EnvironmentMissing
from harness_llm.protocol.child_processes import Child, Exit, before_exit, start, watch
from harness_llm.replicas.engines.cuda import prepare_cuda
from harness_llm.replicas.engines.engine import ServerSpec
from harness_llm.replicas.failure_cause import cause_of_exit

# An answer breaks before the server's process exits: vLLM's looks every 5 s whether its engine core has exited
# (vllm/entrypoints/launchers/launcher.py, watchdog_loop), and then shuts down.
EXIT_TIMEOUT_S = 15.0


@dataclass(frozen=True)
class Server:
    """A started server; it exits with this process, if not before."""

    child: Child
    url: str

    def exit_cause(self, timeout_s: float = 0) -> str:
        """Return why the server ended, and its log; empty while it runs."""
        deadline = time.monotonic() + timeout_s
        while True:
            for event in watch([self.child], max(deadline - time.monotonic(), 0)):
                if isinstance(event, Exit):
                    return f"the server ended: {cause_of_exit(event)}; its log: {self.child.log}"
            if time.monotonic() >= deadline:
                return ""


def launch(spec: ServerSpec, checkpoint: str, llm_config: dict[str, Any]) -> Server:
    """Start a server, without waiting until it is ready.

    Raises:
        HarnessError: from `server_command`; or no GPU for the CUDA build.
    """
    kind = server_kinds()[spec.kind]
    if THIS_PYTHON in (spec.command or kind.command):
        prepare_cuda()
    folder = Path(tempfile.mkdtemp(prefix="server-"))
    options = folder / "options.yaml"
    options.write_text(yaml.safe_dump(kind.options))
    program = llmboost_program(folder) if spec.kind == "llmboost" else []
    port = free_port()
    command = server_command(
        spec.kind, spec.command, checkpoint, llm_config, port=port, options=options, program=program
    )
    return Server(_start(command, folder, Path(spec.log)), f"http://{HOST}:{port}")


def server_command(
    kind: str,
    own: str,
    checkpoint: str,
    llm_config: Mapping[str, Any],
    *,
    port: int,
    options: Path,
    program: Sequence[str],
) -> list[str]:
    """Return the command that starts a server; the other arguments are values of its placeholders.

    Args:
        own: replaces the command of `kind`.

    Raises:
        ConfigError: no command, or it has a placeholder without a value.
        EnvironmentMissing: missing program.
    """
    template = own or server_kinds()[kind].command
    if not template:
        raise ConfigError(
            f"missing command to start a {kind} server",
            where="server_config.command",
            hint=f"set a command, {engine_setting('server_config.command', '…')}, or a running server, "
            f"{engine_setting('server_config.url', '…')}",
        )
    try:
        command = command_line(template, checkpoint, llm_config, port=port, options=options, program=program)
    except KeyError as error:
        raise ConfigError(
            "unknown placeholder in the server command",
            where="server_config.command",
            found=f"{{{error.args[0]}}}",
            expected="{python} {checkpoint} {host} {port} {flags} {options}, or an argument of llm_config",
        ) from error
    if not shutil.which(command[0], path=_path()):
        raise EnvironmentMissing(f"missing program {command[0]}", found=shlex.join(command))
    return command


def _path() -> str:
    """Return PATH after the folder of this interpreter, so that its environment need not be activated."""
    return f"{Path(sys.executable).parent}:{os.environ['PATH']}"


def _start(command: Sequence[str], folder: Path, log: Path) -> Child:
    log.write_text(f"{shlex.join(command)}\n")
    arguments = [str(folder), *command]
    child = start("harness_llm.protocol.guard", arguments, name="server", log=log, environment={"PATH": _path()})
    before_exit(child.stop)  # the next replica may need the accelerators: a replica's exit waits for its server's
    return child


def free_port() -> int:
    """Return a port without a listener."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
        return port
