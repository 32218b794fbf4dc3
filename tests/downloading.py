"""What the tests of downloads share: a publisher on the loopback, and downloads from it."""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from publisher import Publisher

from harness_llm.config.benchmark import Download
from harness_llm.errors import HarnessError
from harness_llm.prepare.downloads import http as wire
from harness_llm.prepare.downloads.fetch import fetch

MODEL = random.Random(1).randbytes(300_000)  # noqa: S311
DATA = random.Random(2).randbytes(40_000)  # noqa: S311
REVISION = "be673f326cab4cd22ccfef76109faf68e41aa5f1"
REPO = "someone/some-model"
SECRET = "hf_thisIsSecret"  # noqa: S105


@contextmanager
def publishing(monkeypatch: pytest.MonkeyPatch) -> Iterator[Publisher]:
    """A publisher, and little patience with it."""
    monkeypatch.setattr(wire, "WAITS_S", (0.01, 0.01))
    monkeypatch.setattr(wire, "LATER_WAITS_S", ())
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with Publisher() as publisher:
        yield publisher


def make_hub(publisher: Publisher, monkeypatch: pytest.MonkeyPatch, folder: Path) -> Publisher:
    """It is Hugging Face, and we are a user without a token."""
    template = f"{publisher.url}/{{repo_id}}/resolve/{{revision}}/{{filename}}"
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", publisher.url)
    monkeypatch.setattr("huggingface_hub.constants.HUGGINGFACE_CO_URL_TEMPLATE", template)
    monkeypatch.setattr("huggingface_hub.constants.HF_TOKEN_PATH", str(folder / "token"))
    for name in ("HUGGINGFACE_ACCESS_TOKEN", "HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    publisher.repository(REPO, REVISION, {"config.json": DATA, "model-1.safetensors": MODEL, "original/x.pth": b"x"})
    return publisher


def stored(uri: str, *files: str) -> Download:
    """A download from MLCommons' storage."""
    return Download(part="dataset", folder="x", uri=uri, files=files)


def hosted(*files: str, repo: str = REPO) -> Download:
    """A download from Hugging Face."""
    return Download(part="model", folder="x", repo=repo, revision=REVISION, files=files)


def bring(wanted: Download, target: Path) -> list[tuple[str, float | None]]:
    """Fetch it; what was reported."""
    said: list[tuple[str, float | None]] = []
    fetch(wanted, target, lambda text, done: said.append((text, done)))
    return said


def failure(wanted: Download, target: Path) -> HarnessError:
    """How fetching it fails."""
    with pytest.raises(HarnessError) as caught:
        bring(wanted, target)
    return caught.value


def left(target: Path) -> list[str]:
    """All files but manifests."""
    names = [str(path.relative_to(target)) for path in target.rglob("*") if path.is_file()]
    return sorted(name for name in names if not name.endswith(".downloads.json"))
