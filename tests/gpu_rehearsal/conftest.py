"""Made-up libraries of the NVIDIA driver, for the CUDA build of vLLM."""

import subprocess
from pathlib import Path

import pytest

HERE = Path(__file__).parent


@pytest.fixture(scope="session")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the stubs of NVML and of the driver."""
    folder = tmp_path_factory.mktemp("libraries")
    for source, library in (("nvml.c", "libnvidia-ml.so.1"), ("cuda.c", "libcuda.so.1")):
        command = ["cc", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-o", folder / library, HERE / source]
        subprocess.run(command, check=True)
    return folder
