"""Load a model from a GGUF file or a Hugging Face folder onto a device."""

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import torch

from surgetank.engine.kernels.attention import AttentionBackend
from surgetank.engine.kernels.linear import LinearBackend, best_linear
from surgetank.engine.kernels.torch_attention import TorchAttention
from surgetank.engine.model.config import ModelConfig, weight_shapes
from surgetank.engine.model.errors import ModelError
from surgetank.engine.model.gguf_file import GgufFile
from surgetank.engine.model.hf_folder import HfFolder
from surgetank.engine.model.llama import LlamaModel
from surgetank.engine.model.tokenizer_files import TokenizerFiles


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A model ready to run, and what the door needs to know of it."""

    model: LlamaModel
    config: ModelConfig
    tokenizer: TokenizerFiles
    name: str


class Checkpoint(Protocol):
    """A model on disk. Its methods raise ModelError when it does not hold what it should."""

    path: Path
    name: str
    config: ModelConfig

    def tensor(self, name: str) -> torch.Tensor:
        """One weight by its Hugging Face name, as floating point on the CPU."""

    def tokenizer(self) -> TokenizerFiles:
        """The text side of the model."""


def open_checkpoint(path: Path) -> Checkpoint:
    """A folder is read as Hugging Face writes it, a file as GGUF."""
    if not path.exists():
        raise ModelError(path, "no such file or folder")
    return HfFolder(path) if path.is_dir() else GgufFile(path)


def load(
    path: str | Path,
    device: torch.device,
    dtype: torch.dtype,
    attention: AttentionBackend | None = None,
    linear: LinearBackend | None = None,
) -> LoadedModel:
    """Read, check and place a whole model. Raises ModelError."""
    checkpoint = open_checkpoint(Path(path))
    tokenizer = checkpoint.tokenizer()
    shapes = weight_shapes(checkpoint.config)

    def weights(name: str) -> torch.Tensor:
        tensor = checkpoint.tensor(name)
        if tuple(tensor.shape) != shapes[name]:
            wanted, found = list(shapes[name]), list(tensor.shape)
            raise ModelError(
                checkpoint.path, f"tensor {name} has shape {found}; its config asks for {wanted}"
            )
        return tensor.to(device=device, dtype=dtype)

    with torch.inference_mode():
        model = LlamaModel(
            checkpoint.config,
            weights,
            attention or TorchAttention(),
            linear or best_linear(device, dtype),
        )
    return LoadedModel(model, checkpoint.config, tokenizer, checkpoint.name)
