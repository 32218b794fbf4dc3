"""Contents of the submission documents."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from harness_llm.runs.record import Run
from harness_llm.submission.calibration import Quantization
from harness_llm.submission.datacenter import Requirements
from harness_llm.submission.outputs import Outputs


@dataclass(frozen=True)
class Documents:
    """Contents of the submission documents.

    Attributes:
        description: content of `systems/<system>.json`.
        requirements: of a datacenter system; None for other systems.
        quantization: from `read_quantization`.
        outputs: accuracy.txt and verdicts, from `official_outputs`; runs without an entry use their own files.
        other_source: from `runs_of_other_source`.
    """

    description: Mapping[str, str]
    requirements: Requirements | None = None
    quantization: Quantization = field(default_factory=Quantization)
    outputs: Outputs = field(default_factory=dict)
    other_source: Sequence[Run] = ()
