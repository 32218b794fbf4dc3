"""Rules of MLPerf Inference: one YAML file per round, and the module that reads them."""

from harness_llm.config.rules.rounds import (
    BenchmarkRules,
    ComplianceTest,
    LatencyLimit,
    Round,
    Speculation,
    load_round,
    round_names,
)

__all__ = ["BenchmarkRules", "ComplianceTest", "LatencyLimit", "Round", "Speculation", "load_round", "round_names"]
