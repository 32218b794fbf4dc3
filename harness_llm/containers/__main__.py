"""`python -m harness_llm.containers VERB ...`, for the scripts in setup/ and the Makefile."""

import argparse
import os
import sys
from collections.abc import Sequence
from itertools import takewhile
from typing import get_args

from harness_llm.containers.container_spec import ImageName
from harness_llm.errors import exit_code_of


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="containers", description="Build and start containers; see docs/containers.md."
    )
    verbs = parser.add_subparsers(dest="verb", required=True)
    for verb, text in (("build", "build an image"), ("start", "start a container")):
        options = verbs.add_parser(verb, help=text, description=text, allow_abbrev=False)
        options.add_argument("image", choices=get_args(ImageName))
        options.add_argument("--print", action="store_true", help="print the docker command and exit")
        if verb == "start":
            options.add_argument(
                "command", nargs="*", metavar="COMMAND", help="command in the container; default: a shell"
            )
    verbs.add_parser("clean", help="remove all images of harness-llm")
    verbs.add_parser("submit", help="run `make submission` in containers; the options of submit")
    verbs.add_parser("doctor", help="run the checks of `submit` only; its options, and --json")
    return parser


def _split(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Split into the options of `start` and the command for the container."""
    own = [*arguments[:2], *takewhile(lambda word: word.startswith("-"), arguments[2:])]
    return own, list(arguments[len(own) :])


def main() -> int:
    """Run one verb; return the exit code."""
    arguments = sys.argv[1:]
    # Imports per verb keep `start` fast.
    if arguments[:1] in (["submit"], ["doctor"]):
        from harness_llm.containers import submit

        run = submit.submit if arguments[0] == "submit" else submit.doctor
        return run(arguments[1:], os.environ)
    own, command = _split(arguments)
    options = _parser().parse_args(own if own[:1] == ["start"] else arguments)
    if options.verb == "start":
        from harness_llm.containers.start import start

        return start(options.image, command, os.environ, printed=options.print)
    from harness_llm.containers.build import build, clean

    if options.verb == "build":
        build(options.image, os.environ, printed=options.print)
    else:
        clean(os.environ)
    return 0


if __name__ == "__main__":
    sys.exit(exit_code_of(main))
