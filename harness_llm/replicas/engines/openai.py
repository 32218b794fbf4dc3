"""Any server that speaks OpenAI's completions with token ids, started here or running already."""

import json
import resource
import time
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
import msgspec

from harness_llm.config.benchmark import Sampling
from harness_llm.config.servers import MODELS, server_kinds
from harness_llm.errors import EnvironmentMissing, RunFailed
from harness_llm.protocol.counters import Counters
from harness_llm.protocol.kv_cache import KvCache
from harness_llm.replicas.engines.completions import (
    Answer,
    Chunk,
    fewer_tokens,
    parse,
    parse_event,
    request_fields,
    shown,
)
from harness_llm.replicas.engines.engine import ServerSpec, Step
from harness_llm.replicas.engines.http_client import Client
from harness_llm.replicas.engines.server_metrics import read_counters, read_kv_cache
from harness_llm.replicas.engines.server_process import ENDING_S, Server, launch

COMPLETIONS = "/v1/completions"
OK = 200
POLL_S = 0.25
# What is asked before anything else, to see whether token ids come back: ids that every vocabulary has.
PROBE_PROMPT = [3, 4, 5, 6]
PROBE = Sampling(temperature=0.0, min_tokens=2, max_tokens=2, stop_token_ids=())

_BROKEN = (aiohttp.ClientError, TimeoutError, ValueError)


class _News(NamedTuple):
    """Of one query: its first id, all of them, or why there are none; `error` is what nobody foresaw."""

    query: int
    first: int | None = None
    whole: list[int] | None = None
    fault: str = ""
    error: Exception | None = None


