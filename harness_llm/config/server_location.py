"""Location of running servers: this host, a node of the system, or another host."""

import socket
from collections.abc import Iterable, Sequence
from urllib.parse import urlsplit

_ANY_PORT = 0


def distant_servers(urls: Iterable[str], nodes: Sequence[str] = ()) -> list[str]:
    """The `urls` with an address outside this host and `nodes`, or without an address.

    Args:
        nodes: host names or addresses.
    """
    named = {address for node in nodes for address in _addresses(node)}
    found = {url: _addresses(urlsplit(url).hostname or "") for url in urls}
    return [url for url, own in found.items() if not own or not all(a in named or _is_local(a) for a in own)]


def location_violations(urls: Iterable[str], nodes: Sequence[str]) -> list[str]:
    """Why closed does not allow runs of servers at `urls`.

    A system that LoadGen reaches over a network belongs to the Network division (inference_rules.adoc:493-496). It is a
    policy of this project that closed requires every server on this host or on a node of the described system.

    Args:
        nodes: of the described system, as for `distant_servers`.
    """
    return [
        f"the server at {url} is neither on this host nor on a node of the described system"
        for url in distant_servers(urls, nodes)
    ]


def _addresses(host: str) -> set[str]:
    """The addresses of a host name; empty if it has none."""
    try:
        found = socket.getaddrinfo(host, _ANY_PORT, type=socket.SOCK_STREAM) if host else []
    except (OSError, UnicodeError):
        return set()
    return {str(address[0]) for *_, address in found}


def _is_local(address: str) -> bool:
    """Whether this host has `address`, that is, can bind a socket to it."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind((address, _ANY_PORT))
        except OSError:
            return False
    return True
