"""State of the current run, from the status messages of LoadGen's process. It has no output."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from harness_llm.config.rules import LatencyLimit
from harness_llm.hardware.telemetry.reading import Reading
from harness_llm.pipeline.live.history import History
from harness_llm.pipeline.live.predicted_verdict import DEGRADED, OPEN, Slow, Verdict, predict_verdict
from harness_llm.protocol.messages import ReplicaStatus

LATENCIES = ("TTFT", "TPOT")


@dataclass(frozen=True)
class RunView:
    """A run before it starts.

    Attributes:
        total: samples that LoadGen will issue.
        predicted_s: predicted duration.
        limit: p99 limits, if the scenario has any.
        min_duration_s: of a performance run; None for other tests, whose verdict is not predicted.
    """

    name: str
    total: int
    predicted_s: float
    limit: LatencyLimit | None = None
    min_duration_s: float | None = None


@dataclass(frozen=True)
class Latency:
    """Figures of TTFT or TPOT in milliseconds: of the last queries, and how many of all are above the limit."""

    name: str
    p50_ms: float
    p99_ms: float
    slow: Slow
    limit_ms: float | None


@dataclass
class RunProgress:
    """Progress of the current run; times in seconds.

    Attributes:
        body: the last progress message.
        tokens_per_second: mean of the run, from whole answers.
        predicted_s: duration of the run; after the probe, its prediction.
        replicas: by the last progress message.
        rates: tokens per second of each replica between its last two heartbeats, by name.
        history: tokens per second of all replicas.
        devices: last readings.
        losses: failures and restarts of replicas.
    """

    view: RunView
    began: float = field(default_factory=time.monotonic)
    body: dict[str, Any] = field(default_factory=dict)
    text: str = "attaching"
    tokens_per_second: float = 0.0
    predicted_s: float = 0.0
    replicas: Sequence[ReplicaStatus] = ()
    rates: dict[str, float] = field(default_factory=dict)
    history: History = field(default_factory=History)
    devices: Sequence[Reading] = ()
    losses: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.predicted_s = self.view.predicted_s

    def take(self, body: Mapping[str, Any]) -> None:
        """Take a status message of LoadGen's process, or the monitor's about a replica."""
        if body["event"] == "probed":
            self._take_prediction(body["prediction"], body.get("reason", ""))
        elif body["event"] == "started":
            self.began, self.text = time.monotonic(), "running"
        elif body["event"] == "replica":
            self.losses.append(body["text"])
        elif body["event"] == "progress":
            self._take_progress(body)

    def _take_progress(self, body: Mapping[str, Any]) -> None:
        self.body = dict(body)
        self.tokens_per_second = body["tokens"] / max(self.elapsed, 1e-9)
        self.devices = body.get("devices", ())
        before = {status.name: status for status in self.replicas}
        self.replicas = msgspec.json.decode(body.get("replicas", "[]"), type=list[ReplicaStatus])
        rates = {status.name: self._rate(before.get(status.name, status), status) for status in self.replicas}
        # A new object: the thread of the view may read the old one.
        self.rates = {name: rate for name, rate in rates.items() if rate is not None}
        if self.rates:
            self.history.add(self.elapsed, self.rate)

    def _rate(self, old: ReplicaStatus, new: ReplicaStatus) -> float | None:
        """Return tokens/s since the previous heartbeat, else the last rate; a restarted replica begins at 0."""
        if old.activity and new.activity and new.at > old.at and new.activity.generated >= old.activity.generated:
            return (new.activity.generated - old.activity.generated) / (new.at - old.at)
        return self.rates.get(new.name)

    def _take_prediction(self, prediction: Mapping[str, float] | None, reason: str) -> None:
        if prediction is None:
            self.text = f"probe: no prediction: {reason}"
            return
        self.predicted_s = prediction["run_s"]
        self.text = (
            f"probe: {prediction['samples_per_second']:.4g} samples/s predicted "
            f"({prediction['low']:.4g} to {prediction['high']:.4g}), {prediction['tokens_per_second']:,.0f} tokens/s, "
            f"run of {clock(self.predicted_s)}; {prediction['load_s']:.1f} s of load, {prediction['drain_s']:.1f} s of "
            "drain"
        )

    @property
    def done(self) -> int:
        """Answered samples."""
        return int(self.body.get("done", 0))

    @property
    def unanswered(self) -> int:
        """Queries issued and not answered: in flight or waiting."""
        return int(self.body.get("unanswered", 0))

    @property
    def in_flight(self) -> int:
        """Queries sent to replicas and not answered."""
        return sum(status.in_flight for status in self.replicas)

    @property
    def rate(self) -> float:
        """Tokens per second that all replicas generate."""
        return sum(self.rates.values())

    @property
    def elapsed(self) -> float:
        """Since the measurement started."""
        return time.monotonic() - self.began

    @property
    def remaining(self) -> float:
        """From the rate so far; from the prediction before 5 % of the samples are complete."""
        if self.done < self.view.total / 20:
            return self.predicted_s - self.elapsed
        return self.elapsed * (self.view.total - self.done) / self.done

    @property
    def latencies(self) -> list[Latency]:
        """TTFT and TPOT, where there are first tokens."""
        found = []
        for name in LATENCIES:
            if figures := self.body.get(name.lower()):
                limit_ms = getattr(self.view.limit, name.lower(), None)
                slow = Slow(figures["over"], figures["count"])
                found.append(Latency(name, figures["p50_ms"], figures["p99_ms"], slow, limit_ms))
        return found

    @property
    def verdict(self) -> Verdict | None:
        """The predicted verdict; None for tests that are judged by their answers."""
        view = self.view
        if view.min_duration_s is None:
            return None
        if self.losses:
            return Verdict(DEGRADED, self.losses[0])
        if self.done < view.total / 20:
            return Verdict(OPEN, f"{self.done} of {view.total} samples are complete")
        slow = {latency.name: latency.slow for latency in self.latencies if latency.limit_ms is not None}
        return predict_verdict(slow, view.total, max(self.elapsed + self.remaining, 0), view.min_duration_s)


def clock(seconds: float) -> str:
    """A duration, for example `12:05` or `1:02:05`."""
    minutes, rest = divmod(max(round(seconds), 0), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
