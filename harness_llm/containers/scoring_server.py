"""Scoring service on the host: start sandbox containers that run model-generated programs, for a stage's container.

A stage's container cannot start them: it has no container engine, and Docker's default profile forbids namespaces. The
socket's folder is accessible to the container's user only. A request selects one of the three jobs of
`service.Request`; commands, images and limits are fixed here.
"""

import json
import os
import socketserver
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from harness_llm.containers.arguments import Container, Mount, identity
from harness_llm.containers.build import build_mbxp
from harness_llm.containers.secrets import memory_folder
from harness_llm.errors import ConfigError, HarnessError
from harness_llm.evaluate import scoring_service as service
from harness_llm.evaluate.mbxp.container import IMAGE, container_name, has_image, run_batch
from harness_llm.evaluate.mbxp.programs import Program
from harness_llm.evaluate.official.scripts import ENVIRONMENT, LIMIT_S, VARIABLES, find_script, python_arguments
from harness_llm.evaluate.sandbox import Finished, run_sandboxed

INSIDE = "/run/harness-llm"
_SOCKET = "scoring.sock"
_PROCESSES = 8192  # an accuracy script starts up to ten per core
_PYTHON = f'exec "$HARNESS_LLM_ENVIRONMENTS/{ENVIRONMENT}/bin/python" "$@"'


@contextmanager
def offer(container: Container) -> Iterator[Container]:
    """Serve requests of `container`; yield it with the socket's mount and variable."""
    uid, gid = map(int, container.user.split(":"))
    with tempfile.TemporaryDirectory(prefix="harness-llm-", dir=memory_folder()) as folder:
        jobs = Jobs(container)
        with _listening(Path(folder), jobs) as server:
            for path in (Path(folder, _SOCKET), Path(folder)):
                if os.getuid() != uid:
                    os.chown(path, uid, gid)
            thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.1})
            thread.start()
            try:
                yield replace(
                    container,
                    mounts=(*container.mounts, Mount(Path(folder), INSIDE, writable=False)),
                    environment={**container.environment, service.VARIABLE: f"{INSIDE}/{_SOCKET}"},
                )
            finally:
                jobs.stop.set()
                server.shutdown()
                thread.join()


@contextmanager
def _listening(folder: Path, jobs: "Jobs") -> Iterator["_Server"]:
    """Yield a server on a socket in `folder`; /proc/self/fd avoids the limit of 107 bytes for an address."""
    descriptor = os.open(folder, os.O_PATH)
    try:
        with _Server(f"/proc/self/fd/{descriptor}/{_SOCKET}", jobs) as server:
            Path(folder, _SOCKET).chmod(0o600)
            yield server
    finally:
        os.close(descriptor)


class _Server(socketserver.ThreadingUnixStreamServer):
    """Server with a thread per connection; close() waits for all threads."""

    request_queue_size = 512  # the container opens one connection per core

    def __init__(self, address: str, jobs: "Jobs") -> None:
        super().__init__(address, _Connection)
        self.jobs = jobs


class _Connection(socketserver.StreamRequestHandler):
    """One request and its response."""

    server: _Server

    def handle(self) -> None:
        line = self.rfile.readline(service.REQUEST_BYTES + 1)
        if line:
            answer = json.dumps(self.server.jobs.answer(line)).encode()
            with suppress(OSError):  # the container has ended
                self.wfile.write(answer + b"\n")


@dataclass(frozen=True)
class Jobs:
    """Jobs of the service for `container`, until `stop` is set."""

    container: Container
    stop: threading.Event = field(default_factory=threading.Event)
    building: threading.Lock = field(default_factory=threading.Lock)

    def answer(self, line: bytes) -> dict[str, Any]:
        """Return the response to one request."""
        try:
            return {"value": self._do(_parse(line))}
        except HarnessError as error:
            return {"error": error.facts()}

    def _do(self, request: service.Request) -> Any:
        if isinstance(request, service.RequireMbxp):
            return self._require_mbxp()
        if isinstance(request, service.Grade):
            return self._grade(request)
        programs = [Program(program.language, program.code) for program in request.programs]
        return run_batch(self.container.program, programs, self.stop)

    def _require_mbxp(self) -> None:
        """Build the image of MBXP if it is missing."""
        with self.building:
            if not has_image(self.container.program):
                sys.stderr.write(f"building {IMAGE}\n")
                build_mbxp(self.container.program)

    def _grade(self, request: service.Grade) -> Finished:
        arguments = python_arguments(find_script(request.method), request.folder, request.log, request.source)
        with container_name(self.container.program, f"{self.container.name}-scoring") as name:
            return run_sandboxed(grade_command(self.container, name, arguments), "", LIMIT_S, self.stop)


def _parse(line: bytes) -> service.Request:
    if len(line) > service.REQUEST_BYTES:
        raise ConfigError("request to the scoring service is too large", expected=f"{service.REQUEST_BYTES} bytes")
    try:
        return service.REQUESTS.validate_json(line)
    except ValidationError as error:
        raise ConfigError("invalid request to the scoring service", found=str(error)) from error


def grade_command(container: Container, name: str, arguments: list[str]) -> list[str]:
    """Return the command that runs the graders' Python in the image of `container`: read-only, no network, no token."""
    memory = str(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2)
    shown = [str(replace(mount, writable=False)) for mount in container.mounts]
    return [
        *(container.program, "run", "--rm", "--interactive", "--name", name, "--pull", "never"),
        *("--network", "none", *identity(container), "--cap-drop", "ALL"),
        # Without label=disable, SELinux requires relabelled mounts.
        *("--security-opt", "no-new-privileges", "--security-opt", "label=disable"),
        *("--memory", memory, "--memory-swap", memory, "--pids-limit", str(_PROCESSES)),
        *(word for mount in shown for word in ("--mount", mount)),
        *(word for variable, value in VARIABLES.items() for word in ("--env", f"{variable}={value}")),
        *(container.image, "sh", "-c", _PYTHON, "sh", *arguments),
    ]
