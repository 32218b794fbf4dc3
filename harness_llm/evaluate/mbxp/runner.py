"""Runs in the container, as its first process and on nothing but Python's standard library.

Standard input: one JSON object a line, `language` and `code`, then an empty line. It stays open: when it closes, the
other end was killed, and the container ends. Standard output: `true` or `false` a line, in order.
The commands, their time limits and what counts as compiled are those of mxeval's execution.py (commit e09974f).
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

# exec has no __main__, so what a script does only as a script is not done; leaving early is failing.
PYTHON = """
import os
try:
    exec(open("main.py").read(), {})
except BaseException:
    os._exit(1)
"""


class Language(NamedTuple):
    """How a program in `file` is run; `compiled` is the compiler's exit code that counts as success."""

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
    # 2 is compiled with faults: every test imports a module whose types are not there.
    "typescript": Language(
        "main.ts", ("node", "main.js"), ("tsc", "main.ts", "--target", "es5", "--lib", "es2016"), compiled=2
    ),
}


def passes(language: str, code: str) -> bool:
    """Whether the program compiles and ends with 0, each within its time."""
    how = LANGUAGES[language]
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        Path(folder, how.file).write_text(code, encoding="utf-8")
        if how.compiler and exit_code(how.compiler, COMPILE_S, folder) != how.compiled:
            return False
        return exit_code(how.command, RUN_S, folder) == 0


def exit_code(command: tuple[str, ...], seconds: float, folder: str) -> int | None:
    """None where there is no such command, or where it did not end in time; its group of processes ends with it."""
    nothing = subprocess.DEVNULL
    try:
        process = subprocess.Popen(
            command, cwd=folder, stdin=nothing, stdout=nothing, stderr=nothing, start_new_session=True
        )
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


def bury() -> None:
    """Take leave of dead orphans: they are the first process's to wait for, and count against the container's limit."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def end_with_standard_input() -> None:
    """End this process, and with it the container, when standard input closes."""
    os.read(0, 1)
    os._exit(1)


def main() -> None:
    """Answer every line."""
    programs = [json.loads(line) for line in iter(sys.stdin.readline, "\n")]
    threading.Thread(target=end_with_standard_input, daemon=True).start()
    for program in programs:
        print(json.dumps(passes(**program)), flush=True)  # noqa: T201
        bury()


if __name__ == "__main__":
    main()
