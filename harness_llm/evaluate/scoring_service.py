"""The scoring service: a process outside of a container starts the sandboxes that the container cannot start itself.

Client side, and the messages. A connection carries one request and one answer, each one line of JSON. A request has
programs or names of files, never a command or an image. The answer is `{"value": …}` or `{"error": …}`, the facts of a
HarnessError. harness_llm/containers/scoring_server.py is the server.
"""

import json
import os
import socket
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from harness_llm.errors import EnvironmentMissing, RunFailed, rebuild
from harness_llm.evaluate.mbxp.programs import Language

VARIABLE = "HARNESS_LLM_SCORING"
"""Names the socket of the service; only set inside a container."""
REQUEST_BYTES = 16 << 20
BATCH = 100
"""Programs in one request, and in one container."""


class _Message(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class RequireMbxp(_Message):
    """Check that MBXP can be scored; builds the image that is missing. Answer: null."""

    kind: Literal["require-mbxp"] = "require-mbxp"


class ProgramText(_Message):
    """One program."""

    language: Language
    code: str


class RunMbxp(_Message):
    """Run programs. Answer: a list of booleans, whether each one passes."""

    kind: Literal["run-mbxp"] = "run-mbxp"
    programs: list[ProgramText] = Field(max_length=BATCH)


class Grade(_Message):
    """Run an evaluator of the reference on files that the asking container sees. Answer: exit code and both outputs.

    Attributes:
        method: one of `grading.EVALUATORS`.
        folder: made by `grading.make_folder`.
        log: mlperf_log_accuracy.json; with `source`, empty for a trial without answers.
        source: the data set as it was published.
    """

    kind: Literal["grade"] = "grade"
    method: str
    folder: str
    log: str = ""
    source: str = ""


Request = RequireMbxp | RunMbxp | Grade
REQUESTS: TypeAdapter[Request] = TypeAdapter(Annotated[Request, Field(discriminator="kind")])


def is_offered() -> bool:
    """Whether this process runs in a container that has a scoring service outside."""
    return bool(os.environ.get(VARIABLE))


def ask(request: Request) -> Any:
    """Send a request and wait for its answer.

    Raises:
        EnvironmentMissing: the service does not answer, or reports that something is missing.
        RunFailed: the service ended before its answer, or reports a failure.
    """
    address = os.environ[VARIABLE]
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(address)
            connection.sendall(request.model_dump_json().encode() + b"\n")
            with connection.makefile("rb") as answers:
                line = answers.readline()
    except OSError as error:
        raise EnvironmentMissing(
            "the scoring service outside of this container does not answer", where=address, found=str(error)
        ) from error
    if not line.endswith(b"\n"):
        raise RunFailed("the scoring service outside of this container ended before its answer", where=address)
    answer = json.loads(line)
    if facts := answer.get("error"):
        raise rebuild(facts)
    return answer["value"]
