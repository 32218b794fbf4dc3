"""What is packaged as accuracy.txt or as the verdict of a compliance test: a script's output, or harness-llm's own."""

from dataclasses import dataclass
from pathlib import Path

from harness_llm.config.checkpoint import file_digest
from harness_llm.config.inference_checkout import CHECKOUT_VARIABLE, checkout
from harness_llm.errors import EnvironmentMissing, HarnessError
from harness_llm.paths import Workspace


@dataclass(frozen=True)
class OfficialOutput:
    """A text of a result.

    Attributes:
        text: content of the file.
        script: path in mlcommons/inference of what wrote it, `digest` its sha256; empty for our own text.
        reason: why it is our own.
    """

    text: str
    script: str = ""
    digest: str = ""
    reason: str = ""


def by_script(text: str, checkout: Path, script: str) -> OfficialOutput:
    """What the script of that path in `checkout` wrote."""
    return OfficialOutput(text, script, file_digest(checkout / script))


def ours(text: str, error: HarnessError) -> OfficialOutput:
    """Our own text, because the script could not be run."""
    return OfficialOutput(text, reason=": ".join(filter(None, [error.what, error.found])))


def require_checkout() -> Path:
    """The checkout of mlcommons/inference; raises EnvironmentMissing without one."""
    folder = checkout(Workspace())
    if folder is None:
        raise EnvironmentMissing("mlcommons/inference is not at hand", hint=f"make build; or set {CHECKOUT_VARIABLE}")
    return folder.resolve()
