"""A server of this replica's own, on a free port of the loopback interface."""

import os
import shlex
import shutil
import socket
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from harness_llm.config.llmboost import llmboost_program
from harness_llm.config.servers import HOST, THIS_PYTHON, command_line, server_kinds
from harness_llm.errors import ConfigError, EnvironmentMissing
from harness_llm.protocol.child_processes import Child, Exit, at_leave, start, watch
from harness_llm.replicas.engines.cuda import prepare_cuda
from harness_llm.replicas.engines.engine import ServerSpec

ENDING_S = 5.0  # a connection breaks a moment before its server's process has ended


@dataclass(frozen=True)
class Server:
    """A server that was started; it ends with this process, if not before."""

    child: Child
    url: str

    def end(self, timeout_s: float = 0) -> str:
        """How the server ended, with its last words; empty while it runs."""
        deadline = time.monotonic() + timeout_s
        while True:
            for event in watch([self.child], max(deadline - time.monotonic(), 0)):
                if isinstance(event, Exit):
                    return (
                        f"the server ended with exit code {event.code}; the end of its log:\n{self.child.last_lines()}"
                    )
            if time.monotonic() >= deadline:
                return ""


def launch(spec: ServerSpec, checkpoint: str, llm_config: dict[str, Any]) -> Server:
    """Start a server; it is not ready yet.

    Raises:
        ConfigError: there is no command, or it names what llm_config does not have.
        EnvironmentMissing: the program is not here, or this environment is a CUDA build and there is no GPU.
    """
    kind = server_kinds()[spec.kind]
    template = spec.command or kind.command
    if not template:
        raise ConfigError(
            f"there is no command that starts a {spec.kind} server",
            where="server_config.command",
            hint="name one with --set server_config.command=…, or a running server with --set server_config.url=…",
        )
    if THIS_PYTHON in template:
        prepare_cuda()
    folder = Path(tempfile.mkdtemp(prefix="server-"))
    options = folder / "options.yaml"
    options.write_text(yaml.safe_dump(kind.options))
    program = llmboost_program(folder) if spec.kind == "llmboost" else []
    port = free_port()
    try:
        command = command_line(template, checkpoint, llm_config, port=port, options=options, program=program)
    except KeyError as error:
        raise ConfigError(
            "the command of the server has a place holder that nothing fills",
            where="server_config.command",
            found=f"{{{error.args[0]}}}",
            expected="{python} {checkpoint} {host} {port} {flags} {options}, or an argument of llm_config",
        ) from error
    return Server(_start(command, Path(spec.log)), f"http://{HOST}:{port}")


def _start(command: Sequence[str], log: Path) -> Child:
    # An environment need not be activated: bare names are looked for beside this interpreter, too.
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    if not shutil.which(command[0], path=path):
        raise EnvironmentMissing(f"the program {command[0]} is not here", found=shlex.join(command))
    log.write_text(f"{shlex.join(command)}\n")
    child = start(
        "harness_llm.replicas.engines.server_guard", command, name="server", log=log, environment={"PATH": path}
    )
    at_leave(child.stop)  # what comes next may want its accelerators: a replica's end waits for its server's
    return child


def free_port() -> int:
    """A port that nobody listens at now."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
        return port
