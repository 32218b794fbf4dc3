"""The runs of a request as they would be made now: facts and judgement, to compare earlier runs with."""

from collections.abc import Callable, Mapping
from typing import Any

from harness_llm.config.assets import Assets
from harness_llm.config.request import Request, ScenarioPlan
from harness_llm.evaluate.run_result import Scorer
from harness_llm.pipeline.judgement import judged_by
from harness_llm.pipeline.run_facts import at_default, run_facts
from harness_llm.runs.facts import run_facts_of
from harness_llm.runs.record import RunKey
from harness_llm.runs.selection import Present

Fingerprint = Callable[[ScenarioPlan, Assets], Mapping[str, Any]]


def present_runs(request: Request, assets: Assets, fingerprint: Fingerprint, scorer: Scorer) -> dict[RunKey, Present]:
    """The present run of every scenario and test."""
    found: dict[RunKey, Present] = {}
    for plan in request.scenarios:
        own, judged = fingerprint(plan, assets), judged_by(request, plan, scorer.reference)
        for test in request.tests:
            facts = run_facts_of(own, run_facts(request, plan, assets, test), test, at_default(request, plan, test))
            found[RunKey(request.benchmark.name, plan.scenario, test)] = Present(facts, judged)
    return found
