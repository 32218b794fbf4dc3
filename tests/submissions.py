"""Submissions for the packager."""

from typing import Any

from runs import BENCHMARK, SYSTEM

from harness_llm.config.benchmark import Benchmark, load_benchmark
from harness_llm.config.rules.rounds import load_round
from harness_llm.config.submission_names import Submission
from harness_llm.paths import CHECKOUT, Workspace


def official(name: str, *variants: str) -> Benchmark:
    """The demo's facts under an official name, held to the gates of its round."""
    demo = load_benchmark(BENCHMARK, Workspace(CHECKOUT))
    own = {"divisions": ("closed", "open"), "tree_suffix": "", "obstacle": "", "mapped": False}
    accuracy = demo.accuracy.model_copy(update={"reference": None})
    return demo.model_copy(update={"name": name, "variants": variants, "accuracy": accuracy, "title": name} | own)


def submission_of(benchmark: Benchmark, **changes: Any) -> Submission:
    """A smoke submission to the open division of round v6.1, but for `changes`."""
    facts: dict[str, Any] = {
        "rules": load_round("v6.1"),
        "division": "open",
        "category": "datacenter",
        "submitter": "Acme",
        "system": SYSTEM,
        "profile": "smoke",
    }
    return Submission(benchmark=benchmark, **facts | changes)
