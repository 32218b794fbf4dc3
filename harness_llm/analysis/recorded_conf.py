"""The user.conf of a run, as recorded in run.json."""

from harness_llm.runs.record import RunRecord


def recorded_conf(record: RunRecord) -> dict[str, str]:
    """The values of the run's user.conf by name, such as `llama2-70b.Server.target_qps`."""
    lines = str(record.run_facts.get("user_conf", "")).splitlines()
    pairs = (line.partition(" = ") for line in lines if " = " in line)
    return {name: value for name, _, value in pairs}
