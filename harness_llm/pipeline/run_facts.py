"""Facts of a run of one test: what must be equal besides the fingerprint."""

from typing import Any

from harness_llm.config.assets import Assets
from harness_llm.config.benchmark import Sampling
from harness_llm.config.request import Request, ScenarioPlan
from harness_llm.protocol.token_store import open_store
from harness_llm.runs.facts import names_at_default


def sampling_of(request: Request, plan: ScenarioPlan, test: str) -> Sampling:
    """The sampling of `test`, with the settings of --set."""
    return plan.config.sampling.changed(request.benchmark.sampling_of.get(test, {}))


def run_facts(request: Request, plan: ScenarioPlan, assets: Assets, test: str) -> dict[str, Any]:
    """Data set, sampling, user.conf and audit settings of a run of `test`."""
    audit = request.round.compliance.get(test)
    return {
        "dataset": open_store(assets.store(test)).digest,
        "samples": request.samples(test),
        "profile": request.profile.model_dump(mode="json"),
        "accuracy": request.benchmark.accuracy.model_dump(mode="json"),
        "sampling": sampling_of(request, plan, test).model_dump(mode="json"),
        "stream": plan.stream,
        "violations": plan.violations,
        "user_conf": plan.confs[test].render(),
        "audit": audit.audit if audit else {},
    }


def at_default(request: Request, plan: ScenarioPlan, test: str) -> list[str]:
    """Dotted names of the facts of a run of `test` that are at their default."""
    config = plan.config
    return names_at_default(
        harness_config=config.harness_config,
        server_config=config.server_config,
        replay_config=config.replay_config,
        sampling=sampling_of(request, plan, test),
    )
