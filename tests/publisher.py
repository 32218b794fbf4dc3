"""MLCommons' storage and Hugging Face on the loopback, with configurable faults."""

import gzip
import hashlib
import json
import re
import time
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import NamedTuple, Self
from urllib.parse import unquote, urlsplit

BLOCK = 1 << 14


class Asked(NamedTuple):
    """A request that came."""

    method: str
    path: str
    headers: Mapping[str, str]


class Answer(NamedTuple):
    """A fault at a path in place of its content."""

    code: int
    headers: Mapping[str, str] = {}


LOGIN = Answer(302, {"Location": "https://mlcommons.cloudflareaccess.com/cdn-cgi/access/login/storage"})


class Publisher:
    """A server.

    Attributes:
        contents: what stands at each path.
        answers: what is answered there instead.
        cuts: after how many bytes of the next answers the connection breaks.
        sizes: what is announced instead of the true size.
        pause_s: between blocks of 16 KiB.
        login: a header that shows membership; who comes without is sent to Cloudflare Access.
        watch: is told of each request before it is answered.
    """

    def __init__(self) -> None:
        self.contents: dict[str, bytes] = {}
        self.answers: dict[str, Answer] = {}
        self.cuts: dict[str, list[int]] = {}
        self.sizes: dict[str, int] = {}
        self.asked: list[Asked] = []
        self.ranges, self.pause_s = True, 0.0
        self.login: tuple[str, str] | None = None
        self.watch: Callable[[Asked], None] = lambda _: None
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Self:
        Thread(target=self._server.serve_forever, args=[0.01], daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def storage(self, name: str, files: Mapping[str, bytes], *, base: str = "folder") -> str:
        """Publish `files` as MLCommons does; the URI."""
        sums = "".join(f"{md5(content)}  ./{file}\n" for file, content in files.items())
        self.contents[f"/metadata/{name}.uri"] = f"{self.url}/{base}\n".encode()
        self.contents[f"/metadata/{name}.md5"] = sums.encode()
        self.contents |= {f"/{base}/{file}": content for file, content in files.items()}
        return f"{self.url}/metadata/{name}.uri"

    def repository(self, repo: str, revision: str, files: Mapping[str, bytes], *, kind: str = "model") -> None:
        """Publish `files` as Hugging Face does: those called *.safetensors in LFS."""
        prefix = "/datasets" if kind == "dataset" else ""
        siblings = [_sibling(name, content) for name, content in files.items()]
        self.contents[f"/api/{kind}s/{repo}/revision/{revision}"] = json.dumps({"siblings": siblings}).encode()
        self.contents |= {f"{prefix}/{repo}/resolve/{revision}/{name}": content for name, content in files.items()}

    def content_requests(self, *, method: str = "GET") -> list[Asked]:
        """Those for files rather than for lists of them."""
        return [asked for asked in self.asked if asked.method == method and not re.match("/metadata|/api", asked.path)]


def md5(content: bytes) -> str:
    """As md5sum writes it."""
    return hashlib.md5(content, usedforsecurity=False).hexdigest()


def _sibling(name: str, content: bytes) -> dict[str, object]:
    blob = hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()
    sibling: dict[str, object] = {"rfilename": name, "size": len(content), "blobId": blob}
    if name.endswith(".safetensors"):
        sha256 = hashlib.sha256(content).hexdigest()
        sibling["lfs"] = {"sha256": sha256, "size": len(content), "pointerSize": 130}
    return sibling


def _handler(published: Publisher) -> type[BaseHTTPRequestHandler]:
    class Handler(_Handler):
        publisher = published

    return Handler


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    publisher: Publisher

    def log_message(self, *_: object) -> None:
        """Log nothing."""

    def do_HEAD(self) -> None:
        self._answer()

    def do_GET(self) -> None:
        self._answer()

    def _answer(self) -> None:
        path = unquote(urlsplit(self.path).path)
        asked = Asked(self.command, path, dict(self.headers))
        self.publisher.asked.append(asked)
        self.publisher.watch(asked)
        if answer := self._refusal(path):
            self._head(answer.code, {"Content-Length": "0", **answer.headers})
        else:
            self._content(path, self.publisher.contents[path])

    def _refusal(self, path: str) -> Answer | None:
        login = self.publisher.login
        if login and self.headers.get(login[0]) != login[1]:
            return LOGIN
        if path not in self.publisher.contents:
            return Answer(404, {"X-Error-Code": "EntryNotFound"} if "/resolve/" in path else {})
        return self.publisher.answers.get(path)

    def _head(self, code: int, headers: Mapping[str, str]) -> None:
        self.send_response(code)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()

    def _content(self, path: str, content: bytes) -> None:
        headers = {}
        if "gzip" in self.headers.get("Accept-Encoding", ""):  # as content delivery networks do
            content, headers = gzip.compress(content), {"Content-Encoding": "gzip"}
        size = self.publisher.sizes.get(path, len(content))
        self.close_connection = size != len(content)
        match = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", "")) if self.publisher.ranges else None
        start = int(match[1]) if match else 0
        headers["Content-Length"] = str(size - start)
        if match:
            headers["Content-Range"] = f"bytes {start}-{size - 1}/{size}"
        self._head(206 if match else 200, headers)
        if self.command == "GET":
            self._body(path, content[start:])

    def _body(self, path: str, body: bytes) -> None:
        cuts = self.publisher.cuts.get(path)
        if cuts:
            body = body[: cuts.pop(0)]
            self.close_connection = True
        try:
            for start in range(0, len(body), BLOCK):
                self.wfile.write(body[start : start + BLOCK])
                time.sleep(self.publisher.pause_s)
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True
