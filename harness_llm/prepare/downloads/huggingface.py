"""Hugging Face: which files a repository has at a revision, and why it may not hand them out.

huggingface_hub knows the token and the addresses. Its own snapshot_download is not used: it drops a file that was cut,
gives files their names before their hash is known, and takes an unreachable hub for a complete download.
"""

import os
from contextlib import AbstractContextManager
from urllib.parse import quote

import httpx
from huggingface_hub import constants, get_token, hf_hub_url
from pydantic import BaseModel, Field, ValidationError

from harness_llm.config.benchmark import Download
from harness_llm.errors import ConfigError, EnvironmentMissing, HarnessError, RunFailed
from harness_llm.prepare.downloads.http import Tell, Wire, is_sendable, refused, status
from harness_llm.prepare.downloads.http import connect as connect_wire
from harness_llm.prepare.downloads.remote_file import Checksum, RemoteFile, require_inside, wanted

_VARIABLE = "HUGGINGFACE_ACCESS_TOKEN"
_TOKENS = "https://huggingface.co/settings/tokens"


class _Lfs(BaseModel):
    sha256: str


class _Sibling(BaseModel):
    name: str = Field(alias="rfilename")
    size: int
    blob: str = Field(alias="blobId")
    lfs: _Lfs | None = None


class _Repository(BaseModel):
    siblings: list[_Sibling]


def connect(download: Download, tell: Tell) -> AbstractContextManager[Wire]:
    """A wire to the hub, with the token if there is one; content comes from elsewhere, by a redirect without it."""
    token = find_token()
    headers = {"Authorization": f"Bearer {token}"} if token else {}

    def explain(url: str, response: httpx.Response) -> HarnessError:
        return _explain(download, url, response, has_token=bool(token))

    return connect_wire(explain, tell, headers, follow_redirects=True)


def listing(wire: Wire, download: Download) -> list[RemoteFile]:
    """The files of `download`, with what the hub knows of their content.

    Raises:
        EnvironmentMissing: there is no token, or its owner has not accepted the licence.
        ConfigError: the token is wrong, or there is no such repository, revision or file.
        RunFailed: the answer is no list.
    """
    url = f"{constants.ENDPOINT}/api/{download.repo_type}s/{download.repo}/revision/{quote(download.revision, safe='')}"
    try:
        found = {file.name: file for file in _Repository.model_validate_json(wire.text(f"{url}?blobs=true")).siblings}
    except ValidationError as error:
        raise RunFailed(
            "the hub's answer is no list of files", where=url, found=" ".join(str(error).split())[:300]
        ) from error
    names = [require_inside(name, url) for name in found]
    return [_remote(download, found[name]) for name in wanted(names, download.files, url)]


def _remote(download: Download, file: _Sibling) -> RemoteFile:
    url = hf_hub_url(download.repo, file.name, repo_type=download.repo_type, revision=download.revision)
    checksum = Checksum("sha256", file.lfs.sha256) if file.lfs else Checksum("git", file.blob)
    return RemoteFile(file.name, url, file.size, checksum)


def find_token() -> str:
    """The token of the environment or of huggingface_hub's login, or nothing.

    Raises:
        ConfigError: it has characters that no token has.
    """
    token = (os.environ.get(_VARIABLE) or get_token() or "").strip()
    if token and not is_sendable(token):
        raise _wrong_token("characters that no token has")
    return token


def _wrong_token(found: str) -> ConfigError:
    return ConfigError(
        "the Hugging Face token is wrong",
        where=_VARIABLE if os.environ.get(_VARIABLE) else "HF_TOKEN, or the login of huggingface_hub",
        found=found,
        hint=f"copy a token that is still listed at {_TOKENS} and export {_VARIABLE}=hf_...",
    )


def _explain(download: Download, url: str, response: httpx.Response, *, has_token: bool) -> HarnessError:
    """The hub names the reason in X-Error-Code; 401 without one is about the token."""
    code = response.headers.get("X-Error-Code", "")
    if code == "RevisionNotFound":
        return _not_found(download, f"no revision {download.revision}", response)
    if code == "RepoNotFound":
        return _not_found(download, "no such repository, or a private one", response)
    if code == "GatedRepo" or response.status_code in {401, 403}:
        return _no_access(download, response, gated=code == "GatedRepo", has_token=has_token)
    if response.status_code == httpx.codes.NOT_FOUND:
        return _not_found(download, f"no file {url}", response)
    return refused(url, response)


def _no_access(download: Download, response: httpx.Response, *, gated: bool, has_token: bool) -> HarnessError:
    page = f"{constants.ENDPOINT}/{'datasets/' if download.repo_type == 'dataset' else ''}{download.repo}"
    if not has_token:
        return EnvironmentMissing(
            f"{download.repo} is handed out to known people only, and there is no Hugging Face token",
            where=page,
            found=f"neither {_VARIABLE} nor HF_TOKEN is set, and huggingface_hub has no login",
            hint=f"accept the licence at {page}, make a token at {_TOKENS} and export {_VARIABLE}=hf_...",
        )
    if response.status_code == httpx.codes.UNAUTHORIZED:
        return _wrong_token(_said(response))
    if gated:
        return EnvironmentMissing(
            f"the licence of {download.repo} is not accepted by the owner of the Hugging Face token",
            where=page,
            found=_said(response),
            hint=f"log in at {page}, accept the licence, wait until access is granted, and run the same command again",
        )
    return ConfigError(
        f"the Hugging Face token may not read {download.repo}",
        where=page,
        found=_said(response),
        hint=f"give it read access to gated repositories at {_TOKENS}",
    )


def _not_found(download: Download, found: str, response: httpx.Response) -> ConfigError:
    return ConfigError(
        f"Hugging Face has no {download.repo_type} {download.repo} at {download.revision}",
        where=constants.ENDPOINT,
        found=f"{found} ({_said(response)})",
        hint="`downloads` of models/*/benchmark.yaml names repository and revision; if the repository is private, "
        f"export {_VARIABLE} of someone who may read it",
    )


def _said(response: httpx.Response) -> str:
    message = response.headers.get("X-Error-Message", "")
    return f"{status(response)}: {message}" if message else status(response)
