"""Install uv with pip, and run it with pip's configuration.

uv does not read pip's configuration, which contains this machine's package sources.
"""

import ast
import importlib.util
import subprocess
import sys
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from harness_llm.errors import EnvironmentMissing

PIN = Path("setup/requirements/uv.txt")
_FOLDER = Path("build/uv")
_PIP = Path("build/pip")
_CACHE = Path("build/cache/uv")
_TEMPORARY = Path("build/cache/tmp")

# uv's variable and the separator of its values, by pip's option.
_VARIABLES = {
    "index-url": ("UV_DEFAULT_INDEX", " "),
    "extra-index-url": ("UV_INDEX", " "),
    "find-links": ("UV_FIND_LINKS", ","),
    "trusted-host": ("UV_INSECURE_HOST", " "),
    "timeout": ("UV_HTTP_TIMEOUT", " "),
    "default-timeout": ("UV_HTTP_TIMEOUT", " "),
    "cert": ("SSL_CERT_FILE", " "),
    "client-cert": ("SSL_CLIENT_CERT", " "),
    "proxy": ("ALL_PROXY", " "),
}
# Later sections override earlier ones, as in `pip install`.
_SECTIONS = ("global", "install", ":env:")

_TAIL = 12
_CAUSES = (
    (
        ("no space left", "os error 28", "errno 28"),
        "disk full",
        "free some space, or move the checkout to another disk, and run the same command again",
    ),
    (
        ("permission denied", "os error 13", "errno 13"),
        "no write permission",
        "change the owner of the checkout (did root set it up?), and run the same command again",
    ),
    (
        ("build backend returned an error", "build failures usually indicate"),
        "package cannot be compiled",
        "it has no wheel for this Python and machine; install a C++ compiler and headers: apt install g++ python3-dev",
    ),
)
_UNREACHABLE = (
    "if this machine has no internet access, configure pip's package source and run the same command again:"
    "\n      behind a proxy:   pip config set global.proxy http://proxy:3128"
    "\n      its certificate:  pip config set global.cert /path/to/ca.pem"
    "\n      with a mirror:    pip config set global.index-url https://mirror/simple"
    "\n      with wheel files: pip config set global.find-links /path/to/wheels"
)


def pip_options(listing: str) -> dict[str, list[str]]:
    """Return the options of `pip install` from the output of `pip config list`."""
    options: dict[str, list[str]] = {}
    for section in _SECTIONS:
        for line in listing.splitlines():
            key, _, value = line.partition("=")
            if key.startswith(f"{section}."):
                options[key.removeprefix(f"{section}.")] = str(ast.literal_eval(value)).split()
    return options


