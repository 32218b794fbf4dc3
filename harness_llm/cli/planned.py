"""A pipeline with a plan, for the commands that print it and start nothing."""

from harness_llm.config.plan import plan_scenarios
from harness_llm.config.request import Request, check_request, require_names
from harness_llm.pipeline.panel import Panel
from harness_llm.pipeline.submit import Pipeline, build_pipeline
from harness_llm.replicas.ray.cluster import query_cluster


def planned_pipeline(request: Request, panel: Panel, *, company: bool) -> Pipeline:
    """The pipeline of `request` on this machine or on its cluster.

    Args:
        company: whether the name of the submitter is required.

    Raises:
        ConfigError: a name is missing, or a setting is wrong.
        EnvironmentMissing: the cluster does not answer.
    """
    require_names(request.options, company=company)
    planned = plan_scenarios(check_request(request))
    address = planned.options.ray
    cluster = query_cluster(address, planned.workspace.stage_log("nodes")) if address else None
    return build_pipeline(planned, panel, cluster)
