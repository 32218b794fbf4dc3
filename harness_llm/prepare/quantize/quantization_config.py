"""The `quantization_config` that a recipe writes into config.json, for checks before a checkpoint is quantized.

`quantization_config.json` contains the output of llm-compressor 0.14.0.1 and Quark 0.13 for small checkpoints, without
layer names.
"""

import json
from pathlib import Path
from typing import Any

from harness_llm.prepare.quantize.recipes import Recipe

_FILE = Path(__file__).with_name("quantization_config.json")
_IGNORED = {"llmcompressor": "ignore", "quark": "exclude"}


def written_config(recipe: Recipe) -> dict[str, Any] | None:
    """Return the `quantization_config` of checkpoints made by `recipe`; None for a recipe that is not a default.

    Ignored layers are the recipe's patterns; the tools write layer names.
    """
    content: dict[str, dict[str, Any]] = json.loads(_FILE.read_text())
    if recipe.name not in content:
        return None
    return content[recipe.name] | {_IGNORED[recipe.tool]: list(recipe.ignore)}