def uv_variables(options: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """Return uv's environment variables for pip's options."""
    variables = {
        variable: separator.join(options[option])
        for option, (variable, separator) in _VARIABLES.items()
        if options.get(option)
    }
    if "UV_INDEX" in variables:
        variables["UV_INDEX_STRATEGY"] = "unsafe-best-match"  # pip's strategy: all indexes are equal
    return variables


def no_index(options: Mapping[str, Sequence[str]]) -> bool:
    """Return whether pip's no-index is set; uv has no variable for it."""
    return "".join(options.get("no-index", ())).lower() in {"1", "on", "true", "yes"}


def explain(tail: str) -> tuple[str, str]:
    """Return error and hint for the last lines of pip or uv."""
    for signs, what, hint in _CAUSES:
        if any(sign in tail.lower() for sign in signs):
            return what, hint
    return "package installation failed", _UNREACHABLE


class Uv:
    """uv of this checkout; the current folder must be the checkout."""

    def __init__(self, environ: Mapping[str, str], lock: int) -> None:
        """Install uv; child processes inherit the descriptor `lock`, which keeps the lock until they end."""
        _TEMPORARY.mkdir(parents=True, exist_ok=True)
        self._lock = lock
        self._environ = {
            "UV_CACHE_DIR": str(_CACHE.absolute()),
            **environ,
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
            "PIP_NO_CACHE_DIR": "1",
            "PIP_REQUIRE_VIRTUALENV": "0",
            "PIP_ROOT_USER_ACTION": "ignore",
            "PIP_USER": "0",
            "TMPDIR": str(_TEMPORARY.absolute()),
            "UV_NO_PROGRESS": "1",
            "UV_PYTHON_DOWNLOADS": "never",
        }
        pip = self._pip()
        if not self._is_pinned():
            self._stream([*pip, "install", "--quiet", "--upgrade", "--target", str(_FOLDER), "--requirement", str(PIN)])
        options = pip_options(self._quiet([*pip, "config", "list"]).stdout)
        self._environ = {**uv_variables(options), **self._environ}
        self.no_index = no_index(options)

    def __call__(self, *arguments: str, find_links: bool = True) -> None:
        """Run uv and show its output.

        Args:
            find_links: whether uv sees the folders of wheel files in pip's configuration.

        Raises:
            EnvironmentMissing: uv failed; holds its last lines.
        """
        self._stream(self._command(arguments), hidden=() if find_links else ("UV_FIND_LINKS",))

    def offers(self, python: str, package: str) -> bool:
        """Return whether pip's configured sources have a package; True unless uv finds no solution."""
        dry_run = ("pip", "install", "--dry-run", "--no-deps", "--python", python, package)
        return "No solution found" not in self._quiet(self._command(dry_run)).stderr

    def _command(self, arguments: Sequence[str]) -> list[str]:
        flags = ["--no-index"] if self.no_index and arguments[0] == "pip" else []
        return [str(_FOLDER / "bin" / "uv"), *arguments, *flags]

    def _pip(self) -> list[str]:
        """Return the command of this Python's pip, else of a pip in its own environment."""
        if importlib.util.find_spec("pip"):
            return [sys.executable, "-m", "pip"]
        if not importlib.util.find_spec("ensurepip"):
            version = f"python{sys.version_info.major}.{sys.version_info.minor}"
            raise EnvironmentMissing(
                "missing pip in this Python",
                where=sys.executable,
                expected="module pip or ensurepip",
                hint=f"install it, on Debian and Ubuntu with apt install {version}-venv, and try again",
            )
        python = _PIP / "bin" / "python"
        if self._quiet([str(python), "-m", "pip", "--version"]).returncode:
            self._stream([sys.executable, "-m", "venv", "--clear", str(_PIP)])
        return [str(python), "-m", "pip"]

    def _is_pinned(self) -> bool:
        wanted = PIN.read_text().strip().partition("==")[2]
        return self._quiet([str(_FOLDER / "bin" / "uv"), "--version"]).stdout.split()[1:2] == [wanted]

    def _quiet(self, command: Sequence[str]) -> subprocess.CompletedProcess[str]:
        try:
            return subprocess.run(
                command, env=self._environ, pass_fds=[self._lock], check=False, capture_output=True, text=True
            )
        except OSError as error:
            return subprocess.CompletedProcess(command, 127, "", str(error))

    def _stream(self, command: Sequence[str], hidden: Collection[str] = ()) -> None:
        """Run a command without the variables `hidden`. Show its progress except the list of packages.

        Raises:
            EnvironmentMissing: the command failed.
        """
        error: deque[str] = deque(maxlen=_TAIL)
        with subprocess.Popen(
            command,
            env={name: value for name, value in self._environ.items() if name not in hidden},
            pass_fds=[self._lock],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        ) as process:
            for line in process.stdout or ():
                if error or line.lower().startswith("error"):
                    error.append(line)
                elif not line.startswith(" + "):
                    sys.stderr.write(f"  {line}")
        if process.returncode:
            what, hint = explain("".join(error))
            raise EnvironmentMissing(
                what,
                where=" ".join(command),
                found="    ".join(error).strip() or f"exit code {process.returncode}",
                hint=hint,
            )
