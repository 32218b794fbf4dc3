"""CA certificates in the containers: the public ones and that of a local proxy or mirror."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import certifi

from harness_llm.errors import ConfigError
from harness_llm.paths import Workspace

INSIDE = "/etc/harness-llm-ca.pem"
# Variables of Python, requests and pip, git, and curl.
VARIABLES = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "GIT_SSL_CAINFO", "CURL_CA_BUNDLE")
_VARIABLE = "EXTRA_CA_CERT"
_BLOCK = re.compile(r"-----BEGIN CERTIFICATE-----(.+?)-----END CERTIFICATE-----", re.DOTALL)


def extra_certificate(environ: Mapping[str, str]) -> Path | None:
    """Return the file of EXTRA_CA_CERT, else of SSL_CERT_FILE; None if neither exists.

    Raises:
        ConfigError: EXTRA_CA_CERT contains no certificates.
    """
    named = environ.get(_VARIABLE)
    if named and not (Path(named).is_file() and [*_bodies(Path(named))]):
        raise ConfigError(f"no certificates in {_VARIABLE}", where=named, expected="certificates in PEM format")
    found = Path(named or environ.get("SSL_CERT_FILE") or "/none")
    return found.resolve() if found.is_file() else None


def bundle_file(workspace: Workspace) -> Path:
    """Return the path of the certificate bundle."""
    return workspace.containers / "ca.pem"


def write_bundle(extra: Path, bundle: Path) -> None:
    """Write public certificates and those of `extra` without duplicates (limit of a build secret: 500 KiB)."""
    bodies = dict.fromkeys([*_bodies(extra), *_bodies(Path(certifi.where()))])
    bundle.parent.mkdir(parents=True, exist_ok=True)
    bundle.write_text("".join(f"-----BEGIN CERTIFICATE-----\n{body}\n-----END CERTIFICATE-----\n" for body in bodies))


def _bodies(file: Path) -> Iterator[str]:
    return (match[1].strip() for match in _BLOCK.finditer(file.read_text(errors="replace")))
