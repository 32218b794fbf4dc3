"""Network bandwidth that the rules require for a datacenter result (inference_rules.adoc:1165-1213)."""

from collections.abc import Sequence
from dataclasses import dataclass

from harness_llm.config.rules.rounds import BenchmarkRules

TOKEN_BYTES = 4  # queries and answers are int32 token ids, without padding
_BITS_PER_GBIT = 1e9


@dataclass(frozen=True)
class MeasuredResult:
    """Throughput of one benchmark and scenario, and token counts of a query and an answer by the rules.

    Attributes:
        ingress_tokens: tokens of a query; None if the rules call its size negligible.
        egress_tokens: tokens of an answer; None likewise.
    """

    benchmark: str
    scenario: str
    samples_per_s: float
    ingress_tokens: int | None
    egress_tokens: int | None

    @classmethod
    def of(cls, benchmark: str, scenario: str, samples_per_s: float, rules: BenchmarkRules) -> "MeasuredResult":
        """Create a result with the token counts of `rules`."""
        return cls(benchmark, scenario, samples_per_s, rules.ingress_tokens, rules.egress_tokens)


@dataclass(frozen=True)
class Segment:
    """A segment of the path from the network to the accelerators; `gbit_s` per direction, all links together."""

    name: str
    gbit_s: float


@dataclass(frozen=True)
class Flow:
    """Required and available bandwidth in one direction.

    Attributes:
        required_gbit_s: 0 for a negligible size, which requires any bandwidth above 0.
    """

    required_gbit_s: float
    available_gbit_s: float

    @property
    def sufficient(self) -> bool:
        """Whether the available bandwidth is above 0 and at least the required one."""
        return self.available_gbit_s > 0 and self.available_gbit_s >= self.required_gbit_s


@dataclass(frozen=True)
class Bandwidth:
    """Bandwidth check of one result; `bottleneck` is the name of the narrowest segment."""

    result: MeasuredResult
    ingress: Flow
    egress: Flow
    bottleneck: str

    @property
    def sufficient(self) -> bool:
        """Whether both directions are sufficient."""
        return self.ingress.sufficient and self.egress.sufficient


def required_gbit_s(samples_per_s: float, tokens: int | None) -> float:
    """Throughput x tokens x bytes per token, in Gbit/s; 0 for a negligible size (None)."""
    return samples_per_s * (tokens or 0) * TOKEN_BYTES * 8 / _BITS_PER_GBIT


def compare(result: MeasuredResult, segments: Sequence[Segment]) -> Bandwidth:
    """Compare the bandwidth that `result` requires with the narrowest of `segments` (at least one)."""
    narrowest = min(segments, key=lambda segment: segment.gbit_s)

    def flow(tokens: int | None) -> Flow:
        return Flow(required_gbit_s(result.samples_per_s, tokens), narrowest.gbit_s)

    return Bandwidth(result, flow(result.ingress_tokens), flow(result.egress_tokens), narrowest.name)
