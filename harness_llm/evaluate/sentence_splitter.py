"""nltk's sentence splitter: wherever nltk finds its data, else fetched by nltk's own downloader."""

import os
from pathlib import Path

from harness_llm.errors import EnvironmentMissing
from harness_llm.paths import Workspace

PACKAGE = "punkt_tab"
SEARCHED = "NLTK_DATA"


def has_splitter(folder: Path) -> bool:
    """Whether there is one; `folder` is searched too, from now on and in child processes."""
    import nltk  # noqa: PLC0415 - 0.5 s

    if str(folder) not in nltk.data.path:
        nltk.data.path.append(str(folder))
        os.environ[SEARCHED] = os.pathsep.join([*filter(None, [os.environ.get(SEARCHED)]), str(folder)])
    try:
        nltk.sent_tokenize("One. Two.")
    except LookupError:
        return False
    return True


def find_splitter() -> Path:
    """The folder of the splitter's data.

    Raises:
        EnvironmentMissing: there is none.
    """
    import nltk  # noqa: PLC0415 - 0.5 s

    has_splitter(Workspace().cache / "nltk")
    try:
        return Path(str(nltk.data.find(f"tokenizers/{PACKAGE}/"))).resolve()
    except LookupError as error:
        raise EnvironmentMissing(
            "nltk has no sentence splitter",
            where=SEARCHED,
            expected=f"the data package {PACKAGE}",
            hint=f"python -m nltk.downloader {PACKAGE}, where there is a network; {SEARCHED} names another folder",
        ) from error


def fetch_splitter(folder: Path) -> None:
    """Put one into `folder`.

    Raises:
        EnvironmentMissing: it cannot be fetched.
    """
    import nltk  # noqa: PLC0415 - 0.5 s

    try:
        nltk.download(PACKAGE, download_dir=str(folder), quiet=True, raise_on_error=True)
    except (ValueError, OSError) as error:
        raise EnvironmentMissing(
            "nltk has no sentence splitter, and it cannot be fetched",
            where=str(folder),
            expected=f"nltk's data package {PACKAGE}, which scoring this benchmark takes",
            found=str(error),
            hint=f"python -m nltk.downloader {PACKAGE}, where there is a network; {SEARCHED} names another folder",
        ) from error
