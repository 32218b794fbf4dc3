"""nltk's sentence splitter: find its data, or download it with nltk."""

import os
import shlex
import sys
from pathlib import Path

from harness_llm.errors import EnvironmentMissing
from harness_llm.fileio import OTHERS_WRITE, only_own_writes
from harness_llm.paths import IMAGE_VARIABLE, Workspace

PACKAGE = "punkt_tab"
INDEX = "https://raw.githubusercontent.com/nltk/nltk_data/gh-pages/index.xml"
"""nltk's list of data packages, which are on the same server."""
SEARCHED = "NLTK_DATA"


def splitter_folder(workspace: Workspace) -> Path:
    """The folder that is searched besides nltk's own, which containers do not share with the host."""
    return workspace.cache / "nltk"


def _hint() -> str:
    """The command that downloads the splitter into the folder that is searched."""
    image = os.environ.get(IMAGE_VARIABLE)
    python = f"on the host: bash setup/start_{image}_env.sh python" if image else sys.executable
    folder = splitter_folder(Workspace())
    return (
        f"{python} -m nltk.downloader -d {folder} {PACKAGE}; without a network: copy this folder from another machine"
    )


def has_splitter(folder: Path) -> bool:
    """Whether nltk finds a splitter; adds `folder` to the search path of this process and its children."""
    import nltk  # noqa: PLC0415 - 0.5 s

    if str(folder) not in nltk.data.path:
        nltk.data.path.append(str(folder))
        os.environ[SEARCHED] = os.pathsep.join([*filter(None, [os.environ.get(SEARCHED)]), str(folder)])
    return _loads()


def is_fetched(folder: Path) -> bool:
    """Whether `folder` contains a splitter; containers search no other folder of the host."""
    return (folder / "tokenizers" / PACKAGE / "english").is_dir()


def _loads() -> bool:
    import nltk  # noqa: PLC0415 - 0.5 s

    try:
        nltk.sent_tokenize("One. Two.")
    except LookupError:
        return False
    return True


def require_splitter() -> None:
    """Raise EnvironmentMissing if nltk finds no sentence splitter."""
    if not _loads():
        raise _missing()


def _missing() -> EnvironmentMissing:
    return EnvironmentMissing(
        "missing sentence splitter of nltk", where=SEARCHED, expected=f"the data package {PACKAGE}", hint=_hint()
    )


def find_splitter() -> Path:
    """Find the folder of the splitter's data.

    Raises:
        EnvironmentMissing: it is not installed.
    """
    import nltk  # noqa: PLC0415 - 0.5 s

    has_splitter(splitter_folder(Workspace()))
    try:
        return Path(str(nltk.data.find(f"tokenizers/{PACKAGE}/"))).resolve()
    except LookupError as error:
        raise _missing() from error


def require_own(folder: Path) -> None:
    """Require that another account owns no file in `folder`: nltk does not read it (nltk/pathsec.py of 3.10.4).

    Raises:
        EnvironmentMissing: another account owns a file.
    """
    others = [path for path in _all(folder) if path.stat().st_uid not in (os.geteuid(), 0)]
    if others:
        raise EnvironmentMissing(
            "nltk does not read its sentence splitter from files of another account",
            where=str(folder),
            expected=f"files of uid {os.geteuid()} or of root",
            found=f"uid {others[0].stat().st_uid}",
            hint=f"sudo chown -R {os.geteuid()} {shlex.quote(str(folder))}",
        )


def _all(folder: Path) -> list[Path]:
    return [folder, *folder.rglob("*")] if folder.exists() else []


def fetch_splitter(folder: Path) -> None:
    """Download the splitter into `folder`, or make an existing one readable for nltk: not writable for other accounts.

    Raises:
        EnvironmentMissing: the download failed, or another account owns a file in `folder`.
    """
    from nltk.downloader import Downloader  # noqa: PLC0415 - 0.5 s

    require_own(folder)
    try:
        with only_own_writes():
            folder.mkdir(parents=True, exist_ok=True)
            for path in _all(folder):
                path.chmod(path.stat().st_mode & ~OTHERS_WRITE)
            if not has_splitter(folder):
                Downloader(INDEX).download(PACKAGE, download_dir=str(folder), quiet=True, raise_on_error=True)
    except (ValueError, OSError) as error:
        raise EnvironmentMissing(
            "download of nltk's sentence splitter failed",
            where=str(folder),
            expected=f"nltk's data package {PACKAGE}, which scoring this benchmark requires",
            found=str(error),
            hint=_hint(),
        ) from error
