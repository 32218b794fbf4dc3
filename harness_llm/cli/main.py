"""Run a command, and report its errors."""

import os
import signal
import sys
import traceback
from typing import Annotated, NoReturn

import typer

from harness_llm.cli import result_declarations, run_declarations
from harness_llm.cli.declaration import VERBOSE
from harness_llm.config.aliases import translate
from harness_llm.containers import lifeline
from harness_llm.errors import INTERRUPTED, report

# Commands that use what an interrupted one has finished.
_CONTINUED = {"submit", "prepare", "download", "tune"}

app = typer.Typer(
    help="Run an MLPerf Inference submission for LLMs: prepare, measure, package and check.",
    epilog="Exit codes: 0 success, 1 a check or gate failed, 2 wrong use, 3 missing on this machine, 4 a run failed, "
    "130 interrupted. -v before the command shows tracebacks and all metrics of a run. --install-completion installs "
    "completion for your shell.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
for declarations in (run_declarations, result_declarations):
    app.add_typer(declarations.commands)


@app.callback()
def _verbose(
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Show tracebacks, and all metrics of a run.")
    ] = False,
) -> None:
    if verbose:
        os.environ[VERBOSE] = "1"


def _interrupt(*_: object) -> NoReturn:
    raise KeyboardInterrupt


def _continues() -> bool:
    return next((word for word in sys.argv[1:] if not word.startswith("-")), "") in _CONTINUED


def main() -> None:
    """Run a command and exit with its exit code."""
    signal.signal(signal.SIGTERM, _interrupt)
    lifeline.watch()
    try:
        app(translate(sys.argv[1:]))
    except Exception as error:  # noqa: BLE001 - a user sees no traceback without -v
        if os.environ.get(VERBOSE):
            traceback.print_exc()
        sys.exit(report(error, hint=f"export {VERBOSE}=1 shows the traceback"))
    except SystemExit as end:
        if end.code == INTERRUPTED:  # typer's exit code for KeyboardInterrupt
            sys.stderr.write("interrupted; the same command continues\n" if _continues() else "interrupted\n")
        raise
