"""MLCommons' R2 storage, in the format of mlc-r2-downloader.sh (https://github.com/mlcommons/r2-downloader).

`<name>.uri` contains the URL of a folder; `<name>.md5` lists its files in the format of md5sum. Members-only storage
redirects to the login of Cloudflare Access.
"""

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import AbstractContextManager
from urllib.parse import quote, urlsplit

import httpx

from harness_llm.config.benchmark import Download
from harness_llm.errors import ConfigError, EnvironmentMissing, HarnessError, RunFailed
from harness_llm.paths import IMAGE_VARIABLE
from harness_llm.prepare.downloads.http import Connection, Notify, is_header_value, refused, status
from harness_llm.prepare.downloads.http import connect as open_connection
from harness_llm.prepare.downloads.remote_file import Checksum, RemoteFile, require_inside, select

_LINE = re.compile(r"([0-9a-f]{32})[ \t]+\*?(?:\./)?(.+)")
_LOGIN = re.compile(r"/cdn-cgi/access/login|\.cloudflareaccess\.com/")
_ID, _SECRET = "CF_ACCESS_CLIENT_ID", "CF_ACCESS_CLIENT_SECRET"


class _LoginRequired(EnvironmentMissing):
    """Members-only storage without a login."""


def connect(_: Download, notify: Notify, *, brief: bool = False) -> AbstractContextManager[Connection]:
    """Connect to MLCommons; redirects are not followed, because they lead to the login."""
    return open_connection(_explain, notify, follow_redirects=False, brief=brief)


def listing(connection: Connection, download: Download) -> list[RemoteFile]:
    """Return the files of `download` with size and checksum.

    Raises:
        RunFailed: invalid list.
        ConfigError: URI not found.
        EnvironmentMissing: login required.
    """
    base = _base_url(connection, download.uri)
    list_uri = f"{download.uri.removesuffix('.uri')}.md5"
    sums = dict(_parse(connection.text(list_uri), list_uri))
    return [
        RemoteFile(name, url, connection.size(url), Checksum("md5", sums[name]))
        for name in select(list(sums), download.files, list_uri)
        for url in [f"{base}/{quote(name)}"]
    ]


def _base_url(connection: Connection, uri: str) -> str:
    """Return the URL of the folder; it must be on the same host, because it receives the credentials."""
    try:
        base = connection.text(uri).strip()
    except _LoginRequired:
        connection.authenticate(_credentials(uri))
        base = connection.text(uri).strip()
    scheme, host, *_ = urlsplit(uri)
    if urlsplit(base)[:2] != (scheme, host):
        raise RunFailed(
            "metadata file refers to another host",
            where=uri,
            expected=f"a URL that starts with {scheme}://{host}/",
            found=base[:200],
        )
    return base.rstrip("/")


def _parse(text: str, where: str) -> Iterator[tuple[str, str]]:
    """Yield name and md5 of each file."""
    lines = [line for line in text.splitlines() if line.strip()]
    for line in lines:
        match = _LINE.fullmatch(line.rstrip())
        if not match:
            raise RunFailed("invalid line in checksum list", where=where, found=line[:200])
        yield require_inside(match[2], where), match[1]
    if not lines:
        raise RunFailed("empty checksum list", where=where)


def _credentials(uri: str) -> dict[str, str]:
    """Return the headers of a service account, or of cloudflared's login."""
    account, secret = os.environ.get(_ID, "").strip(), os.environ.get(_SECRET, "").strip()
    if account and secret and is_header_value(account + secret):
        return {"CF-Access-Client-Id": account, "CF-Access-Client-Secret": secret}
    if shutil.which("cloudflared"):
        done = subprocess.run(
            ["cloudflared", "access", "token", f"--app={uri}"], capture_output=True, text=True, check=False
        )
        token = done.stdout.strip()
        if token and done.returncode == 0 and is_header_value(token):
            return {"cf-access-token": token}
    raise _login_required(uri)


def _login_required(url: str, found: str = "") -> _LoginRequired:
    login = f"run cloudflared access login {url}, or set {_ID} and {_SECRET} of a service account"
    if os.environ.get(IMAGE_VARIABLE):  # containers use cloudflared and its logins of the host
        login = f"on the host, {login}"
    return _LoginRequired(
        "missing login for a download of MLCommons members",
        where=url,
        found=found,
        hint=f"accept the benchmark's notice on mlcommons.org, then {login}; then run the same command again",
    )


def _explain(url: str, response: httpx.Response) -> HarnessError:
    redirected_to_login = response.is_redirect and _LOGIN.search(response.headers.get("Location", ""))
    if redirected_to_login or response.status_code in {401, 403}:
        return _login_required(url, status(response))
    if response.status_code == httpx.codes.NOT_FOUND:
        return ConfigError(
            "file not found in MLCommons' storage",
            where=url,
            found=status(response),
            hint="compare `downloads` of models/*/benchmark.yaml with the benchmark's README in mlcommons/inference",
        )
    return refused(url, response)
