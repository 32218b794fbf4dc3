"""Program that resolves engine settings with vLLM's `create_engine_config`; runs as a separate process.

    python -m harness_llm.pipeline.engine_settings.vllm_config CANDIDATES RESULTS

CANDIDATES contains a JSON list of `Candidate`; a list of `Resolution` in the same order is written to RESULTS.
"""

import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import msgspec
import pydantic

from harness_llm.pipeline.engine_settings.resolution import Candidate, Resolution, Violation


def main() -> None:
    """Resolve all candidates in the file."""
    candidates = msgspec.json.decode(Path(sys.argv[1]).read_bytes(), type=list[Candidate])
    results = [_resolve(candidate) for candidate in candidates]
    Path(sys.argv[2]).write_bytes(msgspec.json.encode(results))


def _resolve(candidate: Candidate) -> Resolution:
    os.environ.update(candidate.env)
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "config.json").write_text(json.dumps(candidate.config))
        try:
            return _create(folder, candidate)
        except pydantic.ValidationError as error:
            return Resolution(platform=_use_platform(candidate.platform), violations=_violations(error))
        # Validators of create_engine_config raise ValueError; platforms and backends raise the others.
        except (AssertionError, NotImplementedError, RuntimeError, TypeError, ValueError) as error:
            text = " ".join(str(error).split()) or repr(error)
            return Resolution(platform=_use_platform(candidate.platform), violations=[Violation(found=text)])
        finally:
            for name in candidate.env:
                os.environ.pop(name, None)


def _create(folder: str, candidate: Candidate) -> Resolution:
    platform = _use_platform(candidate.platform)
    from vllm.engine.arg_utils import EngineArgs  # noqa: PLC0415 - after the platform is chosen

    config = EngineArgs(model=folder, **candidate.llm_config).create_engine_config()
    return Resolution(
        platform=platform,
        dtype=str(config.model_config.dtype).removeprefix("torch."),
        kv_cache_dtype=config.cache_config.cache_dtype,
        quantization=config.model_config.quantization or "",
        attention_backend=_attention_backend(config) if platform != NEUTRAL else "",
    )


NEUTRAL = "none"
"""Platform of a vLLM build for other hardware than the candidate's; only platform-independent checks run."""


def _use_platform(wanted: str) -> str:
    """Return `wanted` if vLLM's build and this machine have that platform; otherwise switch to NEUTRAL."""
    from vllm import platforms  # noqa: PLC0415 - loads torch

    current = platforms.current_platform
    names = {"cuda": current.is_cuda, "rocm": current.is_rocm, "cpu": current.is_cpu}
    if wanted in names and names[wanted]():
        return wanted
    if not current.is_unspecified():
        _replace_platform(current, _neutral())
    return NEUTRAL


def _neutral() -> Any:
    """Create a platform without checks and kernels."""
    from vllm.platforms.interface import UnspecifiedPlatform  # noqa: PLC0415 - loads torch

    no_kernels = classmethod(lambda _: None)  # kernels of the CPU build require instructions that this CPU may lack
    return type("NeutralPlatform", (UnspecifiedPlatform,), {"device_type": "cpu", "import_kernels": no_kernels})()


def _replace_platform(old: object, new: object) -> None:
    """Replace the platform in all modules of vLLM that imported it."""
    vars(sys.modules["vllm.platforms"])["_current_platform"] = new
    for module in list(sys.modules.values()):
        names = getattr(module, "__dict__", {})
        if names.get("current_platform") is old:
            names["current_platform"] = new


def _attention_backend(config: Any) -> str:
    """Name of the attention backend that vLLM chooses for the layers of the model."""
    from vllm.config import set_current_vllm_config  # noqa: PLC0415 - loads torch
    from vllm.v1.attention.selector import get_attn_backend  # noqa: PLC0415 - loads torch

    model = config.model_config
    with set_current_vllm_config(config):
        backend = get_attn_backend(
            model.get_head_size(),
            model.dtype,
            config.cache_config.cache_dtype,
            use_mla=model.use_mla,
            has_sink=model.hf_text_config.model_type == "gpt_oss",
            num_heads=model.get_num_attention_heads(config.parallel_config),
        )
    return str(backend.get_name())


def _violations(error: pydantic.ValidationError) -> list[Violation]:
    return [
        Violation(argument=".".join(map(str, item["loc"])), expected=item["msg"], found=str(item["input"])[:200])
        for item in error.errors(include_url=False)
    ]


if __name__ == "__main__":
    main()
