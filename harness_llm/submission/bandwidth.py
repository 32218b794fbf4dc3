"""The network bandwidth that a datacenter system owes its throughput (inference_rules.adoc:1165-1213). Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

from harness_llm.rules.rounds import BenchmarkRules

TOKEN_BYTES = 4  # queries and answers are int32 token ids, without padding
_BITS_PER_GBIT = 1e9


@dataclass(frozen=True)
class MeasuredResult:
    """What one benchmark did in one scenario, and how many token ids the rules count for a query and its answer.

    Attributes:
        ingress_tokens: None where the rules call the size negligible; `egress_tokens` too.
    """

    benchmark: str
    scenario: str
    samples_per_s: float
    ingress_tokens: int | None
    egress_tokens: int | None

    @classmethod
    def of(cls, benchmark: str, scenario: str, samples_per_s: float, rules: BenchmarkRules) -> "MeasuredResult":
        """With the token counts of `rules`."""
        return cls(benchmark, scenario, samples_per_s, rules.ingress_tokens, rules.egress_tokens)


@dataclass(frozen=True)
class Segment:
    """A part of the way between the network and the memory; `gbit_s` in each direction, of all its lanes together."""

    name: str
    gbit_s: float


@dataclass(frozen=True)
class Flow:
    """One direction.

    Attributes:
        required_gbit_s: 0 where the rules ask only for more than nothing.
    """

    required_gbit_s: float
    available_gbit_s: float

    @property
    def sufficient(self) -> bool:
        """Whether the system has what the rules ask for: at least that much, and never nothing."""
        return self.available_gbit_s > 0 and self.available_gbit_s >= self.required_gbit_s


@dataclass(frozen=True)
class Bandwidth:
    """A result against the way through a system; `bottleneck` names the narrowest part of it."""

    result: MeasuredResult
    ingress: Flow
    egress: Flow
    bottleneck: str

    @property
    def sufficient(self) -> bool:
        """Whether both directions are."""
        return self.ingress.sufficient and self.egress.sufficient


def required_gbit_s(samples_per_s: float, tokens: int | None) -> float:
    """Throughput x tokens x bytes of a token, in Gbit/s; 0 for a negligible size (None)."""
    return samples_per_s * (tokens or 0) * TOKEN_BYTES * 8 / _BITS_PER_GBIT


def compare(result: MeasuredResult, segments: Sequence[Segment]) -> Bandwidth:
    """Hold what `result` requires against the narrowest of `segments`, of which there is at least one."""
    narrowest = min(segments, key=lambda segment: segment.gbit_s)

    def flow(tokens: int | None) -> Flow:
        return Flow(required_gbit_s(result.samples_per_s, tokens), narrowest.gbit_s)

    return Bandwidth(result, flow(result.ingress_tokens), flow(result.egress_tokens), narrowest.name)
