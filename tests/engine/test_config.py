"""The engine's settings: an error names the key, the value and what is allowed."""

from pathlib import Path

import pytest
from pydantic import ValidationError

from surgetank.engine.config import EngineConfig


@pytest.mark.parametrize(
    ("settings", "parts"),
    [
        ({"block_size": 7}, ["block_size", "greater than or equal to 8", "input_value=7"]),
        ({"block_size": 257}, ["block_size", "less than or equal to 256"]),
        ({"kv_blocks": 0}, ["kv_blocks", "greater than or equal to 1"]),
        ({"kv_spare": float("nan")}, ["kv_spare"]),
        ({"device": "tpu"}, ["device", "'auto', 'cpu' or 'cuda'"]),
        ({"max_num_seqs": "10s"}, ["max_num_seqs", "input_value='10s'"]),
        ({"max_seqs": 5}, ["max_seqs", "Extra inputs are not permitted"]),
        ({"kv_blocks": 5, "kv_bytes": 9}, ["kv_blocks is 5 and kv_bytes is 9; allowed: only one"]),
        (
            {"max_batch_tokens": 32},
            ["max_batch_tokens is 32; allowed: more than max_num_seqs (32)"],
        ),
    ],
)
def test_what_is_not_allowed_is_told(settings: dict[str, object], parts: list[str]) -> None:
    with pytest.raises(ValidationError) as error:
        EngineConfig.model_validate(settings)
    for part in parts:
        assert part in str(error.value)


def test_the_socket_is_below_a_folder_of_this_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", "/run/user/7")
    assert EngineConfig().socket == Path("/run/user/7/surgetank/engine.sock")
    monkeypatch.delenv("XDG_RUNTIME_DIR")
    assert EngineConfig().socket.name == "engine.sock"
    assert "surgetank-" in EngineConfig().socket.parent.name
