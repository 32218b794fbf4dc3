"""Program: load checkpoints into vLLM's model classes, and report which tensors and parameters were loaded.

Usage: python load_checkpoints.py FOLDER ...; standard output is one JSON object, by folder.
"""

import json
import os
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from vllm.config import VllmConfig, set_current_vllm_config
from vllm.distributed import destroy_model_parallel, init_distributed_environment, initialize_model_parallel
from vllm.engine.arg_utils import EngineArgs
from vllm.model_executor.model_loader.utils import initialize_model
from vllm.model_executor.model_loader.weight_utils import default_weight_loader
from vllm.platforms import current_platform
from vllm.utils.torch_utils import set_default_torch_dtype

from harness_llm.config.checkpoint import weight_files


class Loading:
    """Counts which tensor of the checkpoint reaches which parameter."""

    def __init__(self) -> None:
        self.tensors: dict[int, str] = {}  # by address of the storage: loaders get views
        self.uses: dict[str, int] = defaultdict(int)
        self.filled: set[str] = set()
        self._kept: list[torch.Tensor] = []

    def watch(self, name: str, parameter: torch.nn.Parameter) -> None:
        """Note every tensor that is loaded into `parameter`."""
        load = getattr(parameter, "weight_loader", default_weight_loader)

        def noted(*arguments: Any, **named: Any) -> Any:
            tensor = named.get("loaded_weight", arguments[1] if len(arguments) > 1 else None)
            self.uses[self.tensors[tensor.untyped_storage().data_ptr()]] += 1
            self.filled.add(name)
            return load(*arguments, **named)

        # vLLM's own parameter classes have a property without a setter.
        attribute = "_weight_loader" if isinstance(getattr(type(parameter), "weight_loader", None), property) else None
        setattr(parameter, attribute or "weight_loader", noted)

    def weights(self, folder: Path) -> Iterator[tuple[str, torch.Tensor]]:
        """The tensors of a checkpoint, each in a storage of its own."""
        for file in weight_files(folder):
            read = load_file(file) if file.suffix == ".safetensors" else torch.load(file, weights_only=True)
            for name, tensor in read.items():
                own = tensor.clone()
                self._kept.append(own)
                self.tensors[own.untyped_storage().data_ptr()] = name
                yield name, own


def load(config: VllmConfig, folder: Path) -> dict[str, Any]:
    """Build the model of `folder` and load its tensors."""
    loading, parameters, error = Loading(), {}, ""
    try:
        with set_current_vllm_config(config), set_default_torch_dtype(config.model_config.dtype):
            model = initialize_model(config)
        parameters = dict(model.named_parameters())
        for name, parameter in parameters.items():
            loading.watch(name, parameter)
        model.load_weights(loading.weights(folder))
    except (ValueError, KeyError) as refused:
        error = str(refused)
    return {
        "architectures": config.model_config.architectures,
        "error": error,
        "ignored": sorted(name for name in loading.tensors.values() if not loading.uses[name]),
        "empty": sorted(parameters.keys() - loading.filled),
        "dtypes": {name: str(parameter.dtype).removeprefix("torch.") for name, parameter in parameters.items()},
    }


def main() -> None:
    # The CUDA build with the stub of NVML: the one fact of a device that it asks the driver for.
    type(current_platform).num_compute_units = classmethod(lambda *_: 132)
    with tempfile.TemporaryDirectory() as scratch:
        report = {}
        for folder in sys.argv[1:]:
            sizes = {"max_model_len": 128, "max_num_seqs": 8}
            config = EngineArgs(model=folder, skip_tokenizer_init=True, **sizes).create_engine_config()
            with set_current_vllm_config(config):
                init_distributed_environment(1, 0, f"file://{scratch}/store", 0, "gloo")
                initialize_model_parallel()  # experts have a group of their own
            report[folder] = load(config, Path(folder))
            destroy_model_parallel()
        os.write(1, json.dumps(report).encode())


if __name__ == "__main__":
    main()
