from types import SimpleNamespace
from typing import cast

import pytest

from harness_llm.errors import RunFailed
from harness_llm.pipeline.run import ScenarioContext, _require_source
from harness_llm.runs.fingerprint import source_digest


def test_run_whose_source_changed_is_failed() -> None:
    _require_source(cast("ScenarioContext", SimpleNamespace(fingerprint={"harness_llm": source_digest()})))
    with pytest.raises(RunFailed, match="was changed during the run"):
        _require_source(cast("ScenarioContext", SimpleNamespace(fingerprint={"harness_llm": "of yesterday"})))
