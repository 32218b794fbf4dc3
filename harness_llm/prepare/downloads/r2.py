"""MLCommons' storage, as mlc-r2-downloader.sh reads it.

`<name>.uri` holds the address of a folder, `<name>.md5` beside it the files of that folder, as md5sum writes them.
Members-only storage sends those who are not logged in to Cloudflare Access, by a redirect.
https://github.com/mlcommons/r2-downloader
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
from harness_llm.prepare.downloads.http import Tell, Wire, is_sendable, refused, status
from harness_llm.prepare.downloads.http import connect as connect_wire
from harness_llm.prepare.downloads.remote_file import Checksum, RemoteFile, require_inside, wanted

_LINE = re.compile(r"([0-9a-f]{32})[ \t]+\*?(?:\./)?(.+)")
_LOGIN = re.compile(r"/cdn-cgi/access/login|\.cloudflareaccess\.com/")
_ID, _SECRET = "CF_ACCESS_CLIENT_ID", "CF_ACCESS_CLIENT_SECRET"


class _LoginWanted(EnvironmentMissing):
    """This storage is for members."""


def connect(_: Download, tell: Tell) -> AbstractContextManager[Wire]:
    """A wire to MLCommons; a redirect there is no way to a file but to a login."""
    return connect_wire(_explain, tell, follow_redirects=False)


def listing(wire: Wire, download: Download) -> list[RemoteFile]:
    """The files of `download`, with their sizes.

    Raises:
        RunFailed: the list is broken.
        ConfigError: there is nothing at this URI.
        EnvironmentMissing: a login is wanted.
    """
    base = _base(wire, download.uri)
    list_uri = f"{download.uri.removesuffix('.uri')}.md5"
    sums = dict(_parse(wire.text(list_uri), list_uri))
    return [
        RemoteFile(name, url, wire.size(url), Checksum("md5", sums[name]))
        for name in wanted(list(sums), download.files, list_uri)
        for url in [f"{base}/{quote(name)}"]
    ]


def _base(wire: Wire, uri: str) -> str:
    """Where the files lie; credentials are sent there, so it must be the host that was asked."""
    try:
        base = wire.text(uri).strip()
    except _LoginWanted:
        wire.authenticate(_credentials(uri))
        base = wire.text(uri).strip()
    scheme, host, *_ = urlsplit(uri)
    if urlsplit(base)[:2] != (scheme, host):
        raise RunFailed(
            "a metadata file does not name a folder of its own host",
            where=uri,
            expected=f"an address that starts with {scheme}://{host}/",
            found=base[:200],
        )
    return base.rstrip("/")


def _parse(text: str, where: str) -> Iterator[tuple[str, str]]:
    """Name and md5 of each file."""
    lines = [line for line in text.splitlines() if line.strip()]
    for line in lines:
        match = _LINE.fullmatch(line.rstrip())
        if not match:
            raise RunFailed("a line of a checksum list cannot be read", where=where, found=line[:200])
        yield require_inside(match[2], where), match[1]
    if not lines:
        raise RunFailed("a checksum list is empty", where=where)


def _credentials(uri: str) -> dict[str, str]:
    """What proves membership: a service account, or the login that cloudflared remembers."""
    account, secret = os.environ.get(_ID, "").strip(), os.environ.get(_SECRET, "").strip()
    if account and secret and is_sendable(account + secret):
        return {"CF-Access-Client-Id": account, "CF-Access-Client-Secret": secret}
    if shutil.which("cloudflared"):
        told = subprocess.run(
            ["cloudflared", "access", "token", f"--app={uri}"], capture_output=True, text=True, check=False
        )
        token = told.stdout.strip()
        if token and told.returncode == 0 and is_sendable(token):
            return {"cf-access-token": token}
    raise _login_wanted(uri)


def _login_wanted(url: str, found: str = "") -> _LoginWanted:
    return _LoginWanted(
        "this download is for members of MLCommons who are logged in",
        where=url,
        found=found,
        hint=f"accept the benchmark's notice on mlcommons.org, then cloudflared access login {url}, or set {_ID} and "
        f"{_SECRET} of a service account; then run the same command again",
    )


def _explain(url: str, response: httpx.Response) -> HarnessError:
    sent_to_login = response.is_redirect and _LOGIN.search(response.headers.get("Location", ""))
    if sent_to_login or response.status_code in {401, 403}:
        return _login_wanted(url, status(response))
    if response.status_code == httpx.codes.NOT_FOUND:
        return ConfigError(
            "MLCommons' storage has no such file",
            where=url,
            found=status(response),
            hint="`downloads` of models/*/benchmark.yaml holds the addresses; compare them with the benchmark's README "
            "in mlcommons/inference",
        )
    return refused(url, response)
