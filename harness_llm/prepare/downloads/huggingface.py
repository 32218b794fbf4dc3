"""Hugging Face: list the files of a repository at a revision, and explain refused access.

Token and URLs come from huggingface_hub.
"""

import os
from contextlib import AbstractContextManager
from urllib.parse import quote

import httpx
from huggingface_hub import constants, get_token, hf_hub_url
from pydantic import BaseModel, Field, ValidationError

from harness_llm.config.benchmark import Download
from harness_llm.errors import ConfigError, EnvironmentMissing, HarnessError, RunFailed
from harness_llm.prepare.downloads.http import Connection, Notify, is_header_value, refused, status
from harness_llm.prepare.downloads.http import connect as open_connection
from harness_llm.prepare.downloads.remote_file import Checksum, RemoteFile, require_inside, select

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


def connect(download: Download, notify: Notify, *, brief: bool = False) -> AbstractContextManager[Connection]:
    """Connect to the hub, with the token if set; httpx drops the token when a redirect leads to another host."""
    token = find_token()
    headers = {"Authorization": f"Bearer {token}"} if token else {}

    def explain(url: str, response: httpx.Response) -> HarnessError:
        return _explain(download, url, response, has_token=bool(token))

    return open_connection(explain, notify, headers, follow_redirects=True, brief=brief)


def listing(connection: Connection, download: Download) -> list[RemoteFile]:
    """Return the files of `download` with size and checksum.

    Raises:
        EnvironmentMissing: missing token, or licence not accepted.
        ConfigError: invalid token, or unknown repository, revision or file.
        RunFailed: invalid response.
    """
    url = f"{constants.ENDPOINT}/api/{download.repo_type}s/{download.repo}/revision/{quote(download.revision, safe='')}"
    try:
        repository = _Repository.model_validate_json(connection.text(f"{url}?blobs=true"))
    except ValidationError as error:
        raise RunFailed("invalid file list of the hub", where=url, found=" ".join(str(error).split())[:300]) from error
    found = {file.name: file for file in repository.siblings}
    names = [require_inside(name, url) for name in found]
    return [_remote(download, found[name]) for name in select(names, download.files, url)]


def _remote(download: Download, file: _Sibling) -> RemoteFile:
    url = hf_hub_url(download.repo, file.name, repo_type=download.repo_type, revision=download.revision)
    checksum = Checksum("sha256", file.lfs.sha256) if file.lfs else Checksum("git", file.blob)
    return RemoteFile(file.name, url, file.size, checksum)


def find_token() -> str:
    """Return the token of the environment or of huggingface_hub's login; empty if neither is set.

    Raises:
        ConfigError: invalid characters, or an unreadable file.
    """
    try:
        token = (os.environ.get(_VARIABLE) or get_token() or "").strip()
    except OSError as error:
        raise ConfigError("unreadable file of the Hugging Face token", "HF_TOKEN_PATH", found=str(error)) from error
    if token and not is_header_value(token):
        raise _invalid_token("invalid characters")
    return token


def page_of(download: Download) -> str:
    """Return the URL of the repository's page, where users accept its licence."""
    return f"{constants.ENDPOINT}/{'datasets/' if download.repo_type == 'dataset' else ''}{download.repo}"


def _invalid_token(found: str) -> ConfigError:
    return ConfigError(
        "invalid Hugging Face token",
        where=_VARIABLE if os.environ.get(_VARIABLE) else "HF_TOKEN, or the login of huggingface_hub",
        found=found,
        hint=f"copy a token from {_TOKENS} and export {_VARIABLE}=hf_...",
    )


def _explain(download: Download, url: str, response: httpx.Response, *, has_token: bool) -> HarnessError:
    """Convert an error response, by the hub's X-Error-Code; 401 without a code means an invalid token."""
    code = response.headers.get("X-Error-Code", "")
    if code == "RevisionNotFound":
        return _not_found(download, f"no revision {download.revision}", response)
    if code == "RepoNotFound":
        return _not_found(download, "unknown or private repository", response)
    if code == "GatedRepo" or response.status_code in {401, 403}:
        return _no_access(download, response, gated=code == "GatedRepo", has_token=has_token)
    if response.status_code == httpx.codes.NOT_FOUND:
        return _not_found(download, f"no file {url}", response)
    return refused(url, response)


def _no_access(download: Download, response: httpx.Response, *, gated: bool, has_token: bool) -> HarnessError:
    page = page_of(download)
    if not has_token:
        return EnvironmentMissing(
            f"missing Hugging Face token for {download.repo}",
            where=page,
            found=f"neither {_VARIABLE} nor HF_TOKEN is set, and huggingface_hub has no login",
            hint=f"accept the licence at {page}, create a token at {_TOKENS} and export {_VARIABLE}=hf_...",
        )
    if response.status_code == httpx.codes.UNAUTHORIZED:
        return _invalid_token(_message(response))
    if gated:
        return EnvironmentMissing(
            f"licence of {download.repo} not accepted by the owner of the Hugging Face token",
            where=page,
            found=_message(response),
            hint=f"log in at {page}, accept the licence, wait until access is granted, and run the same command again",
        )
    return ConfigError(
        f"no read access to {download.repo} with this Hugging Face token",
        where=page,
        found=_message(response),
        hint=f"give the token read access to gated repositories at {_TOKENS}",
    )


def _not_found(download: Download, found: str, response: httpx.Response) -> ConfigError:
    return ConfigError(
        f"{download.repo_type} {download.repo} at {download.revision} not found on Hugging Face",
        where=constants.ENDPOINT,
        found=f"{found} ({_message(response)})",
        hint="correct repository and revision in `downloads` of models/*/benchmark.yaml; for a private repository, "
        f"export {_VARIABLE} of a user with access",
    )


def _message(response: httpx.Response) -> str:
    message = response.headers.get("X-Error-Message", "")
    return f"{status(response)}: {message}" if message else status(response)
