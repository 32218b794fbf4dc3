"""A server of OpenAI's completions with token ids over real sockets, with selectable faults.

Its answers follow from the prompt. Run as `python token_server.py --port N [--behave NAME] [--after N] [--hold N]`, or
run in a thread with `TokenServer`; `--after` is the number of correct completions before the fault, `--hold` its MiB of
memory, which take a moment to be freed.
"""

import argparse
import asyncio
import contextlib
import json
import os
import signal
import sys
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Self

Writer = asyncio.StreamWriter
Request = dict[str, Any]

HEAD = "HTTP/1.1 {status}\r\nContent-Type: {type}\r\n"
METRICS = 'vllm:prefix_cache_hits_total{{engine="0"}} {hits}\nvllm:prefix_cache_hits_created{{engine="0"}} 1.7e9\n'
HITS = 1000.0
OVER = (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError)


def answer_to(prompt: list[int], request: Request) -> tuple[list[int], str]:
    """The ids that follow `prompt`, and why they end."""
    stops = request["stop_token_ids"][:1]
    length = 2 + sum(prompt) % 5 if stops else request["max_tokens"] + 1
    ids = [3 + (prompt[0] + place) % 400 for place in range(length)] + stops
    return (ids[: request["max_tokens"]], "length") if len(ids) > request["max_tokens"] else (ids, "stop")


def chunk(ids: list[int] | None, reason: str | None = None) -> dict[str, Any]:
    return {"choices": [{"index": 0, "text": "", "token_ids": ids, "finish_reason": reason}]}


def event(document: object) -> bytes:
    return f"data: {json.dumps(document)}\n\n".encode()


def page(status: str, text: str, kind: str = "application/json") -> bytes:
    head = HEAD.format(status=status, type=kind)
    return f"{head}Content-Length: {len(text.encode())}\r\n\r\n{text}".encode()


