"""Stand-ins: a published benchmark with the demo's checkpoint and generated data, to try a submission.

Names, file formats, prompt shape, metrics, limits and tests are the benchmark's own.
"""

from pathlib import Path

from harness_llm.config.benchmark import Benchmark, SampleSet
from harness_llm.config.commands import typed
from harness_llm.errors import ConfigError
from harness_llm.hardware.gpus import NO_ACCELERATOR

DEMO = "demo"
_SHORT = "smoke"
LONGEST_PROMPT = 200  # token ids; the demo's model has 256 positions
LONGEST_ANSWER = 24

_DEMO = "its model is the demo's, and its data set is generated"
_REHEARSED = "its answers are those of the replay engine, which computes nothing, and its data set is generated"

# Scoring methods that fail on generated answers: they execute programs or run graders of the reference.
NEEDS_MORE = ("mbxp", "deepseek-r1", "gpt-oss-120b")


def stand_in(benchmark: Benchmark, demo: Benchmark, *, rehearsed: bool = False) -> Benchmark:
    """Return the stand-in of `benchmark`: the same rules with the demo's checkpoint; never submittable.

    Args:
        rehearsed: whether the replay engine runs; then engine settings and sampling are the benchmark's.

    Raises:
        ConfigError: `benchmark` is the demo.
    """
    if benchmark.name == demo.name:
        raise ConfigError(
            "the demo has no stand-in and no rehearsal: its own model is small, and its data is generated",
            hint=f"{typed(model='llama2-70b')}, or without {typed(stand_in=True)} and {typed(profile='rehearsal')}",
        )
    folder = f"stand-in/{benchmark.name}"
    dataset, accuracy = benchmark.dataset, benchmark.accuracy

    def moved(file: str) -> str:
        return f"{folder}/{Path(file).name}"

    sets = {name: SampleSet(file=moved(s.file), samples=s.samples) for name, s in dataset.sets.items()}
    scoring = {kind: "exact" if method in NEEDS_MORE else method for kind, method in accuracy.scoring.items()}
    own = benchmark if rehearsed else _with_engine_of(demo, benchmark)
    return own.model_copy(
        update={
            "title": f"{benchmark.title}: a stand-in with the {'replay engine' if rehearsed else 'demo model'}",
            "preparer": "stand-in",
            "divisions": ("open",),
            "tree_suffix": "-stand-in",
            "obstacle": _REHEARSED if rehearsed else _DEMO,
            "dataset": dataset.model_copy(
                update={"sets": sets, "calibration": moved(dataset.calibration), "longest_prompt": LONGEST_PROMPT}
            ),
            "checkpoint": demo.checkpoint,
            # Generated answers have no sentences, so that splitting them, whose data is a download, changes no score.
            "accuracy": accuracy.model_copy(update={"scoring": scoring, "sentence_split": False}),
            "measurements": demo.measurements,
        }
    )


def without_accelerator(benchmark: Benchmark, *, rehearsed: bool) -> str:
    """What the user types to try a benchmark on a machine without accelerators, whatever else was typed.

    Args:
        rehearsed: whether the profile is a rehearsal, which uses the settings of GPUs.
    """
    if benchmark.settings == DEMO:
        return typed(gpu=NO_ACCELERATOR)
    return typed(stand_in=True, gpu=NO_ACCELERATOR, **({"profile": _SHORT} if rehearsed else {}))


def _with_engine_of(demo: Benchmark, benchmark: Benchmark) -> Benchmark:
    """`benchmark` with the engine settings and the sampling of the demo."""
    return benchmark.model_copy(
        update={
            "engine": demo.engine,
            "engine_of": demo.name,
            "engine_scenarios": {},
            "sampling": demo.sampling.changed(_lengths(benchmark)),
            "sampling_of": {},
        }
    )


def _lengths(benchmark: Benchmark) -> dict[str, int]:
    """Bounds of the answers: the demo's model seldom ends an answer to these prompts."""
    least = benchmark.sampling.min_tokens
    return {"min_tokens": least, "max_tokens": max(LONGEST_ANSWER, least)}
