"""Purpose and part of the checks, which determine the checks that run."""

from enum import StrEnum


class Purpose(StrEnum):
    """Command that the checks precede.

    SUBMIT measures and packages, MEASURE only measures, PREPARE only downloads and quantizes.
    """

    SUBMIT = "submit"
    MEASURE = "run"
    PREPARE = "prepare"


class Part(StrEnum):
    """Checks to run.

    ALL: on the machine or in the container that runs the engines. HOST: on the host, before a container is built.
    SOFTWARE: in the container, the checks of software that only the image contains.
    """

    ALL = "all"
    HOST = "host"
    SOFTWARE = "software"
