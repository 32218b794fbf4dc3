"""Metrics of the current command for Prometheus, on the loopback interface."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from harness_llm.errors import ConfigError
from harness_llm.hardware.telemetry.reading import Reading
from harness_llm.pipeline.live.run_progress import Latency, RunProgress
from harness_llm.pipeline.live.state import LiveState
from harness_llm.protocol.messages import Activity
from harness_llm.replicas.start_progress import StartStatus

ADDRESS = "127.0.0.1"
PREFIX = "harness_llm_"
_MIB = 2**20
_MS = 1000

Values = Iterable[tuple[Sequence[str], float | None]]
"""Values of the labels, and of the metric; None where unknown."""

# Per replica and device: name of the metric, meaning, attribute, factor.
_REPLICA = (
    ("replica_batch_queries", "Queries in the engine's batch.", "running", 1),
    ("replica_queue_queries", "Queries in the engine's queue.", "waiting", 1),
    ("replica_kv_cache_usage_ratio", "Share of the KV cache in use.", "kv_cache_use", 1),
)
_DEVICE = (
    ("device_power_watts", "Power of a device.", "power_w", 1),
    ("device_clock_hertz", "Clock of a device.", "clock_mhz", 1e6),
    ("device_memory_clock_hertz", "Clock of a GPU's memory.", "memory_clock_mhz", 1e6),
    ("device_temperature_celsius", "Temperature of a device.", "temperature_c", 1),
    ("device_memory_used_bytes", "Used memory of a device.", "memory_used_mib", _MIB),
    ("device_utilisation_ratio", "Share of the time in which a device was busy.", "utilisation", 1),
)


def _gauge(name: str, help_: str, values: Values, labels: Sequence[str] = ()) -> Metric:
    family = GaugeMetricFamily(PREFIX + name, help_, labels=labels)
    for own, value in values:
        if value is not None:
            family.add_metric(own, value)
    return family


def _counter(name: str, help_: str, values: Values, labels: Sequence[str] = ()) -> Metric:
    family = CounterMetricFamily(PREFIX + name, help_, labels=labels)
    for own, value in values:
        if value is not None:
            family.add_metric(own, value)
    return family


class LiveCollector(Collector):
    """Reads the state at each request; without requests it costs nothing."""

    def __init__(self, state: LiveState) -> None:
        self._state = state

    def collect(self) -> Iterator[Metric]:
        """Return the metrics of what the command does now."""
        start, run = self._state.start, self._state.run
        finished = [([state], float(count)) for state, count in self._state.finished.items()]
        yield _counter("runs", "Finished runs of this command.", finished, ["state"])
        yield _gauge("run_in_progress", "1 during a run.", [((), float(run is not None))])
        if start:
            yield from _start_metrics(start)
        if run:
            yield from _run_metrics(run)
            yield from _latency_metrics(run.latencies)
            yield from _replica_metrics(run)
            yield from _device_metrics(run.devices)


def _start_metrics(start: StartStatus) -> Iterator[Metric]:
    phases = start.phases.items()
    yield _gauge(
        "process_phase", "Phase of a replica's process.", [((n, p.name), 1.0) for n, p in phases], ["process", "phase"]
    )
    yield _gauge("process_phase_done_ratio", "Progress of it.", [((n,), p.done) for n, p in phases], ["process"])
    yield _gauge("start_seconds", "Duration of the last start of the replica pool.", [((), start.elapsed_s)])


def _run_metrics(run: RunProgress) -> Iterator[Metric]:
    view, body = run.view, run.body
    yield _gauge("run_info", "The current run.", [((view.name,), 1.0)], ["run"])
    yield _gauge("run_elapsed_seconds", "Since the measurement began.", [((), run.elapsed)])
    yield _gauge("run_left_seconds", "Predicted time until the end.", [((), run.remaining)])
    yield _gauge("run_samples", "Samples that LoadGen will issue.", [((), view.total)])
    for name, help_, key in (
        ("queries_issued", "Queries that LoadGen issued in this run.", "issued"),
        ("queries_answered", "Answered queries of this run.", "done"),
        ("output_tokens", "Tokens of the answered queries of this run.", "tokens"),
    ):
        yield _counter(name, help_, [((), body.get(key, 0))])
    yield _gauge("queries_unanswered", "Queries in flight or waiting.", [((), run.unanswered)])
    rate = run.rate if run.rates else None
    yield _gauge("output_tokens_per_second", "Tokens that all replicas generate per second.", [((), rate)])
    if verdict := run.verdict:
        yield _gauge("predicted_verdict", "The verdict by the queries so far.", [((verdict.state,), 1.0)], ["state"])


def _latency_metrics(latencies: Sequence[Latency]) -> Iterator[Metric]:
    quantiles: dict[str, Callable[[Latency], float]] = {"0.5": lambda one: one.p50_ms, "0.99": lambda one: one.p99_ms}
    yield _gauge(
        "latency_seconds",
        "TTFT and TPOT of the last queries.",
        [((one.name.lower(), quantile), read(one) / _MS) for one in latencies for quantile, read in quantiles.items()],
        ["latency", "quantile"],
    )
    limited = [one for one in latencies if one.limit_ms is not None]
    limits = [((one.name.lower(),), (one.limit_ms or 0) / _MS) for one in limited]
    yield _gauge("latency_limit_seconds", "Limit of the 99th percentile.", limits, ["latency"])
    slow = [((one.name.lower(),), one.slow.share) for one in limited]
    yield _gauge("latency_slow_ratio", "Share of the run's queries that are not below the limit.", slow, ["latency"])


def _replica_metrics(run: RunProgress) -> Iterator[Metric]:
    replicas = run.replicas
    in_flight = [((one.name,), float(one.in_flight)) for one in replicas]
    yield _gauge("replica_in_flight_queries", "Queries sent and not answered.", in_flight, ["replica"])
    rates = [((name,), rate) for name, rate in run.rates.items()]
    yield _gauge("replica_output_tokens_per_second", "Tokens generated per second.", rates, ["replica"])
    for name, help_, attribute, factor in _REPLICA:
        values = [((one.name,), _scaled(one.activity, attribute, factor)) for one in replicas]
        yield _gauge(name, help_, values, ["replica"])
    preempted = [((one.name,), _scaled(one.activity, "preemptions", 1)) for one in replicas]
    yield _counter("replica_preemptions", "Preempted sequences since the engine's start.", preempted, ["replica"])


def _device_metrics(devices: Sequence[Reading]) -> Iterator[Metric]:
    for name, help_, attribute, factor in _DEVICE:
        yield _gauge(name, help_, [((one.device,), _scaled(one, attribute, factor)) for one in devices], ["device"])


def _scaled(source: Activity | Reading | None, attribute: str, factor: float) -> float | None:
    value = getattr(source, attribute, None)
    return None if value is None else value * factor


def serve_metrics(state: LiveState, port: int | None) -> AbstractContextManager[None]:
    """Serve /metrics on `port` of the loopback interface during the block; do nothing without a port.

    Raises:
        ConfigError: the port cannot be used.
    """
    return _serving(state, port) if port else nullcontext()


@contextmanager
def _serving(state: LiveState, port: int) -> Iterator[None]:
    registry = CollectorRegistry()
    registry.register(LiveCollector(state))
    try:
        server, thread = start_http_server(port, ADDRESS, registry)
    except (OSError, OverflowError) as error:
        raise ConfigError(
            "the port for the metrics cannot be used", where="--metrics-port", found=str(error)
        ) from error
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
