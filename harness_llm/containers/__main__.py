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
        prog="containers", description="Builds and starts containers; see docs/containers.md."
    )
    verbs = parser.add_subparsers(dest="verb", required=True)
    for verb, does in (("build", "build an image"), ("start", "start a container")):
        words = verbs.add_parser(verb, help=does, description=does, allow_abbrev=False)
        words.add_argument("image", choices=get_args(ImageName))
        words.add_argument("--print", action="store_true", help="show the docker command and do nothing")
        if verb == "start":
            words.add_argument("command", nargs="*", metavar="COMMAND", help="what runs inside; default: a shell")
    verbs.add_parser("clean", help="remove the images that are built here")
    verbs.add_parser("submit", help="what `make submission` does in containers; options of harness-llm submit")
    verbs.add_parser("doctor", help="the checks of `submit` alone; its options, and --json")
    return parser


def _split(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Our own words, and the command that follows them, whose options are its own."""
    own = [*arguments[:2], *takewhile(lambda word: word.startswith("-"), arguments[2:])]
    return own, list(arguments[len(own) :])


def main() -> int:
    """Run one verb; returns the exit code."""
    arguments = sys.argv[1:]
    # Each verb is imported where it is used: a start need not import the others.
    if arguments[:1] in (["submit"], ["doctor"]):
        from harness_llm.containers import submit

        does = submit.submit if arguments[0] == "submit" else submit.doctor
        return does(arguments[1:], os.environ)
    own, command = _split(arguments)
    words = _parser().parse_args(own if own[:1] == ["start"] else arguments)
    if words.verb == "start":
        from harness_llm.containers.start import start

        return start(words.image, command, os.environ, printed=words.print)
    if words.verb == "build":
        from harness_llm.containers.build import build

        build(words.image, os.environ, printed=words.print)
    else:
        from harness_llm.containers.clean import clean

        clean(os.environ)
    return 0


if __name__ == "__main__":
    sys.exit(exit_code_of(main))
