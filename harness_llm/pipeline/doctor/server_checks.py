"""Checks of servers that run before the submission: that they are ready, and report the measured software."""

import sys
from collections.abc import Iterator
from pathlib import Path

from harness_llm.config.commands import typed
from harness_llm.config.engine_config import EngineConfig
from harness_llm.config.engines import ENGINES
from harness_llm.config.request import Request
from harness_llm.config.servers import ServerKind, server_kinds
from harness_llm.errors import HarnessError
from harness_llm.pipeline.doctor.check_result import CheckResult, failed, from_error, passed
from harness_llm.replicas.engines.server_process import server_command
from harness_llm.runs.server_identity import ask_server, identity_violations, is_ready

_SERVERS = "Servers"


def check_servers(request: Request) -> Iterator[CheckResult]:
    """Check each server of server_config.url once, and the commands of servers that replicas start."""
    engine = ENGINES[request.options.engine]
    if not engine.serves:
        return
    started = [plan.config for plan in request.scenarios if not plan.config.server_config.url]
    yield from dict.fromkeys(result for config in started for result in _check_command(engine.kind, config))
    asked = {
        url: server_kinds()[engine.kind or plan.config.server_config.kind]
        for plan in request.scenarios
        for url in plan.config.server_config.url
    }
    for url, kind in asked.items():
        yield _check_server(url, kind, request.options.division)


def _check_command(kind: str | None, config: EngineConfig) -> Iterator[CheckResult]:
    """Check that the command of a server can be composed, and that its program is installed."""
    server = config.server_config
    program = [sys.executable]  # that of LLMBoost's wheel is unpacked with the start
    try:
        server_command(
            kind or server.kind,
            server.command,
            "checkpoint",
            config.llm_config,
            port=0,
            options=Path(),
            program=program,
        )
    except HarnessError as error:
        yield from_error(_SERVERS, error)


def _check_server(url: str, kind: ServerKind, division: str) -> CheckResult:
    if not is_ready(url, kind):
        return failed(
            _SERVERS,
            "a server is not ready",
            expected="status 200",
            where=f"{url}{kind.health} (server_config.url)",
            hint="start the server, then type the same command again",
        )
    facts = ask_server(url, kind)
    violations = identity_violations([facts])
    if violations and division == "closed":
        return failed(
            _SERVERS,
            *violations,
            expected='{"version": …}, because closed counts no run of unknown software',
            where=f"{url}{kind.version} (server_config.url)",
            hint=typed(division="open"),
        )
    return passed(_SERVERS, f"{url}: {facts['id'] or 'unknown model'}, version {facts['version'] or 'unknown'}")
