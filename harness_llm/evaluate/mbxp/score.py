"""MBXP: programs that a model wrote, run against their tests, inside a container and nowhere else."""

from collections.abc import Sequence

from harness_llm.evaluate.mbxp.container import run_programs
from harness_llm.evaluate.mbxp.programs import assemble


def score(targets: Sequence[str], answers: Sequence[str], workers: int) -> list[float]:
    """100 for every program that passes its test, 0 for the others.

    Args:
        targets: what `programs.target` made.
        answers: decoded answers, untouched.
        workers: containers at a time, of one core each.

    Returns:
        One value per sample in a language that the reference scores; it leaves the others out.

    Raises:
        EnvironmentMissing: no container engine answers, or its image is not there or lacks a language.
        RunFailed: a container ended early.
    """
    programs = [assemble(target, answer) for target, answer in zip(targets, answers, strict=True)]
    scored = [program for program in programs if program is not None]
    return [100.0 if passed else 0.0 for passed in run_programs(scored, workers)] if scored else []
