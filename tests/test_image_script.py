"""Steps of setup/image.sh that need no network."""

import os
import stat
import subprocess
from pathlib import Path

from harness_llm.paths import CHECKOUT


def run_aiter_step(site_packages: Path) -> None:
    environment = os.environ | {"PYTHONPATH": str(site_packages)}
    subprocess.run(["sh", "setup/image.sh", "aiter"], cwd=CHECKOUT, env=environment, check=True, timeout=60)


def test_every_user_may_write_to_the_kernel_folders_of_aiter(tmp_path: Path) -> None:
    build = tmp_path / "aiter" / "jit" / "build"
    build.mkdir(parents=True, mode=0o755)
    (tmp_path / "aiter" / "__init__.py").write_text('raise RuntimeError("no GPU to import AITER with")\n')
    kernel = build.parent / "module_norm.so"
    kernel.touch(mode=0o644)
    run_aiter_step(tmp_path)
    assert [stat.S_IMODE(folder.stat().st_mode) for folder in (build, build.parent)] == [0o777, 0o777]
    assert stat.S_IMODE(kernel.stat().st_mode) == 0o644, "a changed file is copied into the image's layer"


def test_image_without_aiter_is_unchanged(tmp_path: Path) -> None:
    run_aiter_step(tmp_path)
    assert list(tmp_path.iterdir()) == []
