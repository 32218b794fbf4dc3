"""Every recipe on every architecture: the quantized tensors, and that the pinned vLLM loads each by name."""

import re
import sys
from pathlib import Path
from typing import Any

import pytest
from safetensors import safe_open
from served_checkpoints import RECIPES, Case, has_tool, loaded, quantized

from harness_llm.config.benchmark import Sampling
from harness_llm.config.checkpoint import checkpoint_files, weight_files
from harness_llm.prepare.quantize.quantize import PROGRAMS
from harness_llm.replicas.engines.engine import build_engine

pytestmark = pytest.mark.slow

# How the tensors of a quantized weight are stored: formats of 4 bits pack two numbers into a byte.
STORED = {"fp8": "F8_E4M3", "mxfp4": "U8", "nvfp4": "U8"}
# Weights with two dimensions that stay in 16 bits: looked up, or the router's.
KEPT = re.compile(r"(embed_tokens|lm_head|gate)\.weight$")
# Parameters that vLLM sets itself: scales of queries, points that symmetric formats do not use, and the scales of a KV
# cache that the recipe does not calibrate.
UNSET = re.compile(r"\.(q_scale|prob_scale|[qkv]_zero_point)$")
KV_SCALES = re.compile(r"\.[kv]_scale$")
CASES = [pytest.param(case, id="-".join(case)) for case in RECIPES]
# vLLM's CPU build has no kernel for formats of 4 bits: tests/gpu_rehearsal loads NVFP4; MXFP4 needs ROCm.
LOADED_ON_CPU = [pytest.param(case, id="-".join(case)) for case in RECIPES if RECIPES[case].weights == "fp8"]
MXFP4 = [pytest.param(case, id="-".join(case)) for case in RECIPES if RECIPES[case].weights == "mxfp4"]


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A tiny checkpoint of each architecture as it was published."""
    import tiny_checkpoints  # noqa: PLC0415 - loads torch

    folder = tmp_path_factory.mktemp("published")
    return {name: tiny_checkpoints.make(name, folder / name) for name in ("gptj", *{case[0] for case in RECIPES})}


@pytest.fixture(scope="module")
def served(published: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> dict[Case, Path]:
    return quantized(RECIPES, published, tmp_path_factory.mktemp("served"))


@pytest.fixture(scope="module")
def reports(published: dict[str, Path], served: dict[Case, Path]) -> dict[Path, dict[str, Any]]:
    own = [folder for case, folder in served.items() if RECIPES[case].weights != "nvfp4"]
    return loaded(Path(sys.executable), [published["gptj"], *own])


@pytest.fixture(autouse=True)
def _skip_without_tool(request: pytest.FixtureRequest) -> None:
    case = getattr(request.node, "callspec", None) and request.node.callspec.params.get("case")
    if case and not has_tool(case):
        tool = RECIPES[case].tool
        pytest.skip(f"the environment of {tool} is missing: make {PROGRAMS[tool].target}")


@pytest.mark.parametrize("case", CASES)
def test_every_linear_and_expert_weight_is_quantized(case: Case, served: dict[Case, Path]) -> None:
    import tiny_checkpoints  # noqa: PLC0415 - loads torch

    weights: dict[str, str] = {}
    for file in weight_files(served[case]):
        with safe_open(file, "pt") as tensors:
            slices = {name: tensors.get_slice(name) for name in tensors.keys()}  # noqa: SIM118 - no mapping
        weights |= {name: own.get_dtype() for name, own in slices.items() if len(own.get_shape()) > 1}
    linear = {name: dtype for name, dtype in weights.items() if not (KEPT.search(name) or name.endswith("_scale"))}
    per_layer = 4 + 3 * (tiny_checkpoints.EXPERTS if case[0] == "mixtral" else 1)
    assert len(linear) == tiny_checkpoints.LAYERS * per_layer
    assert set(linear.values()) == {STORED[RECIPES[case].weights]}


@pytest.mark.parametrize("case", LOADED_ON_CPU)
def test_vllm_loads_every_tensor_of_a_quantized_checkpoint(
    case: Case, served: dict[Case, Path], reports: dict[Path, dict[str, Any]]
) -> None:
    report = reports[served[case]]
    assert (report["error"], report["ignored"]) == ("", [])
    empty = [name for name in report["empty"] if not UNSET.search(name)]
    assert [name for name in empty if RECIPES[case].kv_cache or not KV_SCALES.search(name)] == []


@pytest.mark.parametrize("case", MXFP4)
def test_vllm_reads_the_configuration_of_an_mxfp4_checkpoint(
    case: Case, served: dict[Case, Path], reports: dict[Path, dict[str, Any]]
) -> None:
    assert "Failed to find a kernel" in reports[served[case]]["error"]


def test_vllm_loads_every_tensor_of_gptj_from_pytorch_files(
    published: dict[str, Path], reports: dict[Path, dict[str, Any]]
) -> None:
    report = reports[published["gptj"]]
    assert (report["architectures"], report["error"], report["ignored"]) == (["GPTJForCausalLM"], "", [])
    assert report["empty"] == []


def test_transformers_engine_loads_gptj_from_pytorch_files(published: dict[str, Path]) -> None:
    engine = build_engine("transformers", str(published["gptj"]), {"max_num_seqs": 1})
    engine.configure(Sampling(temperature=0.0, min_tokens=4, max_tokens=4, stop_token_ids=(0,)), stream=False)
    engine.add(0, [1, 2, 3])
    assert [len(answer) for _, answer in engine.step().finished] == [4]


def test_digest_of_a_checkpoint_in_pytorch_files_covers_its_weights(published: dict[str, Path]) -> None:
    assert [name for name in checkpoint_files(published["gptj"]) if name.endswith(".bin")] == [
        "pytorch_model-00001-of-00002.bin",
        "pytorch_model-00002-of-00002.bin",
    ]
