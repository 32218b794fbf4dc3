"""What a server that runs already says of itself: it is not ours, so that our own versions say nothing of it."""

from collections.abc import Sequence
from typing import Any

import httpx

from harness_llm.config.servers import MODELS, ServerKind

_TIMEOUT_S = 3  # a page of facts; a command asks for it more than once
_MODEL_FACTS = ("id", "root", "max_model_len")


def ask_server(url: str, kind: ServerKind) -> dict[str, Any]:
    """Version and model of the server at `url`; what it does not tell is None."""
    version = _document(f"{url}{kind.version}") if kind.version else {}
    models = _document(f"{url}{MODELS}").get("data")
    model = models[0] if isinstance(models, list) and models and isinstance(models[0], dict) else {}
    return {"url": url, "version": version.get("version"), **{name: model.get(name) for name in _MODEL_FACTS}}


def _document(url: str) -> dict[str, Any]:
    """A JSON object; an empty one where there is none to be had."""
    try:
        document = httpx.get(url, timeout=_TIMEOUT_S, trust_env=False).raise_for_status().json()
    except (httpx.HTTPError, httpx.InvalidURL, ValueError):
        return {}
    return document if isinstance(document, dict) else {}


def identity_violations(servers: Sequence[dict[str, Any]]) -> list[str]:
    """Why a run of these servers is never closed: a result names the software that it measured."""
    return [
        f"the server at {server['url']} does not tell its version, so that what was measured is unknown"
        for server in servers
        if not server["version"]
    ]
