"""Rules on the log of a performance run; they are applied only to readable logs."""

from collections.abc import Iterator
from typing import NamedTuple

from harness_llm.checker.findings import Basis, Rule, Violation, advised, forbidden, rejected, rule
from harness_llm.checker.submission_tree import Log

CONF = "check this setting in user.conf"
ANSWER = "answer"
"""Name of the latency limit on complete answers, for benchmarks without limits on TTFT and TPOT."""

_LIMITS = "inference_policies/inference_rules.adoc:264-272; loadgen/mlperf.conf:116-164"
_RELAXED = advised("inference_policies/inference_rules.adoc:362")
"""In open, the submitter chooses and reports the limits; the official checker applies those of Server nevertheless."""


@rule(
    "loadgen-valid",
    forbidden("inference_policies/inference_rules.adoc:139-148; loadgen/results.cc"),
    hint="run it again",
)
def loadgen_valid(log: Log) -> Iterator[Violation]:
    """LoadGen's result is not VALID."""
    if not log.detail.valid:
        reasons = "; ".join(log.detail.invalid_reasons)
        yield Violation(log.path, "result_validity VALID", f"{log.detail['result_validity']} {reasons}".strip())


@rule("early-stopping", rejected("performance_check.py, latency_check"), hint="lower target_qps, or run longer")
def early_stopping(log: Log) -> Iterator[Violation]:
    """Early stopping failed: too many queries exceed the latency limit."""
    if log.detail.scenario != "Offline" and not log.detail.early_stopping_met:
        reasons = (log.detail.get(f"early_stopping_{kind}_result", "") for kind in ("ttft", "tpot"))
        yield Violation(log.path, "early_stopping_met true", " ".join(["false", *"".join(map(str, reasons)).split()]))


@rule("seeds", rejected("performance_check.py, seeds_check"), hint="run again with the LoadGen of the round")
def seeds(log: Log) -> Iterator[Violation]:
    """A random seed differs from the seed of the round."""
    if log.result.of_another_round:
        return
    found = log.detail.seeds
    for name, seed in log.result.round.loadgen.seeds.items():
        if found[name] != seed:
            yield Violation(log.path, f"{name} {seed}", str(found[name]))


@rule("min-duration", rejected("performance_check.py, min_duration_check"), hint=CONF, scale=True)
def min_duration(log: Log) -> Iterator[Violation]:
    """The minimum duration setting is shorter than the rules require."""
    least = log.result.round.min_duration_ms
    if log.detail.min_duration_ms < least:
        yield Violation(log.path, f"min_duration of at least {least} ms", f"{log.detail.min_duration_ms} ms")


@rule(
    "token-latencies",
    rejected("performance_check.py, llm_check"),
    hint="use the model name that LoadGen's mlperf.conf has",
)
def token_latencies(log: Log) -> Iterator[Violation]:
    """LoadGen did not count tokens."""
    if log.result.rules.token_latencies and not log.detail.use_token_latencies:
        yield Violation(log.path, "use_token_latencies true", "false")


@rule("metric", rejected("performance_check.py, get_performance_metric_check; main.py:226-232"), hint="run it again")
def metric(log: Log) -> Iterator[Violation]:
    """The log does not contain the metric of the result."""
    keys = log.metric_keys
    values = {key: log.detail.number(key) for key in keys}
    if keys and not values[keys[-1]]:
        yield Violation(log.path, f"{keys[-1]} above 0", str(values[keys[-1]]))


@rule("min-query-count", rejected("performance_check.py, min_query_count_check"), hint=CONF)
def min_query_count(log: Log) -> Iterator[Violation]:
    """The minimum query count setting of the Offline run is too small."""
    least = log.result.round.offline_min_queries
    if log.detail.scenario == "Offline" and log.detail.min_query_count < least:
        yield Violation(log.path, f"a min_query_count of at least {least}", str(log.detail.min_query_count))


@rule("equal-issue", advised("loadgen/mlperf.conf:66-81"), hint="use the model name that LoadGen's mlperf.conf has")
def equal_issue(log: Log) -> Iterator[Violation]:
    """LoadGen did not issue all samples equally often."""
    if not log.detail.sample_concatenate_permutation:
        yield Violation(log.path, "sample_concatenate_permutation true", "false")


@rule("network-sut", rejected("performance_check.py, network_check"))
def network_sut(log: Log) -> Iterator[Violation]:
    """The name of the SUT does not mark it as a network SUT."""
    networked = str(log.result.system.field("is_network")).lower() == "true"
    part = log.result.round.system.network_sut
    if networked and part not in str(log.detail["sut_name"]):
        yield Violation(log.path, f"a sut_name with {part}", str(log.detail["sut_name"]))


