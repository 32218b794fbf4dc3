"""Requests that outlive a dropped connection or a busy server."""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TypeVar

import httpx

from harness_llm.errors import EnvironmentMissing, HarnessError, RunFailed

Result = TypeVar("Result")

WAITS_S = (1, 2, 4, 8, 16)
Explain = Callable[[str, httpx.Response], HarnessError]
Tell = Callable[[str], None]

_TIMEOUT = httpx.Timeout(60, connect=15)
_UNREACHABLE = (httpx.ConnectError, httpx.ConnectTimeout, httpx.ProxyError)
_BUSY = {408, 429, 500, 502, 503, 504}


class Busy(Exception):
    """The server could not answer now."""


class Wire:
    """A connection to one publisher."""

    def __init__(self, client: httpx.Client, explain: Explain, tell: Tell) -> None:
        """`explain` says what to do about an URL that was answered with an error; `tell` is told of each new try."""
        self._client, self._explain, self._tell = client, explain, tell

    def authenticate(self, headers: Mapping[str, str]) -> None:
        """Send `headers` from now on."""
        self._client.headers.update(headers)

    def text(self, url: str) -> str:
        """What `url` holds."""

        def get() -> str:
            response = self._client.get(url)
            self._require_good(url, response)
            return response.text

        return self.patiently(get)

    def size(self, url: str) -> int:
        """How many bytes `url` holds.

        Raises:
            RunFailed: the server does not say.
        """

        def head() -> int:
            response = self._client.head(url)
            self._require_good(url, response)
            try:
                return int(response.headers["Content-Length"])
            except (KeyError, ValueError):
                raise RunFailed("a server does not say how large a file is", where=url) from None

        return self.patiently(head)

    @contextmanager
    def stream(self, url: str, start: int) -> Iterator[httpx.Response]:
        """What `url` holds from byte `start` on; all of it if the server answers with 200."""
        headers = {"Range": f"bytes={start}-"} if start else {}
        with self._client.stream("GET", url, headers=headers) as response:
            self._require_good(url, response)
            yield response

    def patiently(self, action: Callable[[], Result], progress: Callable[[], int] = lambda: 0) -> Result:
        """The result of `action`, tried again after longer and longer waits as long as `progress` stands still.

        Raises:
            EnvironmentMissing: the server cannot be reached.
            RunFailed: the connection keeps breaking, or the server stays busy.
        """
        waits = iter(WAITS_S)
        while True:
            before = progress()
            try:
                return action()
            except (httpx.TransportError, Busy) as error:
                if progress() > before:
                    waits = iter(WAITS_S)
                wait = next(waits, None)
                if wait is None:
                    raise _given_up(error) from error
                self._tell(f"trying again in {wait:g} s: {_trouble(error)}")
                time.sleep(wait)

    def _require_good(self, url: str, response: httpx.Response) -> None:
        if response.status_code in _BUSY:
            raise Busy(f"{url} was answered with {status(response)}")
        if not response.is_success:
            raise self._explain(url, response)


@contextmanager
def connect(
    explain: Explain,
    tell: Tell,
    headers: Mapping[str, str] | None = None,
    *,
    follow_redirects: bool,
) -> Iterator[Wire]:
    """Open a wire; content comes as it is stored, or sizes and ranges would mean something else."""
    own = dict(headers or {}) | {"Accept-Encoding": "identity"}
    with httpx.Client(headers=own, timeout=_TIMEOUT, follow_redirects=follow_redirects) as client:
        yield Wire(client, explain, tell)


def is_sendable(secret: str) -> bool:
    """Whether a header can hold `secret`; the error about one that cannot would show it."""
    return secret.isascii() and secret.isprintable() and " " not in secret


def status(response: httpx.Response) -> str:
    """As messages show it."""
    return f"HTTP {response.status_code} {response.reason_phrase}".rstrip()


def refused(url: str, response: httpx.Response) -> RunFailed:
    """What to say of an answer that nothing better is known about."""
    return RunFailed("a download was refused", where=url, found=status(response), hint="try again later")


def _trouble(error: httpx.TransportError | Busy) -> str:
    if isinstance(error, Busy):
        return str(error)
    host = error.request.url.netloc.decode()
    return f"{host} cannot be reached" if isinstance(error, _UNREACHABLE) else f"the connection to {host} broke"


def _given_up(error: httpx.TransportError | Busy) -> HarnessError:
    if isinstance(error, Busy):
        return RunFailed("a server is too busy to answer", found=str(error), hint="run the same command again later")
    host = error.request.url.netloc.decode()
    if isinstance(error, _UNREACHABLE):
        return EnvironmentMissing(
            f"{host} cannot be reached from this machine",
            found=str(error),
            hint="look at the network; HTTPS_PROXY names a proxy. Or run the same command on another machine and copy "
            "the folder",
        )
    return RunFailed(
        f"the connection to {host} breaks again and again",
        found=f"{type(error).__name__}: {error}",
        hint="run the same command again: what has come is kept",
    )
