"""Checks of servers that run before the submission: that they are ready, and report the measured software."""

from collections.abc import Iterator

from harness_llm.config.commands import typed
from harness_llm.config.engines import ENGINES
from harness_llm.config.request import Request
from harness_llm.config.servers import ServerKind, server_kinds
from harness_llm.pipeline.doctor.check_result import CheckResult, failed, passed
from harness_llm.runs.server_identity import ask_server, identity_violations, is_ready

_SERVERS = "Servers"


def check_servers(request: Request) -> Iterator[CheckResult]:
    """Check each server of server_config.url once; none without URLs."""
    engine = ENGINES[request.options.engine]
    if not engine.serves:
        return
    asked = {
        url: server_kinds()[engine.kind or plan.config.server_config.kind]
        for plan in request.scenarios
        for url in plan.config.server_config.url
    }
    for url, kind in asked.items():
        yield _check_server(url, kind, request.options.division)


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
