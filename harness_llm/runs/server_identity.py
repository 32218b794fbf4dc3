"""Version and model of a running server, whose software harness-llm does not install."""

from collections.abc import Sequence
from typing import Any

import httpx

from harness_llm.config.servers import MODELS, ServerKind

_TIMEOUT_S = 3  # a command asks more than once
_MODEL_FACTS = ("id", "root", "max_model_len")


def is_ready(url: str, kind: ServerKind) -> bool:
    """Whether the health page of the server at `url` has status 200."""
    try:
        return httpx.get(f"{url}{kind.health}", timeout=_TIMEOUT_S, trust_env=False).status_code == httpx.codes.OK
    except (httpx.HTTPError, httpx.InvalidURL):
        return False


def ask_server(url: str, kind: ServerKind) -> dict[str, Any]:
    """Version and model of the server at `url`; None for each that the server does not report."""
    version = _document(f"{url}{kind.version}") if kind.version else {}
    models = _document(f"{url}{MODELS}").get("data")
    model = models[0] if isinstance(models, list) and models and isinstance(models[0], dict) else {}
    return {"url": url, "version": version.get("version"), **{name: model.get(name) for name in _MODEL_FACTS}}


def _document(url: str) -> dict[str, Any]:
    """The JSON object at `url`; empty without one."""
    try:
        document = httpx.get(url, timeout=_TIMEOUT_S, trust_env=False).raise_for_status().json()
    except (httpx.HTTPError, httpx.InvalidURL, ValueError):
        return {}
    return document if isinstance(document, dict) else {}


def identity_violations(servers: Sequence[dict[str, Any]]) -> list[str]:
    """Why closed does not allow runs of these servers: a result names the measured software."""
    return [
        f"the server at {server['url']} does not report its version, so the measured software is unknown"
        for server in servers
        if not server["version"]
    ]