class Stream:
    """The pieces of a chunked answer."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        head = HEAD.format(status="200 OK", type="text/event-stream")
        writer.write(f"{head}Transfer-Encoding: chunked\r\n\r\n".encode())

    async def send(self, data: bytes) -> None:
        self._writer.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
        await self._writer.drain()

    async def end(self) -> None:
        self._writer.write(b"0\r\n\r\n")
        await self._writer.drain()


Act = Callable[[Writer, Request, list[int], str], Coroutine[Any, Any, None]]
ACTS: dict[str, Act] = {}


def act(function: Act) -> Act:
    ACTS[function.__name__] = function
    return function


async def stream(writer: Writer, *events: bytes, done: bool = True) -> None:
    """A chunked answer of `events`, one write each, a moment apart."""
    out = Stream(writer)
    for piece in events:
        await out.send(piece)
        await asyncio.sleep(0.01)
    if done:
        await out.send(b"data: [DONE]\n\n")
    await out.end()


@act
async def well(writer: Writer, request: Request, ids: list[int], reason: str) -> None:
    if not request["stream"]:
        writer.write(page("200 OK", json.dumps(chunk(ids, reason) | {"usage": {"completion_tokens": len(ids)}})))
        return
    await stream(writer, event(chunk(ids[:1])), b": a comment\n\n", event(chunk(ids[1:], reason)))


@act
async def slow(writer: Writer, request: Request, ids: list[int], reason: str) -> None:
    await asyncio.sleep(1.5)
    await well(writer, request, ids, reason)


@act
async def pauses(writer: Writer, request: Request, ids: list[int], reason: str) -> None:
    """Pause every fourth answer, after the first token where it is streamed."""
    if request["prompt"][0] % 4 != 3:
        await well(writer, request, ids, reason)
    elif not request["stream"]:
        await asyncio.sleep(4)
        await well(writer, request, ids, reason)
    else:
        out = Stream(writer)
        await out.send(event(chunk(ids[:1])))
        await asyncio.sleep(4)
        await out.send(event(chunk(ids[1:], reason)) + event("[DONE]").replace(b'"', b""))
        await out.end()


@act
async def silent(writer: Writer, request: Request, ids: list[int], reason: str) -> None:
    await asyncio.sleep(3600)


@act
async def silent_in_the_middle(writer: Writer, request: Request, ids: list[int], reason: str) -> None:
    await Stream(writer).send(event(chunk(ids[:1])))
    await asyncio.sleep(3600)


@act
async def status_500(writer: Writer, request: Request, ids: list[int], reason: str) -> None:
    writer.write(page("500 Internal Server Error", "out of memory"))


@act
async def status_400(writer: Writer, request: Request, ids: list[int], reason: str) -> None:
    writer.write(page("400 Bad Request", "the prompt is longer than max_model_len, 256"))


@act
async def closes_before(writer: Writer, request: Request, ids: list[int], reason: str) -> None:
    writer.close()


@act
async def closes_in_the_head(writer: Writer, request: Request, ids: list[int], reason: str) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Ty")
    writer.close()


@act
async def closes_in_the_middle(writer: Writer, request: Request, ids: list[int], reason: str) -> None:
    await Stream(writer).send(event(chunk(ids[:1])))
    writer.close()


@act
async def half_a_line(writer: Writer, request: Request, ids: list[int], reason: str) -> None:
    await stream(writer, event(chunk(ids[:1])), event(chunk(ids[1:], reason))[:30], done=False)


@act
async def malformed(writer: Writer, request: Request, ids: list[int], reason: str) -> None:
    await stream(writer, event(chunk(ids[:1])), b"data: {'choices': None}\n\n")


@act
async def no_event(writer: Writer, request: Request, ids: list[int], reason: str) -> None:
    await stream(writer, event(chunk(ids[:1])), b"Internal Server Error\n\n")


@act
async def error_event(writer: Writer, request: Request, ids: list[int], reason: str) -> None:
    await stream(writer, event(chunk(ids[:1])), event({"error": {"message": "EngineCore died"}}))


@act
async def no_ids(writer: Writer, request: Request, ids: list[int], reason: str) -> None:
    await stream(writer, event(chunk(None)), event(chunk(None, reason)))


@act
async def empty_ids(writer: Writer, request: Request, ids: list[int], reason: str) -> None:
    await stream(writer, event(chunk([], "stop")))


@act
async def words_for_ids(writer: Writer, request: Request, ids: list[int], reason: str) -> None:
    await stream(writer, event(chunk(["a"], reason)))  # type: ignore[list-item]


@act
async def ids_below_0(writer: Writer, request: Request, ids: list[int], reason: str) -> None:
    await stream(writer, event(chunk([-1, *ids[1:]], reason)))


@act
async def ids_beyond_the_vocabulary(writer: Writer, request: Request, ids: list[int], reason: str) -> None:
    await stream(writer, event(chunk([100_000, *ids[1:]], reason)))


@act
async def too_many_ids(writer: Writer, request: Request, ids: list[int], reason: str) -> None:
    await stream(writer, event(chunk(ids * request["max_tokens"], "length")))


@act
async def no_stop_token(writer: Writer, request: Request, ids: list[int], reason: str) -> None:
    await stream(writer, event(chunk(ids[:-1], "stop")))


@act
async def cut(writer: Writer, request: Request, ids: list[int], reason: str) -> None:
    await stream(writer, event(chunk(ids[:2], "length")))


@act
async def aborted(writer: Writer, request: Request, ids: list[int], reason: str) -> None:
    await stream(writer, event(chunk(ids, "abort")))


@act
async def no_end(writer: Writer, request: Request, ids: list[int], reason: str) -> None:
    await stream(writer, event(chunk(ids)))


@act
async def more_after_the_end(writer: Writer, request: Request, ids: list[int], reason: str) -> None:
    await stream(writer, event(chunk(ids, reason)), event(chunk(ids[:1])))


@act
async def miscounted(writer: Writer, request: Request, ids: list[int], reason: str) -> None:
    usage = {"choices": [], "usage": {"completion_tokens": len(ids) + 1}}
    await stream(writer, event(chunk(ids, reason)), event(usage))


@act
async def killed(writer: Writer, request: Request, ids: list[int], reason: str) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@act
async def killed_later(writer: Writer, request: Request, ids: list[int], reason: str) -> None:
    """As vLLM's server, whose engine core has exited: an error, and an exit more than five seconds later."""
    asyncio.get_running_loop().call_later(7, os.kill, os.getpid(), signal.SIGKILL)
    await error_event(writer, request, ids, reason)


