"""What a pass of checks is made for, and where: both decide which checks are relevant."""

from enum import StrEnum


class Purpose(StrEnum):
    """The command whose start is checked.

    SUBMIT measures and packages, MEASURE measures only, PREPARE downloads and quantizes only.
    """

    SUBMIT = "submit"
    MEASURE = "run"
    PREPARE = "prepare"


class Part(StrEnum):
    """Which of the checks are made.

    ALL on the machine, or in the container, that runs the engines. With containers, HOST before they are built, and
    SOFTWARE, what only an image shows, inside the image.
    """

    ALL = "all"
    HOST = "host"
    SOFTWARE = "software"
