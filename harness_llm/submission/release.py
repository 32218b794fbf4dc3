"""Check that packages are official or beta releases, which `status: available` requires.

"Submissions using nightly release for example cannot be submitted under the available category"
(Submission_Guidelines.md, "Things to Know", 5).
"""

import base64
import hashlib
import importlib.metadata
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

AVAILABLE = "available"
EXPECTED = "official or beta releases (Submission_Guidelines.md), or another status: preview, rdi"

_NIGHTLY = re.compile(r"\.dev\d*")
# Local version labels of published builds: CPU, CUDA, ROCm, XPU, NVIDIA's containers.
_PUBLISHED = re.compile(r"cpu|xpu|cu\d+|rocm[\w.]*|[0-9a-f]+\.nv\d+\.\d+")


def faults_of_release(fingerprint: Mapping[str, Any]) -> list[str]:
    """Packages and servers of a run that are not releases, one clause each.

    Args:
        fingerprint: of the run, or its part from `fingerprint.software`.
    """
    return [*_unreleased(fingerprint), *altered(fingerprint.get("packages", {}))]


def _unreleased(fingerprint: Mapping[str, Any]) -> list[str]:
    """Packages and servers whose version is not a release."""
    versions = dict(fingerprint.get("packages", {}))
    versions |= {f"the server {server['url']}": server["version"] or "" for server in fingerprint.get("servers", [])}
    return [f"{name} {version}: {why}" for name, version in versions.items() if (why := _fault(version))]


def altered(packages: Mapping[str, str]) -> list[str]:
    """Packages that are installed from source or were changed after installation, one clause each.

    Args:
        packages: versions by name; packages with another version in this environment are not checked.
    """
    found = []
    for name, version in packages.items():
        try:
            distribution = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:
            continue
        if distribution.version == version and (fault := _alteration(distribution)):
            found.append(f"{name} {version}: {fault}")
    return found


def availability_notices(status: str, fingerprints: Iterable[Mapping[str, Any]]) -> list[str]:
    """One sentence for each package that is not a release, if the status of the system is available.

    Args:
        status: of the system description.
        fingerprints: of the runs.
    """
    if status != AVAILABLE:
        return []
    found = dict.fromkeys(fault for fingerprint in fingerprints for fault in faults_of_release(fingerprint))
    return [f"status: {AVAILABLE} excludes {fault}; expected {EXPECTED}" for fault in found]


def _fault(version: str) -> str:
    public, _, local = version.partition("+")
    if _NIGHTLY.search(public):
        return "a nightly or development build"
    return f"built locally (+{local})" if local and not _PUBLISHED.fullmatch(local) else ""


def _alteration(distribution: importlib.metadata.Distribution) -> str:
    origin = json.loads(distribution.read_text("direct_url.json") or "{}")
    if "dir_info" in origin or "vcs_info" in origin:
        return f"installed from source ({origin['url']})"
    changed = list(_changed(distribution))
    return f"{len(changed)} files changed since installation, for example {changed[0]}" if changed else ""


def _changed(distribution: importlib.metadata.Distribution) -> Iterator[str]:
    """Python files that differ from the wheel's RECORD; shared libraries are skipped, as hashing them takes minutes."""
    for file in distribution.files or ():
        if file.suffix != ".py" or not file.hash or file.hash.mode != "sha256":
            continue
        path = Path(file.locate())
        content = path.read_bytes() if path.is_file() else b""
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        if digest != file.hash.value:
            yield str(file)
