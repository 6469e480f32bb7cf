"""Presets: each loads, contradicts nothing, says why, is weaker than what the user says."""

from pathlib import Path

import pytest

from surgetank.admission.lint import lint
from surgetank.control.cli.run import PRESET_NAMES
from surgetank.control.config import Config
from surgetank.control.presets import PRESETS, markdown
from surgetank.control.reference import leaves
from surgetank.control.sources import from_assignment, load

PAGE = Path(__file__).parents[2] / "docs" / "presets.md"


def test_the_command_line_knows_them_all() -> None:
    assert tuple(PRESETS) == PRESET_NAMES


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_loads_and_its_settings_go_together(name: str) -> None:
    config = load(Config, preset=PRESETS[name].given(name))
    assert lint(config.gate, config.slo) == []
    assert config.engine.tpot_target == config.slo.tpot
    assert config != Config()


@pytest.mark.parametrize("name", PRESETS)
def test_every_choice_differs_from_the_default_and_says_why(name: str) -> None:
    defaults = {key: field.default for key, field in leaves(Config)}
    keys = [choice.key for choice in PRESETS[name].choices]
    assert len(set(keys)) == len(keys)
    for choice in PRESETS[name].choices:
        assert choice.value != defaults[choice.key], choice.key
        assert len(choice.why) > 8
    assert {"slo.ttft", "slo.tpot", "gate.queue_requests", "gate.laws.patience_batch"} <= set(keys)


def test_what_the_user_says_is_stronger(tmp_path: Path) -> None:
    file = tmp_path / "surgetank.toml"
    file.write_text("[gate]\nqueue_wait = 4.0\nmax_n = 3\n")
    flags = [from_assignment(Config, "gate.max_n=2")]
    config = load(Config, preset=PRESETS["chat"].given("chat"), file=file, flags=flags)
    assert (config.gate.queue_requests, config.gate.queue_wait, config.gate.max_n) == (128, 4.0, 2)


def test_the_page_is_current() -> None:
    again = "surgetank docs presets --out docs/presets.md"
    assert PAGE.read_text("utf-8") == markdown(), f"run: {again}"
