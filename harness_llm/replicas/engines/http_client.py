"""Requests to one server: an asyncio loop in a thread of its own, and what has arrived since the last look."""

import asyncio
import contextlib
import os
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

import aiohttp

Result = TypeVar("Result")
Take = Callable[[aiohttp.ClientResponse], Awaitable[None]]

CONNECT_TIMEOUT_S = 10
PAGE_TIMEOUT_S = 60
RETRY_AFTER_S = 0.2
# Below what uvicorn keeps an idle connection for (5 s), so that it is seldom closed as we write to it.
KEEP_ALIVE_S = 4
# A line of a stream may be as long as this: its first chunk repeats the prompt.
LONGEST_LINE = 1 << 24

# No byte of an answer has come: the connection was refused, or was closed before.
_UNANSWERED = (aiohttp.ClientConnectorError, aiohttp.ClientOSError, aiohttp.ServerDisconnectedError)


class Client:
    """A pool of kept-alive connections to the server at `url`."""

    def __init__(self, url: str, *, connections: int, attempts: int, timeout_s: float) -> None:
        """Open nothing yet; see ServerSpec for the limits."""
        self.url = url
        self.arrivals = os.eventfd(0, os.EFD_NONBLOCK)
        self._attempts = attempts
        self._arrived: deque[Any] = deque()
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
            read_bufsize=LONGEST_LINE,
            headers={"Content-Type": "application/json"},
        )

    def call(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Run `work` on the loop and wait for it."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def begin(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Start `work` on the loop; it tells what it has with `arrive`."""
        self._loop.call_soon_threadsafe(self._start, work)

    def _start(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        task = self._loop.create_task(work())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def arrive(self, news: Any) -> None:
        """Hand `news` to the thread that drains; called on the loop."""
        self._arrived.append(news)
        os.eventfd_write(self.arrivals, 1)

    def drain(self) -> list[Any]:
        """What has arrived."""
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self.arrivals)
        return [self._arrived.popleft() for _ in range(len(self._arrived))]

    def cancel(self) -> None:
        """End all work, its connections closed; returns once nothing of it can arrive any more."""
        self.call(self._cancel())
        self.drain()

    async def _cancel(self) -> None:
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def close(self) -> None:
        """Close every connection and end the thread."""
        self.cancel()
        self.call(self._session.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        os.close(self.arrivals)

    async def get(self, path: str) -> tuple[int, str]:
        """Status and text of a page; raises aiohttp.ClientError or TimeoutError."""
        async with self._session.get(path, timeout=aiohttp.ClientTimeout(total=PAGE_TIMEOUT_S)) as response:
            return response.status, await response.text()

    async def post(self, path: str, body: bytes, take: Take) -> None:
        """Send `body` and let `take` read the answer; sent again only while no byte of an answer has come.

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
    """Whether the connection was closed within the head of an answer: aiohttp then hands over what it has of it."""
    return isinstance(error, aiohttp.ServerDisconnectedError) and not isinstance(error.message, str)
