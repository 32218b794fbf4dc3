"""Engine over HTTP: a server with OpenAI's completions and token ids, started here or already running."""

import json
import resource
import time
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
import msgspec

from harness_llm.config.benchmark import Sampling
from harness_llm.config.servers import MODELS, server_kinds
from harness_llm.errors import EnvironmentMissing, ProcessFailed
from harness_llm.protocol.counters import Counters
from harness_llm.protocol.kv_cache import KvCache
from harness_llm.protocol.messages import Activity
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
from harness_llm.replicas.engines.server_process import EXIT_TIMEOUT_S, Server, launch

COMPLETIONS = "/v1/completions"
OK = 200
POLL_S = 0.25
# The first request checks that answers contain token ids; every vocabulary has these ids.
PROBE_PROMPT = [3, 4, 5, 6]
PROBE = Sampling(temperature=0.0, min_tokens=2, max_tokens=2, stop_token_ids=())

_BROKEN = (aiohttp.ClientError, TimeoutError, ValueError)


class _Result(NamedTuple):
    """Result of one query: its first id, all ids, the fault of the server, or an unexpected `error`."""

    query: int
    first: int | None = None
    whole: list[int] | None = None
    fault: str = ""
    error: Exception | None = None


class OpenAIEngine:
    """One server and the requests to it; answers arrive in another thread."""

    def __init__(self, checkpoint: str, llm_config: dict[str, Any], spec: ServerSpec) -> None:
        """Start the server unless `spec` has a URL, wait until it is ready, and check that it returns token ids.

        Raises:
            HarnessError: the server cannot be started or reached, or returns no token ids.
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
        except BaseException:  # Ctrl-C too: a started server may not outlive this process
            self.close()
            raise

    def close(self) -> None:
        """Disconnect from the server, and stop it if it was started here."""
        self._client.close()
        if self._server:
            self._server.child.stop()

    def configure(self, sampling: Sampling, *, stream: bool) -> None:
        """Set the sampling of further queries, and whether first tokens are reported."""
        self._sampling, self._stream = sampling, stream
        self.generated = 0
        self._fields = request_fields(self._model, sampling, self._kind.request, stream=stream)

    def add(self, query: int, prompt: list[int], kind: str = "", reported: int = 0) -> None:  # noqa: ARG002 - config refuses kinds
        """Add a query."""
        self._open.add(query)
        fields = self._fields | {"prompt": prompt} | fewer_tokens(self._sampling, reported)
        body, stream = msgspec.json.encode(fields), self._stream
        answer = Answer(self._sampling, self._vocabulary, prompt[len(prompt) - reported :])
        self._client.begin(lambda: self._complete(query, body, answer, stream=stream))

    def step(self) -> Step:
        """Return outputs since the last step; raise ValueError if an answer has failed."""
        step = Step()
        for result in self._client.results.take():
            if result.error:
                raise RuntimeError("a request failed in the client") from result.error
            if result.fault:
                raise self._exception(result.fault)
            if result.first is not None:
                step.first.append((result.query, result.first))
            if result.whole is not None:
                self._open.discard(result.query)
                step.finished.append((result.query, result.whole))
        return step

    @property
    def busy(self) -> bool:
        """Whether any query is unfinished."""
        return bool(self._open)

    @property
    def arrivals(self) -> int:
        """A descriptor that is readable while `step` has outputs, and sometimes once without."""
        return self._client.results.arrivals

    def abort(self) -> None:
        """Abort all queries by closing their connections, upon which the server aborts them too."""
        self._client.cancel()
        self._open.clear()

    def counters(self) -> Counters | None:
        """Return the server's counters of cache hits and speculation; None if it reports none."""
        page = self._metrics()
        return read_counters(page, self._kind.counters) if page else None

    def activity(self) -> Activity:
        """Return the tokens of the answers so far; other figures would take a request to the server."""
        return Activity(self.generated)

    def kv_cache(self) -> KvCache | None:
        """Return the server's KV cache figures; None if it reports none."""
        page = self._metrics() if self._kind.kv_cache else ""
        return read_kv_cache(page, self._kind.kv_cache) if page else None

    def _metrics(self) -> str:
        """Return the server's metrics page; empty if it has none."""
        if not self._kind.metrics:
            return ""
        try:
            status, text = self._client.call(self._client.get(self._kind.metrics))
        except _BROKEN as error:
            raise self._exception(f"{self._client.url}: {_words(error)}") from error
        return text if status == OK else ""

    async def _complete(self, query: int, body: bytes, answer: Answer, *, stream: bool) -> None:
        async def take(response: aiohttp.ClientResponse) -> None:
            if response.status != OK:
                text = await response.content.read()
                raise ValueError(f"status {response.status} from the server: {shown(text)}")
            if not stream:
                self._take(answer, parse(await response.read()))
                return
            async for line in response.content:
                chunk = parse_event(line)
                if chunk is None:
                    continue
                reported = bool(answer.ids)
                self._take(answer, chunk)
                if answer.ids and not reported:
                    self._client.results.put(_Result(query, first=answer.ids[0]))

        try:
            await self._client.post(COMPLETIONS, body, take)
            result = _Result(query, whole=answer.whole())
        except _BROKEN as error:
            result = _Result(query, fault=f"{self._client.url}: {_words(error)}")
        except Exception as error:  # noqa: BLE001 - for example MemoryError; the query would wait forever
            result = _Result(query, error=error)
        self._client.results.put(result)

    def _take(self, answer: Answer, chunk: Chunk) -> None:
        known = len(answer.ids)
        answer.take(chunk)
        self.generated += len(answer.ids) - known

    def _exception(self, fault: str) -> Exception:
        """Return RuntimeError, which fails the replica, if its own server has exited, else ValueError for the query."""
        exited = self._server.exit_cause(EXIT_TIMEOUT_S) if self._server else ""
        return RuntimeError(f"{exited}; {fault}") if exited else ValueError(fault)

    def _await_ready(self) -> None:
        """Wait until a started server is ready; a server that was running already must be ready."""
        while not (found := self._health()).startswith(str(OK)):
            if self._server is None:
                raise EnvironmentMissing(
                    "the server is not ready",
                    where=f"{self._client.url}{self._kind.health} (server_config.url)",
                    expected=f"status {OK}",
                    found=found,
                )
            if exited := self._server.exit_cause():
                raise ProcessFailed("the server did not start", where=str(self._server.child.log), found=exited)
            time.sleep(POLL_S)

    def _health(self) -> str:
        try:
            status, text = self._client.call(self._client.get(self._kind.health))
        except _BROKEN as error:
            return repr(error)
        return f"{status} {text[:200]}"

    def _served_model(self) -> str:
        """Return the server's name of its model."""
        try:
            _, text = self._client.call(self._client.get(MODELS))
            return str(json.loads(text)["data"][0]["id"])
        except (*_BROKEN, KeyError, IndexError, TypeError) as error:
            raise self._refused(f"no model in {MODELS}: {error!r}") from error

    def _probe(self) -> None:
        """Request two tokens, streamed and whole, to check that the server returns token ids."""
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
            "no token ids from the server for a request of two tokens; LoadGen needs token ids",
            where=self._client.url,
            expected="OpenAI's completions, with prompts as token ids and choices[0].token_ids in the answers",
            found=found,
            hint="server_config.kind selects how token ids are requested; see the log of the server",
        )


def _words(error: Exception) -> str:
    """Describe `error`; the class names of aiohttp's errors are clearer than their messages."""
    if isinstance(error, TimeoutError):
        return f"timeout of the server: {error!r}"
    return str(error) if type(error) is ValueError else repr(error)


def vocabulary(checkpoint: Path) -> int:
    """Return the vocabulary size of the checkpoint's model."""
    config = json.loads((checkpoint / "config.json").read_text())
    return int(config.get("vocab_size") or config["text_config"]["vocab_size"])


def _allow_files() -> None:
    """Raise the limit of open files, for connections, to the hard limit; the server inherits it."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
