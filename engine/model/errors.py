"""Why a model cannot be served: one sentence that names the file and the reason."""

from pathlib import Path


class ModelError(Exception):
    """A model file or folder that cannot be used. `str()` is the sentence for the operator."""

    def __init__(self, path: str | Path, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.path = Path(path)
        self.reason = reason
