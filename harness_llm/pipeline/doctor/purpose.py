"""Purpose and part of the checks, which determine the checks that run."""

from enum import StrEnum


class Purpose(StrEnum):
    """Command that the checks precede.

    SUBMIT measures and packages, MEASURE only measures, TUNE measures trials, PREPARE only downloads and quantizes.
    """

    SUBMIT = "submit"
    MEASURE = "run"
    TUNE = "tune"
    PREPARE = "prepare"


class Part(StrEnum):
    """Checks to run.

    ALL: on the machine that prepares and measures. HOST: on the machine that starts containers. CONTAINER: in the
    container of the runs; another one prepares model and data.
    """

    ALL = "all"
    HOST = "host"
    CONTAINER = "container"
