"""Contents of the submission documents."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from harness_llm.submission.calibration import Quantization
from harness_llm.submission.datacenter import Requirements
from harness_llm.submission.outputs import Outputs
from harness_llm.submission.packed_source import PackedSource


@dataclass(frozen=True)
class Documents:
    """Contents of the submission documents.

    Attributes:
        description: content of `systems/<system>.json`.
        requirements: of a datacenter system; None for other systems.
        quantization: from `read_quantization`.
        outputs: accuracy.txt and verdicts, from `official_outputs`; runs without an entry use their own files.
        source: from `packed_source`.
    """

    description: Mapping[str, str]
    requirements: Requirements | None = None
    quantization: Quantization = field(default_factory=Quantization)
    outputs: Outputs = field(default_factory=dict)
    source: PackedSource = field(default_factory=PackedSource)
