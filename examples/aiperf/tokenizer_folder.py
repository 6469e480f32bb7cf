"""Write a model's tokenizer as the folder that aiperf's --tokenizer wants.

python examples/aiperf/tokenizer_folder.py FOLDER [MODEL.gguf]     default: the default model
"""

import json
import sys
from pathlib import Path

from surgetank.engine.model.gguf_file import GgufFile
from surgetank.engine.model.locate import resolve


def write(folder: Path, model: str | None) -> None:
    """tokenizer.json and what transformers wants beside it. Raises ModelError, OSError."""
    files = GgufFile(resolve(model)).tokenizer()
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tokenizer.json").write_text(files.tokenizer_json, "utf-8")
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": files.bos_token,
        "eos_token": files.eos_token,
        "chat_template": files.chat_template,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=2), "utf-8")


if __name__ == "__main__":
    if not 2 <= len(sys.argv) <= 3:
        sys.exit(__doc__)
    write(Path(sys.argv[1]), sys.argv[2] if len(sys.argv) == 3 else None)