@rule("performance-samples", rejected("performance_check.py, performance_sample_count_check"), hint=CONF, scale=True)
def performance_samples(log: Log) -> Iterator[Violation]:
    """The performance run used too few samples."""
    least, found = log.result.rules.samples, log.detail.performance_sample_count
    if found < least:
        yield Violation(log.path, f"a performance_sample_count of at least {least}", str(found))


@rule("samples-per-query", rejected("performance_check.py, min_query_count_check"), hint="raise target_qps", scale=True)
def samples_per_query(log: Log) -> Iterator[Violation]:
    """The Offline query contains too few samples."""
    least = log.result.rules.offline_samples or 0
    if not (log.result.submitter.enforced and log.detail.scenario == "Offline"):
        return
    if (found := log.detail.samples_per_query) < least:
        inherited = forbidden("inference_policies/inference_rules.adoc:142, 495")  # the checker checks only closed
        basis = None if log.result.submitter.division == "closed" else inherited
        yield Violation(log.path, f"at least {least} samples", str(found), basis=basis)


@rule("latency-settings", forbidden(_LIMITS), hint="Interactive has a separate model name in LoadGen")
def latency_settings(log: Log) -> Iterator[Violation]:
    """LoadGen used other latency limits than those of the scenario."""
    for limit in _limits(log):
        if limit.used != limit.bound:
            expected = f"a {limit.name} limit of {limit.bound:g} ms"
            basis = None if log.result.submitter.enforced else _RELAXED
            yield Violation(log.path, expected, f"{limit.used} ms", basis=basis)


@rule(
    "target-latency",
    rejected("performance_check.py, latency_check; constants.py, latency-constraint"),
    hint="delete target_latency from user.conf and run again",
)
def target_latency(log: Log) -> Iterator[Violation]:
    """LoadGen's target_latency is longer than the official checker accepts."""
    most = log.result.rules.checker_target_latency_ms
    if log.detail.scenario == "Server" and most is not None and (found := log.detail.target_latency_ms) > most:
        yield Violation(log.path, f"target_latency of at most {most:g} ms", f"{found:g} ms")


@rule("latency", rejected("performance_check.py, llm_check"), hint="lower target_qps and run again")
def latency(log: Log) -> Iterator[Violation]:
    """The 99th percentile of a latency is not below the limit of the scenario."""
    for limit in _limits(log) if log.detail.scenario != "Offline" else ():
        if limit.p99 is None or limit.p99 >= limit.bound:
            expected = f"p99 {limit.name} below {limit.bound:g} ms"
            yield Violation(log.path, expected, f"{limit.p99} ms", basis=_latency_basis(log, limit))


def _latency_basis(log: Log, limit: "_Limit") -> Basis | None:
    """The official checker compares TTFT and TPOT with the limits of LoadGen's scenario: Server for Interactive."""
    server = log.result.rules.latency_ms.get(log.detail.scenario)
    if limit.name != ANSWER and (limit.p99 is None or (server and limit.p99 >= getattr(server, limit.name))):
        return None
    return forbidden(_LIMITS) if log.result.submitter.enforced else _RELAXED


@rule(
    "checker-gap",
    rejected("performance_check.py, llm_check"),
    hint="cannot be corrected in the result; the checker of the round's tag may accept it",
)
def checker_gap(log: Log) -> Iterator[Violation]:
    """Today's official checker lacks a constant for the benchmark and rejects every result of it."""
    rules, scenario = log.result.rules, log.detail.scenario
    if scenario == "Offline" and rules.offline_samples is None:
        basis = rejected("performance_check.py, min_query_count_check; constants.py:1506-1537")
        yield Violation(log.path, "a minimum of samples per query for this benchmark", "none", basis=basis)
    if scenario == "Server" and rules.token_latencies and scenario not in rules.latency_ms:
        yield Violation(log.path, "latency limits of Server for this benchmark, constants.py:1736-1802", "none")


class _Limit(NamedTuple):
    """Latency limit of the folder's scenario, the limit that LoadGen used, and the measured percentile; in ms."""

    name: str
    bound: float
    used: float | None
    p99: float | None


def _limits(log: Log) -> Iterator[_Limit]:
    rules, scenario, detail = log.result.rules, log.result.scenario, log.detail
    if tokens := rules.latency_ms.get(scenario):
        yield _Limit("ttft", tokens.ttft, detail.requested_ttft_ms, detail.p99_ttft_ms)
        yield _Limit("tpot", tokens.tpot, detail.requested_tpot_ms, detail.p99_tpot_ms)
    if answer := rules.answer_latency_ms.get(scenario):
        yield _Limit(ANSWER, answer, detail.target_latency_ms, detail.latency_percentiles_ms.get(99))


LOG: tuple[Rule[Log], ...] = (
    loadgen_valid,
    early_stopping,
    seeds,
    min_duration,
    equal_issue,
    network_sut,
    token_latencies,
    metric,
    min_query_count,
    performance_samples,
    samples_per_query,
    latency_settings,
    target_latency,
    latency,
    checker_gap,
)
