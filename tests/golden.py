"""Published results: tests/data/golden, and the untrimmed ones where a folder beside the checkout has them."""

from pathlib import Path

import pytest

from harness_llm.paths import CHECKOUT

GOLDEN = Path(__file__).with_name("data") / "golden"
UNTRIMMED = CHECKOUT.parent / "shared" / "golden"

untrimmed = (
    pytest.mark.slow,
    pytest.mark.skipif(not UNTRIMMED.is_dir(), reason="no untrimmed published results in ../shared/golden"),
)
EVERY_GOLDEN = [pytest.param(GOLDEN, id="trimmed"), pytest.param(UNTRIMMED, id="untrimmed", marks=untrimmed)]