class TokenServer:
    """The server in a thread of this process.

    Attributes:
        behave: the act, by name, once `after` completions were answered well; `times` of them, then well again.
        posts: completions asked for; `connections`, connections opened; `most`, completions under way at once.
    """

    def __init__(
        self, behave: str = "well", *, after: int = 0, times: int = 1 << 30, metrics: bool = True, version: str = ""
    ) -> None:
        self.behave, self.after, self.times = behave, after, times
        self.metrics, self.version = metrics, version
        self.hits = HITS
        self.posts = self.connections = self.most = self._now = 0
        self.prompts: list[list[int]] = []
        self._loop = asyncio.new_event_loop()

    def __enter__(self) -> Self:
        started = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(started,), daemon=True)
        self._thread.start()
        assert started.wait(60)
        return self

    def _run(self, started: threading.Event) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self.listen(0))
        started.set()
        self._loop.run_forever()

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _close(self) -> None:
        self._server.close()
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.sleep(0)

    async def listen(self, port: int) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", port)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def _serve(self, reader: asyncio.StreamReader, writer: Writer) -> None:
        self.connections += 1
        with contextlib.closing(writer), contextlib.suppress(*OVER):
            while not writer.is_closing():
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                path = head.split()[1]
                lengths = [line.split(":")[1] for line in head.lower().splitlines() if "content-length" in line]
                body = await reader.readexactly(int(lengths[0]) if lengths else 0)
                await self._answer(writer, path, body)
                if not writer.is_closing():
                    await writer.drain()

    async def _answer(self, writer: Writer, path: str, body: bytes) -> None:
        if path == "/v1/completions":
            await self._complete(writer, json.loads(body))
        elif path == "/metrics" and self.metrics:
            writer.write(page("200 OK", METRICS.format(hits=self.hits), "text/plain"))
        elif path == "/version" and self.version:
            writer.write(page("200 OK", json.dumps({"version": self.version})))
        elif path == "/v1/models":
            writer.write(page("200 OK", json.dumps({"data": [{"id": "stand-in"}]})))
        else:
            writer.write(page("200 OK" if path == "/health" else "404 Not Found", "{}"))

    async def _complete(self, writer: Writer, request: Request) -> None:
        self.posts += 1
        self._now += 1
        self.most = max(self.most, self._now)
        self.prompts.append(request["prompt"])
        misbehaves = self.after < self.posts <= self.after + self.times
        try:
            name = self.behave if misbehaves else "well"
            await ACTS[name](writer, request, *answer_to(request["prompt"], request))
        finally:
            self._now -= 1


async def serve(server: TokenServer, port: int) -> None:
    await server.listen(port)
    sys.stdout.write("listening\n")
    sys.stdout.flush()
    await asyncio.sleep(3600)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int)
    parser.add_argument("--behave", default="well")
    parser.add_argument("--after", type=int, default=0)
    parser.add_argument("--hold", type=int, default=0)
    arguments, _ = parser.parse_known_args()
    _held = bytes([1]) * (arguments.hold << 20)
    asyncio.run(serve(TokenServer(arguments.behave, after=arguments.after), arguments.port))


if __name__ == "__main__":
    main()
