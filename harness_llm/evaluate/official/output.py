"""Text packaged as accuracy.txt or verdict of a compliance test, from an official script or from harness-llm."""

from dataclasses import dataclass
from pathlib import Path

from harness_llm.config.checkpoint import file_digest
from harness_llm.config.inference_checkout import CHECKOUT_VARIABLE, checkout
from harness_llm.errors import EnvironmentMissing, HarnessError
from harness_llm.paths import Workspace


@dataclass(frozen=True)
class OfficialOutput:
    """Content of a packaged file.

    Attributes:
        text: content of the file.
        script: path of the official script in mlcommons/inference; empty for a text of harness-llm.
        digest: sha256 of the script.
        reason: why the official script was not used.
    """

    text: str
    script: str = ""
    digest: str = ""
    reason: str = ""


def from_script(text: str, checkout: Path, script: str) -> OfficialOutput:
    """Output of the script with the path `script` in `checkout`."""
    return OfficialOutput(text, script, file_digest(checkout / script))


def from_harness(text: str, error: HarnessError) -> OfficialOutput:
    """Text of harness-llm, used because of `error`."""
    return OfficialOutput(text, reason=": ".join(filter(None, [error.what, error.found])))


def require_checkout() -> Path:
    """Return the checkout of mlcommons/inference; raise EnvironmentMissing if there is none."""
    folder = checkout(Workspace())
    if folder is None:
        raise EnvironmentMissing(
            "missing checkout of mlcommons/inference", hint=f"make build; or set {CHECKOUT_VARIABLE}"
        )
    return folder.resolve()
