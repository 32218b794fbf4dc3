"""Check that missing parts of model and data can be downloaded: token, network, login and licence."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

from harness_llm.config.benchmark import Download
from harness_llm.config.request import Request
from harness_llm.errors import HarnessError, RunFailed
from harness_llm.evaluate.sentence_splitter import INDEX, has_splitter, is_fetched, splitter_folder
from harness_llm.pipeline.doctor.check_result import CheckResult, failed, from_error, not_checked, passed
from harness_llm.prepare.downloads.fetch import require_access
from harness_llm.prepare.downloads.http import Unreachable, require_page
from harness_llm.prepare.downloads.huggingface import find_token, page_of
from harness_llm.prepare.preparation import preparation_of
from harness_llm.prepare.provision import missing_downloads
from harness_llm.prepare.published import PublishedPreparation

TOKEN = "Hugging Face token"  # noqa: S105 - the name of a check
ACCESS = "Downloads"
_OFFLINE = (
    "check the network; set HTTPS_PROXY for a proxy; without a network, copy build/models, build/data and "
    "build/cache/nltk of another machine"
)


@dataclass(frozen=True)
class Source:
    """Publisher of a missing part; `download` is None for nltk's sentence splitter."""

    part: str
    download: Download | None = None

    @property
    def on_hub(self) -> bool:
        """Whether Hugging Face publishes it."""
        return bool(self.download and self.download.repo)


def missing_sources(request: Request, *, by_containers: bool) -> list[Source]:
    """Return the sources of the parts that `submit` will download.

    Args:
        by_containers: whether containers of this machine download them; they do not see nltk's folders of the machine.
    """
    preparation = preparation_of(request.benchmark, request.workspace, request.samples("accuracy"))
    downloads = missing_downloads(preparation) if isinstance(preparation, PublishedPreparation) else []
    sources = [Source(download.part, download) for download in downloads]
    folder = splitter_folder(request.workspace)
    found = is_fetched(folder) or (not by_containers and has_splitter(folder))
    return (
        sources if found or not request.benchmark.accuracy.sentence_split else [*sources, Source("sentence splitter")]
    )


def check_downloads(sources: Iterable[Source], tell: Callable[[str], None]) -> Iterator[CheckResult]:
    """Check token, network, login and licence; downloads no part.

    Args:
        tell: prints a line before the requests, which take up to a minute without a network.
    """
    wanted, token = list(dict.fromkeys(sources)), ""
    try:
        token = find_token() if any(source.on_hub for source in wanted) else ""
    except HarnessError as error:
        yield from_error(TOKEN, error)
        wanted = [source for source in wanted if not source.on_hub]
    if not wanted:
        return
    locked = [] if token else [source for source in wanted if source.download and source.download.gated]
    if pages := dict.fromkeys(page_of(source.download) for source in locked if source.download):
        yield _missing_token(", ".join(pages))
    tell("checking the sources of missing parts")
    with ThreadPoolExecutor(len(wanted)) as pool:
        errors = list(pool.map(lambda source: _error_of(source, readable=source not in locked), wanted))
    yield from _access_results(dict(zip(wanted, errors, strict=True)), locked)


def _missing_token(pages: str) -> CheckResult:
    return failed(
        TOKEN,
        "missing, and the repository is gated",
        where=pages,
        expected="a token whose owner accepted the licence",
        hint=f"accept the licence at {pages}, then export HUGGINGFACE_ACCESS_TOKEN=hf_...",
    )


def _error_of(source: Source, *, readable: bool) -> HarnessError | None:
    try:
        if source.download:
            require_access(source.download, readable=readable)
        else:
            require_page(INDEX)
    except HarnessError as error:
        return error
    return None


def _access_results(errors: Mapping[Source, HarnessError | None], locked: Sequence[Source]) -> Iterator[CheckResult]:
    """Yield one result for all unreachable servers, one for each other cause, and one for all accessible parts.

    Args:
        locked: sources that require a token, without one.
    """
    unreachable = {source: error for source, error in errors.items() if isinstance(error, Unreachable)}
    if unreachable:
        yield _unreachable(unreachable)
    known = {source: error for source, error in errors.items() if source not in (*unreachable, *locked)}
    yield from dict.fromkeys(_refused(error) for error in known.values() if error)
    yield from (
        not_checked(ACCESS, f"access to the {source.part}, which needs a token")
        for source in locked
        if source not in unreachable
    )
    if accessible := dict.fromkeys(source.part for source, error in known.items() if not error):
        yield passed(ACCESS, f"accessible: {', '.join(accessible)}")


def _refused(error: HarnessError) -> CheckResult:
    """Return the result of an answer other than the file; a busy server may recover before the download."""
    return not_checked(ACCESS, error.line) if isinstance(error, RunFailed) else from_error(ACCESS, error)


def _unreachable(errors: Mapping[Source, Unreachable]) -> CheckResult:
    """Return one result for all servers: without a network, none can be reached."""
    first = next(iter(errors.values()))
    return replace(
        from_error(ACCESS, first),
        where=", ".join(dict.fromkeys(error.where for error in errors.values())),
        expected=f"a connection, to download: {', '.join(dict.fromkeys(source.part for source in errors))}",
        hint=_OFFLINE,
    )
