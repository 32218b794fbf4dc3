"""Scoring service, client side and messages.

The server (harness_llm/containers/scoring_server.py) runs outside the container and starts sandboxes for it. A
connection carries one request and one answer, each one line of JSON. A request contains programs or file names, never
a command or an image. The answer is `{"value": …}` or `{"error": …}` with the facts of a HarnessError.
"""

import json
import os
import socket
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from harness_llm.errors import EnvironmentMissing, RunFailed, rebuild
from harness_llm.evaluate.mbxp.programs import Language

VARIABLE = "HARNESS_LLM_SCORING"
"""Environment variable with the path of the service's socket; set only inside a container."""
REQUEST_BYTES = 16 << 20
BATCH = 100
"""Maximum number of programs per request and per container."""


class _Message(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class RequireMbxp(_Message):
    """Check that MBXP can be scored; build the image if it is missing. Answer: null."""

    kind: Literal["require-mbxp"] = "require-mbxp"


class ProgramText(_Message):
    """One program."""

    language: Language
    code: str


class RunMbxp(_Message):
    """Run programs. Answer: a list of booleans, true for each program that passes."""

    kind: Literal["run-mbxp"] = "run-mbxp"
    programs: list[ProgramText] = Field(max_length=BATCH)


class Grade(_Message):
    """Run an official accuracy script on files of the requesting container. Answer: exit code, stdout and stderr.

    Attributes:
        method: key of `official.scripts.ACCURACY_SCRIPTS`.
        folder: created by `official.scripts.make_folder`.
        log: mlperf_log_accuracy.json; `log` and `source` are empty for a trial without answers.
        source: the published data set.
    """

    kind: Literal["grade"] = "grade"
    method: str
    folder: str
    log: str = ""
    source: str = ""


Request = RequireMbxp | RunMbxp | Grade
REQUESTS: TypeAdapter[Request] = TypeAdapter(Annotated[Request, Field(discriminator="kind")])


def is_offered() -> bool:
    """Whether a scoring service is available outside this container."""
    return bool(os.environ.get(VARIABLE))


def ask(request: Request) -> Any:
    """Send a request and return its answer.

    Raises:
        EnvironmentMissing: the service does not accept the connection, or reports a missing program or package.
        RunFailed: the service closed the connection without an answer, or reports a failure.
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
            "no connection to the scoring service outside this container", where=address, found=str(error)
        ) from error
    if not line.endswith(b"\n"):
        raise RunFailed("the scoring service outside this container ended without an answer", where=address)
    answer = json.loads(line)
    if facts := answer.get("error"):
        raise rebuild(facts)
    return answer["value"]
