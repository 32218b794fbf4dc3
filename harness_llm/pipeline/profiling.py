"""What --profile-window asks for, and which requests can be profiled."""

from dataclasses import dataclass
from pathlib import Path

from harness_llm.config.commands import typed
from harness_llm.config.duration import parse_duration
from harness_llm.config.request import Request
from harness_llm.errors import ConfigError

OPTION = "--profile-window"
FOLDER = "profile"


@dataclass(frozen=True)
class Profiling:
    """A window of each performance run, in seconds, and the folder for the traces.

    Attributes:
        traces: of the engines of a replica pool, a folder for each replica; a run's traces are moved to its folder.
    """

    seconds: float
    traces: Path


def profiling_of(request: Request, scenario: str) -> Profiling | None:
    """Return what the request asks for, with a folder below its logs; None without --profile-window."""
    text = request.options.profile_window
    return Profiling(parse_duration(text, OPTION), request.log_folder / scenario / FOLDER) if text else None


def check_profiling(request: Request) -> None:
    """Check that the request can be profiled.

    Raises:
        ConfigError: an invalid duration, or an engine, test or cluster whose runs cannot be profiled.
    """
    options = request.options
    if not options.profile_window:
        return
    parse_duration(options.profile_window, OPTION)
    tests = ",".join(options.tests or ())
    for expected, found in (
        (typed(engine="vllm"), "" if options.engine == "vllm" else typed(engine=options.engine)),
        (typed(tests="performance"), "" if tests == "performance" else typed(tests=tests)),
        ("replicas on this machine", typed(ray=options.ray) if options.ray else ""),
    ):
        if found:
            raise ConfigError("runs of this kind cannot be profiled", where=OPTION, expected=expected, found=found)