class OpenAIEngine:
    """One server, and the requests to it; answers arrive in a thread of their own."""

    def __init__(self, checkpoint: str, llm_config: dict[str, Any], spec: ServerSpec) -> None:
        """Start the server unless `spec` names one, await it, and ask it whether it gives token ids.

        Raises:
            HarnessError: it cannot be started or reached, or gives none.
        """
        _allow_files()
        self._kind = server_kinds()[spec.kind]
        self._server: Server | None = None if spec.url else launch(spec, checkpoint, llm_config)
        url = self._server.url if self._server else spec.url
        self._client = Client(url, connections=spec.connections, attempts=spec.attempts, timeout_s=spec.timeout_s)
        self._vocabulary = vocabulary(Path(checkpoint))
        self._sampling = PROBE
        self._stream = True
        self._fields: dict[str, Any] = {}
        self._open: set[int] = set()
        self.generated = 0
        try:
            self._await_ready()
            self._model = self._served_model()
            self._probe()
        except BaseException:  # Ctrl-C too: a server that was started here may not outlive us
            self.close()
            raise

    def close(self) -> None:
        """Let go of the server, and end it if it was started here."""
        self._client.close()
        if self._server:
            self._server.child.stop()

    def configure(self, sampling: Sampling, *, stream: bool) -> None:
        """Set how the next queries are sampled, and whether first tokens are reported."""
        self._sampling, self._stream = sampling, stream
        self.generated = 0
        self._fields = request_fields(self._model, sampling, self._kind.request, stream=stream)

    def add(self, query: int, prompt: list[int], kind: str = "", reported: int = 0) -> None:  # noqa: ARG002 - config refuses kinds
        """Take in one query."""
        self._open.add(query)
        fields = self._fields | {"prompt": prompt} | fewer_tokens(self._sampling, reported)
        body, stream = msgspec.json.encode(fields), self._stream
        answer = Answer(self._sampling, self._vocabulary, prompt[len(prompt) - reported :])
        self._client.begin(lambda: self._complete(query, body, answer, stream=stream))

    def step(self) -> Step:
        """What has arrived since the last step; raises ValueError where an answer has failed."""
        step = Step()
        for news in self._client.drain():
            if news.error:
                raise RuntimeError("a request failed here, not at the server") from news.error
            if news.fault:
                raise self._explained(news.fault)
            if news.first is not None:
                step.first.append((news.query, news.first))
            if news.whole is not None:
                self._open.discard(news.query)
                step.finished.append((news.query, news.whole))
        return step

    @property
    def busy(self) -> bool:
        """Whether any query is unfinished."""
        return bool(self._open)

    @property
    def arrivals(self) -> int:
        """A descriptor that is readable while `step` has news."""
        return self._client.arrivals

    def abort(self) -> None:
        """Drop all queries: their connections are closed, and the server drops them too."""
        self._client.cancel()
        self._open.clear()

    def counters(self) -> Counters | None:
        """What the server counts of cache hits and speculation; None where it does not tell."""
        page = self._metrics()
        return read_counters(page, self._kind.counters) if page else None

    def kv_cache(self) -> KvCache | None:
        """What the server reports of its KV cache; None where it reports nothing."""
        page = self._metrics() if self._kind.kv_cache else ""
        return read_kv_cache(page, self._kind.kv_cache) if page else None

    def _metrics(self) -> str:
        """The server's metrics page; empty where it has none."""
        if not self._kind.metrics:
            return ""
        try:
            status, text = self._client.call(self._client.get(self._kind.metrics))
        except _BROKEN as error:
            raise self._explained(f"{self._client.url}: {_words(error)}") from error
        return text if status == OK else ""

    async def _complete(self, query: int, body: bytes, answer: Answer, *, stream: bool) -> None:
        async def take(response: aiohttp.ClientResponse) -> None:
            if response.status != OK:
                text = await response.content.read()
                raise ValueError(f"the server answered {response.status}: {shown(text)}")
            if not stream:
                self._take(answer, parse(await response.read()))
                return
            async for line in response.content:
                chunk = parse_event(line)
                if chunk is None:
                    continue
                told = bool(answer.ids)
                self._take(answer, chunk)
                if answer.ids and not told:
                    self._client.arrive(_News(query, first=answer.ids[0]))

        try:
            await self._client.post(COMPLETIONS, body, take)
            news = _News(query, whole=answer.whole())
        except _BROKEN as error:
            news = _News(query, fault=f"{self._client.url}: {_words(error)}")
        except Exception as error:  # noqa: BLE001 - memory, for one; the query would be waited for for ever
            news = _News(query, error=error)
        self._client.arrive(news)

    def _take(self, answer: Answer, chunk: Chunk) -> None:
        known = len(answer.ids)
        answer.take(chunk)
        self.generated += len(answer.ids) - known

    def _explained(self, fault: str) -> Exception:
        """What to raise for `fault`: where our own server has ended, this engine is broken and its queries are not."""
        ended = self._server.end(ENDING_S) if self._server else ""
        return RuntimeError(f"{fault}; {ended}") if ended else ValueError(fault)

    def _await_ready(self) -> None:
        """Return once the server says that it is ready; one that runs already has to be."""
        while not (found := self._health()).startswith(str(OK)):
            if self._server is None:
                raise EnvironmentMissing(
                    "the server is not ready",
                    where=f"{self._client.url}{self._kind.health} (server_config.url)",
                    expected=f"status {OK}",
                    found=found,
                )
            if ended := self._server.end():
                raise RunFailed("the server cannot be started", where=str(self._server.child.log), found=ended)
            time.sleep(POLL_S)

    def _health(self) -> str:
        try:
            status, text = self._client.call(self._client.get(self._kind.health))
        except _BROKEN as error:
            return repr(error)
        return f"{status} {text[:200]}"

    def _served_model(self) -> str:
        """The server's name of its model."""
        try:
            _, text = self._client.call(self._client.get(MODELS))
            return str(json.loads(text)["data"][0]["id"])
        except (*_BROKEN, KeyError, IndexError, TypeError) as error:
            raise self._refused(f"{MODELS} names no model: {error!r}") from error

    def _probe(self) -> None:
        """Ask for two tokens, streamed and whole: a server that gives no token ids is of no use."""
        for stream in (True, False):
            self.configure(PROBE, stream=stream)
            self.add(0, PROBE_PROMPT)
            try:
                while self.busy:
                    self.step()
                    time.sleep(POLL_S / 100)
            except ValueError as error:
                raise self._refused(str(error)) from error

    def _refused(self, found: str) -> EnvironmentMissing:
        return EnvironmentMissing(
            "the server gives no token ids for a question of two tokens, and nothing else can be reported",
            where=self._client.url,
            expected="OpenAI's completions, with prompts as token ids and choices[0].token_ids in the answers",
            found=found,
            hint="server_config.kind says how token ids are asked for; the log of the server may say more",
        )


def _words(error: Exception) -> str:
    """What went wrong; the names of aiohttp's errors say more than their texts."""
    if isinstance(error, TimeoutError):
        return f"the server was silent for too long: {error!r}"
    return str(error) if type(error) is ValueError else repr(error)


def vocabulary(checkpoint: Path) -> int:
    """How many token ids the checkpoint's model has."""
    config = json.loads((checkpoint / "config.json").read_text())
    return int(config.get("vocab_size") or config["text_config"]["vocab_size"])


def _allow_files() -> None:
    """Allow as many open files, which connections are, as the system does; the server inherits it."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
