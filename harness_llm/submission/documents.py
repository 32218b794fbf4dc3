"""What is said of a submission beside its results."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from harness_llm.submission.calibration import Quantization
from harness_llm.submission.datacenter import Requirements
from harness_llm.submission.outputs import Outputs


@dataclass(frozen=True)
class Documents:
    """What is said of a submission beside its results.

    Attributes:
        description: the content of `systems/<system>.json`.
        owed: what a datacenter owes; None elsewhere.
        quantization: by the checkpoint's maker and the engine, from `read_quantization`.
        outputs: accuracy.txt and verdicts, from `official_outputs`; those of the runs are taken where it has none.
    """

    description: Mapping[str, str]
    owed: Requirements | None = None
    quantization: Quantization = field(default_factory=Quantization)
    outputs: Outputs = field(default_factory=dict)
