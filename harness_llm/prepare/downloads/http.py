"""HTTP client with retries after connection errors and busy servers."""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TypeVar

import httpx

from harness_llm.errors import EnvironmentMissing, HarnessError, RunFailed

Result = TypeVar("Result")

WAITS_S = (1, 2, 4, 8, 16)
LATER_WAITS_S = (32, 64, 128, 256)
"""Further waits for a host that answered before: an outage, or a rate limit of Hugging Face, which counts 5 minutes."""
BRIEF_WAITS_S = (1,)
"""Waits of a check, for which a user waits."""
Explain = Callable[[str, httpx.Response], HarnessError]
Notify = Callable[[str], None]

_TIMEOUT = httpx.Timeout(60, connect=15)
_UNREACHABLE = (httpx.ConnectError, httpx.ConnectTimeout, httpx.ProxyError)
_BUSY = {408, 429, 500, 502, 503, 504}


class ServerBusy(Exception):
    """A response with a status that is worth a retry."""


class Unreachable(EnvironmentMissing):
    """No connection to the server `where`."""


class Connection:
    """HTTP connection to one publisher."""

    def __init__(self, client: httpx.Client, explain: Explain, notify: Notify, *, brief: bool) -> None:
        """Use `client`; `explain` converts an error response to an exception, `notify` receives each retry.

        Args:
            brief: give up after BRIEF_WAITS_S.
        """
        self._client, self._explain, self._notify = client, explain, notify
        self._has_answered, self._brief = False, brief

    def authenticate(self, headers: Mapping[str, str]) -> None:
        """Send `headers` with all further requests."""
        self._client.headers.update(headers)

    def text(self, url: str) -> str:
        """Return the content of `url`."""

        def get() -> str:
            response = self._client.get(url)
            self._require_success(url, response)
            return response.text

        return self.retry(get)

    def size(self, url: str) -> int:
        """Return the size of `url` in bytes.

        Raises:
            RunFailed: response without a valid Content-Length.
        """

        def head() -> int:
            response = self._client.head(url)
            self._require_success(url, response)
            try:
                return int(response.headers["Content-Length"])
            except (KeyError, ValueError):
                raise RunFailed("missing Content-Length", where=url) from None

        return self.retry(head)

    @contextmanager
    def stream(self, url: str, start: int) -> Iterator[httpx.Response]:
        """Yield the response for `url` from byte `start`; status 200 means from the beginning."""
        headers = {"Range": f"bytes={start}-"} if start else {}
        with self._client.stream("GET", url, headers=headers) as response:
            self._require_success(url, response)
            yield response

    def require_content(self, url: str) -> None:
        """Require that the content of `url` can be read, without reading it."""

        def open_and_close() -> None:
            with self.stream(url, 0):
                pass

        self.retry(open_and_close)

    def retry(self, action: Callable[[], Result], progress: Callable[[], int] = lambda: 0) -> Result:
        """Return the result of `action`; retry with increasing waits, which restart when `progress` increases.

        Raises:
            Unreachable: no connection to the server.
            RunFailed: repeated connection errors, or the server stays busy.
        """
        failures = 0
        while True:
            before = progress()
            try:
                return action()
            except (httpx.TransportError, ServerBusy) as error:
                waits = self._waits()
                failures = 0 if progress() > before else failures
                if failures == len(waits):
                    raise _final_error(error) from error
                wait, failures = waits[failures], failures + 1
                self._notify(f"retry in {wait:g} s: {_describe(error)}")
                time.sleep(wait)

    def _waits(self) -> tuple[int, ...]:
        if self._brief:
            return BRIEF_WAITS_S
        return (*WAITS_S, *LATER_WAITS_S) if self._has_answered else WAITS_S

    def _require_success(self, url: str, response: httpx.Response) -> None:
        if response.status_code in _BUSY:
            raise ServerBusy(f"{url}: {status(response)}")
        if not response.is_success:
            raise self._explain(url, response)
        self._has_answered = True


@contextmanager
def connect(
    explain: Explain,
    notify: Notify,
    headers: Mapping[str, str] | None = None,
    *,
    follow_redirects: bool,
    brief: bool = False,
) -> Iterator[Connection]:
    """Open a connection without content encoding, so that sizes and ranges are those of the file."""
    own = dict(headers or {}) | {"Accept-Encoding": "identity"}
    with httpx.Client(headers=own, timeout=_TIMEOUT, follow_redirects=follow_redirects) as client:
        yield Connection(client, explain, notify, brief=brief)


def require_page(url: str) -> None:
    """Require that `url` can be read; raises as `Connection.retry`, and RunFailed for an error response."""
    with connect(refused, lambda _: None, follow_redirects=True, brief=True) as connection:
        connection.require_content(url)


def is_header_value(secret: str) -> bool:
    """Return whether a header can contain `secret`; httpx's error for an invalid value would show it."""
    return secret.isascii() and secret.isprintable() and " " not in secret


def status(response: httpx.Response) -> str:
    """Return the status line for messages."""
    return f"HTTP {response.status_code} {response.reason_phrase}".rstrip()


def refused(url: str, response: httpx.Response) -> RunFailed:
    """Return the error for a response without a more specific explanation."""
    return RunFailed("download refused", where=url, found=status(response), hint="try again later")


def _describe(error: httpx.TransportError | ServerBusy) -> str:
    if isinstance(error, ServerBusy):
        return str(error)
    host = error.request.url.netloc.decode()
    return f"{host} is unreachable" if isinstance(error, _UNREACHABLE) else f"connection to {host} lost"


def _final_error(error: httpx.TransportError | ServerBusy) -> HarnessError:
    if isinstance(error, ServerBusy):
        return RunFailed("server is too busy", found=str(error), hint="run the same command again later")
    host = error.request.url.netloc.decode()
    if isinstance(error, _UNREACHABLE):
        return Unreachable(
            "server unreachable",
            where=host,
            found=str(error),
            hint="check the network; set HTTPS_PROXY for a proxy. Or run the same command on another machine and copy "
            "the folder",
        )
    return RunFailed(
        f"connection to {host} lost repeatedly",
        found=f"{type(error).__name__}: {error}",
        hint="run the same command again: it resumes the download",
    )
