"""What setup/containers.yaml says of the containers, per accelerator."""

from functools import cache
from typing import Any, Literal

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
    """Where folders of the machine stand inside."""

    checkout: str
    models: str
    data: str
    locks: str


class Accelerator(_Model):
    """What both containers are made of and may use, on machines with one kind of accelerator.

    Attributes:
        base_image: what the images are built upon.
        pulled_here: whether this project ever had the base image.
        layers: of setup/environments.py, by image; those under `shared` come first in both.
        packages: of the distribution.
        mounts: where folders of the machine stand inside.
        environment: variables inside.
        inherited: variables that are handed on where they are set.
        network: as `docker run --network` knows it.
        security: `docker run --security-opt`.
        capabilities: those that are left of all.
        ulimits: `soft:hard` by name.
        shm_size: of /dev/shm.
        disk_gib: what both images take, the base image among it.
        devices: device files, or folders of them.
        device_groups: files whose owning groups the user inside belongs to.
        gpus: the variable that names a subset of NVIDIA's devices; empty where there are none.
    """

    base_image: str
    pulled_here: bool
    layers: dict[str, tuple[str, ...]]
    packages: tuple[str, ...]
    mounts: Mounts
    environment: dict[str, str]
    inherited: tuple[str, ...]
    network: str
    security: tuple[str, ...]
    capabilities: tuple[str, ...]
    shm_size: str
    disk_gib: float
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
        ConfigError: it is not what this program knows.
    """
    facts = read_yaml(FILE)
    try:
        own = {name: _merge(facts["every"], accelerator) for name, accelerator in facts["accelerators"].items()}
        return Spec.model_validate({**facts, "accelerators": own})
    except (ValidationError, KeyError, TypeError) as error:
        raise ConfigError("the file of the containers is wrong", where=str(FILE), found=str(error)) from error


def _merge(every: dict[str, Any], own: dict[str, Any]) -> dict[str, Any]:
    """`own` added to `every`: lists and tables grow, anything else is replaced."""
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
    """The key of the file for GPU_NAME, or for what is found in this machine where it is empty.

    Raises:
        ConfigError: there is no such GPU, or what is found is not known.
    """
    gpu = gpu or detect_gpu() or NO_ACCELERATOR
    if gpu == NO_ACCELERATOR:
        return NO_ACCELERATOR
    known = load_gpus(Workspace())
    if gpu not in known:
        raise ConfigError(
            f"there is no accelerator {gpu}", where="GPU_NAME", expected=", ".join((*known, NO_ACCELERATOR))
        )
    return known[gpu].platform


def load_accelerator(gpu: str = "") -> tuple[str, Accelerator]:
    """The name and the facts of the accelerator; raises as `accelerator_name` and `load_spec`."""
    name = accelerator_name(gpu)
    return name, load_spec().accelerators[name]


def image_tag(image: ImageName, accelerator: str) -> str:
    """The name of an image that is built here."""
    return f"harness-llm-{image}:{accelerator}"
