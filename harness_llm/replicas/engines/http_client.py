"""HTTP client of one server: an asyncio loop in its own thread, which puts results into a mailbox."""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

import aiohttp

from harness_llm.protocol.mailbox import Mailbox

Result = TypeVar("Result")
Take = Callable[[aiohttp.ClientResponse], Awaitable[None]]

CONNECT_TIMEOUT_S = 10
PAGE_TIMEOUT_S = 60
RETRY_AFTER_S = 0.2
# Less than uvicorn's timeout of idle connections (5 s), so that a connection is rarely closed while it is written to.
KEEP_ALIVE_S = 4
# The first chunk of a stream may repeat the prompt.
MAX_LINE_BYTES = 1 << 24

# No byte of an answer has arrived: the connection was refused or closed before.
_UNANSWERED = (aiohttp.ClientConnectorError, aiohttp.ClientOSError, aiohttp.ServerDisconnectedError)


class Client:
    """A pool of kept-alive connections to the server at `url`."""

    def __init__(self, url: str, *, connections: int, attempts: int, timeout_s: float) -> None:
        """Start the thread, without a connection; limits as in ServerSpec."""
        self.url = url
        self.results: Mailbox[Any] = Mailbox()
        self._attempts = attempts
        self._tasks: set[asyncio.Task[None]] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="http", daemon=True)
        self._thread.start()
        self._session = self.call(self._open(connections, timeout_s))

    async def _open(self, connections: int, timeout_s: float) -> aiohttp.ClientSession:
        return aiohttp.ClientSession(
            self.url,
            connector=aiohttp.TCPConnector(limit=connections, keepalive_timeout=KEEP_ALIVE_S),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_TIMEOUT_S, sock_read=timeout_s),
            read_bufsize=MAX_LINE_BYTES,
            headers={"Content-Type": "application/json"},
        )

    def call(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Run `work` in the loop and return its result."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def begin(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Start `work` in the loop; it puts its results into `results`."""
        self._loop.call_soon_threadsafe(self._start, work)

    def _start(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        task = self._loop.create_task(work())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def cancel(self) -> None:
        """Cancel all work, close its connections and discard its results."""
        self.call(self._cancel())
        self.results.take()

    async def _cancel(self) -> None:
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def close(self) -> None:
        """Close all connections and stop the thread."""
        self.cancel()
        self.call(self._session.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        self.results.close()

    async def get(self, path: str) -> tuple[int, str]:
        """Return status and text of a page; raise aiohttp.ClientError or TimeoutError."""
        async with self._session.get(path, timeout=aiohttp.ClientTimeout(total=PAGE_TIMEOUT_S)) as response:
            return response.status, await response.text()

    async def post(self, path: str, body: bytes, take: Take) -> None:
        """Send `body` and let `take` read the answer; retry only while no byte of an answer has arrived.

        Raises:
            aiohttp.ClientError, TimeoutError: no answer, or a broken one.
        """
        response = await self._answered(path, body)
        async with response:
            await take(response)

    async def _answered(self, path: str, body: bytes) -> aiohttp.ClientResponse:
        for attempt in range(1, self._attempts):
            try:
                return await self._session.post(path, data=body)
            except _UNANSWERED as error:
                if _begun(error):
                    raise
                await asyncio.sleep(RETRY_AFTER_S * attempt)
        return await self._session.post(path, data=body)


def _begun(error: aiohttp.ClientError) -> bool:
    """Return whether the connection was closed within the header of an answer, which aiohttp then attaches."""
    return isinstance(error, aiohttp.ServerDisconnectedError) and not isinstance(error.message, str)
