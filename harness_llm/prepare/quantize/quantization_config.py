"""The `quantization_config` that recipes write into config.json, known before a checkpoint is quantized.

`written.json` holds what llm-compressor 0.14.0.1 and Quark 0.13 wrote for small checkpoints, without names of layers.
"""

import json
from pathlib import Path
from typing import Any

from harness_llm.prepare.quantize.recipes import Recipe

_FILE = Path(__file__).with_name("quantization_config.json")
_IGNORED = {"llmcompressor": "ignore", "quark": "exclude"}


def written_config(recipe: Recipe) -> dict[str, Any] | None:
    """The `quantization_config` of checkpoints made by `recipe`; None for a recipe that is no default.

    Layers that stay as they are appear as the recipe's patterns; the tools write their names.
    """
    content: dict[str, dict[str, Any]] = json.loads(_FILE.read_text())
    if recipe.name not in content:
        return None
    return content[recipe.name] | {_IGNORED[recipe.tool]: list(recipe.ignore)}
