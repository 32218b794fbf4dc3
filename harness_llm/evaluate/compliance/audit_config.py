"""audit.config, which makes a run one of a compliance test."""

from harness_llm.rules.rounds import ComplianceTest


def audit_config(test: ComplianceTest) -> str:
    """audit.config, which LoadGen reads after user.conf and lets win."""
    return "".join(f"*.*.{key} = {value}\n" for key, value in test.audit.items())
