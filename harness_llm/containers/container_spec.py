"""Read setup/containers.yaml: the specification of the containers per accelerator."""

from collections.abc import Callable
from functools import cache
from typing import Any, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from harness_llm.errors import ConfigError
from harness_llm.fileio import read_yaml
from harness_llm.hardware.gpus import NO_ACCELERATOR, detect_gpu, load_gpus
from harness_llm.paths import CHECKOUT, Workspace

ImageName = Literal["model_and_dataset", "submission"]
FILE = CHECKOUT / "setup" / "containers.yaml"
SHARED = "shared"


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Mounts(_Model):
    """Mount points in the container."""

    checkout: str
    models: str
    data: str
    locks: str


class Accelerator(_Model):
    """Content and permissions of both containers, for one kind of accelerator.

    Attributes:
        base_image: base of the images.
        pulled_here: whether this project has tested the base image.
        layers: layers of setup/environments.py by image; `shared` layers are installed first in both.
        packages: packages of the distribution.
        mounts: mount points in the container.
        environment: environment variables.
        inherited: variables to pass if they are set, in addition to engine variables.
        paths: variables with a file or folder that is mounted read-only at the same path.
        secret_variables: variables to pass in a private file if they are set.
        network: `docker run --network`.
        security: `docker run --security-opt`.
        capabilities: capabilities to keep.
        ulimits: `soft:hard` by name.
        shm_size: size of /dev/shm.
        disk_gib: size of both images including the base image.
        second_image_gib: size of the second image without the layers of the first one.
        devices: device files, or folders of them.
        device_groups: files whose groups the container's user joins.
        gpus: variable with a subset of NVIDIA's devices; empty for other accelerators.
    """

    base_image: str
    pulled_here: bool
    layers: dict[str, tuple[str, ...]]
    packages: tuple[str, ...]
    mounts: Mounts
    environment: dict[str, str]
    inherited: tuple[str, ...]
    paths: tuple[str, ...]
    secret_variables: tuple[str, ...]
    network: str
    security: tuple[str, ...]
    capabilities: tuple[str, ...]
    shm_size: str
    disk_gib: float
    second_image_gib: float
    devices: tuple[str, ...] = ()
    device_groups: tuple[str, ...] = ()
    gpus: str = ""
    ulimits: dict[str, str] = {}


class Spec(_Model):
    """The whole file."""

    every: dict[str, Any]
    accelerators: dict[str, Accelerator] = Field(min_length=1)


@cache
def load_spec() -> Spec:
    """Read the file.

    Raises:
        ConfigError: invalid file.
    """
    facts = read_yaml(FILE)
    try:
        own = {name: _merge(facts["every"], accelerator) for name, accelerator in facts["accelerators"].items()}
        return Spec.model_validate({**facts, "accelerators": own})
    except (ValidationError, KeyError, TypeError) as error:
        raise ConfigError("invalid container specification", where=str(FILE), found=str(error)) from error


def _merge(every: dict[str, Any], own: dict[str, Any]) -> dict[str, Any]:
    """Merge `own` into `every`: extend lists and tables, replace other values."""
    merged = dict(every)
    for key, value in own.items():
        common = every.get(key)
        if isinstance(common, list):
            merged[key] = [*common, *value]
        elif isinstance(common, dict):
            merged[key] = {**common, **value}
        else:
            merged[key] = value
    return merged


def accelerator_name(gpu: str = "") -> str:
    """Return the file's key for GPU_NAME; empty: for the detected accelerator.

    Raises:
        ConfigError: unknown GPU.
    """
    gpu = gpu or detect_gpu() or NO_ACCELERATOR
    if gpu == NO_ACCELERATOR:
        return NO_ACCELERATOR
    known = load_gpus(Workspace())
    if gpu not in known:
        raise ConfigError(f"unknown accelerator {gpu}", where="GPU_NAME", expected=", ".join((*known, NO_ACCELERATOR)))
    return known[gpu].platform


def load_accelerator(gpu: str = "") -> tuple[str, Accelerator]:
    """Return name and specification of the accelerator; raises as `accelerator_name` and `load_spec`."""
    name = accelerator_name(gpu)
    return name, load_spec().accelerators[name]


def required_gib(name: str, accelerator: Accelerator, has: Callable[[str], bool]) -> float:
    """Return the disk space that the missing images of the accelerator `name` require; `has` finds an image by tag."""
    existing = sum(has(image_tag(image, name)) for image in get_args(ImageName))
    return (accelerator.disk_gib, accelerator.second_image_gib, 0.0)[existing]


def image_tag(image: ImageName, accelerator: str) -> str:
    """Return the name of an image."""
    return f"harness-llm-{image}:{accelerator}"
