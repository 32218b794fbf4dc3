"""Program that runs in the container as its first process (PID 1); uses Python's standard library only.

Standard input: one JSON object per line with `language` and `code`, then an empty line. It stays open; when it closes,
the parent has ended, and the container exits. Standard output: `true` or `false` per line, in order.
Commands, time limits and compiler exit codes are those of mxeval's execution.py (commit e09974f).
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import NamedTuple

COMPILE_S = 100
RUN_S = 20

# exec sets no __main__, so code below `if __name__ == "__main__"` does not run. sys.exit counts as a failure.
PYTHON = """
import os
try:
    exec(open("main.py").read(), {})
except BaseException:
    os._exit(1)
"""


class Language(NamedTuple):
    """Commands that compile and run a program in `file`; `compiled` is the compiler's exit code on success."""

    file: str
    command: tuple[str, ...]
    compiler: tuple[str, ...] = ()
    compiled: int = 0


LANGUAGES = {
    "cpp": Language("main.cpp", ("./main",), ("g++", "main.cpp", "-o", "main")),
    "javascript": Language("main.js", ("node", "main.js")),
    "php": Language("main.php", ("php", "main.php")),
    "python": Language("main.py", (sys.executable, "-c", PYTHON)),
    "ruby": Language("main.rb", ("ruby", "main.rb")),
    # tsc exits with 2 after type errors: every test imports a module without type definitions.
    "typescript": Language(
        "main.ts", ("node", "main.js"), ("tsc", "main.ts", "--target", "es5", "--lib", "es2016"), compiled=2
    ),
}


def passes(language: str, code: str) -> bool:
    """Whether the program compiles and exits with 0, each within its time limit."""
    commands = LANGUAGES[language]
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        Path(folder, commands.file).write_text(code, encoding="utf-8")
        if commands.compiler and exit_code(commands.compiler, COMPILE_S, folder) != commands.compiled:
            return False
        return exit_code(commands.command, RUN_S, folder) == 0


def exit_code(command: tuple[str, ...], seconds: float, folder: str) -> int | None:
    """Run a command and kill its process group; None if the command is missing or exceeded its time limit."""
    null = subprocess.DEVNULL
    try:
        process = subprocess.Popen(command, cwd=folder, stdin=null, stdout=null, stderr=null, start_new_session=True)
    except FileNotFoundError:
        return None
    try:
        return process.wait(seconds)
    except subprocess.TimeoutExpired:
        return None
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def reap() -> None:
    """Reap zombies: orphans become children of this process, and count against the container's process limit."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def end_with_standard_input() -> None:
    """Exit this process, and with it the container, when standard input closes."""
    os.read(0, 1)
    os._exit(1)


def main() -> None:
    """Run the program of each input line and print its result."""
    programs = [json.loads(line) for line in iter(sys.stdin.readline, "\n")]
    threading.Thread(target=end_with_standard_input, daemon=True).start()
    for program in programs:
        print(json.dumps(passes(**program)), flush=True)  # noqa: T201
        reap()


if __name__ == "__main__":
    main()
