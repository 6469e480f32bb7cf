"""Settings from file, environment and flags: who wins, and what each mistake says."""

from pathlib import Path
from typing import Literal

import pytest
from pydantic import BaseModel, ConfigDict, Field

from surgetank.control.sources import ConfigError, Given, from_assignment, from_text, load


class Gate(BaseModel):
    """Part of a test model."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    queue: int = Field(default=256, ge=1, le=1000)
    wait: float = Field(default=30.0, gt=0, le=60)
    slack: float = Field(default=1.0, gt=0)
    mode: Literal["fcfs", "priority"] = "fcfs"
    open: bool = False
    path: Path | None = None
    names: tuple[str, ...] = ()


class Engine(BaseModel):
    """One table of a list."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    url: str = Field(pattern="^http:")
    slots: int | None = Field(default=None, ge=1)


class Whole(BaseModel):
    """A test model with one section, and a list of tables."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    gate: Gate = Gate()
    engines: tuple[Engine, ...] = ()


def test_defaults_hold_when_nothing_is_given() -> None:
    assert load(Whole) == Whole()


def test_later_sources_win(tmp_path: Path) -> None:
    file = tmp_path / "surgetank.toml"
    file.write_text("[gate]\nqueue = 10\nwait = 1\nmode = 'priority'\nnames = ['a', 'b']\n")
    env = {"SURGETANK_GATE__QUEUE": "20", "SURGETANK_GATE__WAIT": "2.5", "HOME": "/root"}
    whole = load(Whole, file=file, env=env, flags=[from_assignment(Whole, "gate.queue=30")])
    assert whole.gate.queue == 30
    assert whole.gate.wait == 2.5
    assert whole.gate.mode == "priority"
    assert whole.gate.names == ("a", "b")


def test_text_is_read_as_the_setting_needs_it() -> None:
    texts = {"path": "12", "open": "true", "names": '["x"]', "mode": "fcfs"}
    flags = [from_text(Whole, f"gate.{key}", text, "--set") for key, text in texts.items()]
    gate = load(Whole, flags=flags).gate
    assert (gate.path, gate.open, gate.names) == (Path("12"), True, ("x",))
    cleared = [*flags, from_text(Whole, "gate.path", "none", "--set")]
    assert load(Whole, flags=cleared).gate.path is None


@pytest.mark.parametrize(
    ("assignment", "message"),
    [
        ("gate.queue=0", "gate.queue is 0 (--set); allowed: whole number, 1 to 1000"),
        ("gate.queue=-1", "gate.queue is -1 (--set); allowed: whole number, 1 to 1000"),
        ("gate.queue=1001", "gate.queue is 1001 (--set); allowed: whole number, 1 to 1000"),
        ("gate.queue=1.5", "gate.queue is 1.5 (--set); allowed: whole number, 1 to 1000"),
        ("gate.queue=true", "gate.queue is true (--set); allowed: whole number, 1 to 1000"),
        ("gate.queue=many", 'gate.queue is "many" (--set); allowed: whole number, 1 to 1000'),
        ("gate.wait=nan", "gate.wait is NaN (--set); allowed: number, above 0 and up to 60"),
        ("gate.wait=inf", "gate.wait is Infinity (--set); allowed: number, above 0 and up to 60"),
        ("gate.slack=inf", "gate.slack is Infinity (--set); allowed: number, above 0"),
        ("gate.wait=10s", 'gate.wait is "10s" (--set); allowed: number, above 0 and up to 60'),
        ("gate.wait=0", "gate.wait is 0 (--set); allowed: number, above 0 and up to 60"),
        ("gate.mode=lifo", 'gate.mode is "lifo" (--set); allowed: one of fcfs, priority'),
        ("gate.names=[1]", "gate.names is [1] (--set); allowed: list of text"),
        ("gate.queu=1", "gate.queu (--set) is not a setting; did you mean gate.queue?"),
        (
            "gate.zzz=1",
            "gate.zzz (--set) is not a setting; allowed in gate: gate.queue, gate.wait, "
            "gate.slack, gate.mode, gate.open, gate.path, gate.names",
        ),
        ("door.x=1", "door.x (--set) is not a setting; sections: gate, engines"),
        ("gate=1", "--set 'gate=1' is not of the form section.key=value"),
    ],
)
def test_a_mistake_names_key_value_and_range(assignment: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(Whole, flags=[from_assignment(Whole, assignment)])
    assert str(caught.value) == message


def test_a_list_of_tables_is_told_whole_or_by_number(tmp_path: Path) -> None:
    file = tmp_path / "surgetank.toml"
    file.write_text("[[engines]]\nurl = 'http:a'\nslots = 4\n[[engines]]\nurl = 'http:b'\n")
    env = {"SURGETANK_ENGINES__1__SLOTS": "8", "SURGETANK_ENGINES__2__URL": "http:c"}
    loaded = load(Whole, file=file, env=env)
    assert [(each.url, each.slots) for each in loaded.engines] == [
        ("http:a", 4),
        ("http:b", 8),
        ("http:c", None),
    ]
    whole = Given("engines", [{"url": "http:d"}], "--engine")
    flags = [whole, from_assignment(Whole, "engines.0.slots=2")]
    assert load(Whole, file=file, env=env, flags=flags).engines == (Engine(url="http:d", slots=2),)
    none = from_assignment(Whole, "engines=[]")
    assert load(Whole, file=file, flags=[none]).engines == ()


@pytest.mark.parametrize(
    ("assignment", "message"),
    [
        ("engines.0.url=b", 'engines.0.url is "b" (--set); allowed: text, matching ^http:'),
        ("engines=[{url='http:b',slots=0}]", "engines.0.slots is 0 (--set); allowed: whole number"),
        ("engines.0.slots=2", "engines.0.url: Field required"),
        ("engines.1.url=http:b", "engines.0 is not given, but engines.1 is"),
        ("engines.0.ulr=b", "engines.0.ulr (--set) is not a setting; did you mean engines.0.url?"),
        ("engine.url=b", "engine.url (--set) is not a setting; did you mean engines.0.url?"),
        ("engines=3", "engines is 3 (--set); allowed: list of {url, slots}"),
        ("engines=[{}]", "engines is [{}] (--set); allowed: list of {url, slots}"),
        ("engines=[{url='b'}]", 'engines.0.url is "b" (--set); allowed: text, matching ^http:'),
    ],
)
def test_a_mistake_in_a_list_of_tables_names_which_of_them(assignment: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(Whole, flags=[from_assignment(Whole, assignment)])
    assert str(caught.value).startswith(message)


def test_mistakes_in_the_environment_name_the_variable() -> None:
    with pytest.raises(ConfigError, match=r"gate.queue is 0 .SURGETANK_GATE__QUEUE."):
        load(Whole, env={"SURGETANK_GATE__QUEUE": "0"})
    with pytest.raises(ConfigError, match=r"gate.quota .SURGETANK_GATE__QUOTA. is not a setting"):
        load(Whole, env={"SURGETANK_GATE__QUOTA": "1"})


def test_variables_that_a_cluster_injects_are_left_alone() -> None:
    assert load(Whole, env={"SURGETANK_PORT": "tcp://10.0.0.1:8400"}) == Whole()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("gate = 1", "gate is 1"),
        ("[gate]\nqueue = '10'", 'gate.queue is "10"'),
        ("[gate]\nqueue = true", "gate.queue is true"),
        ("[gate\n", "is not TOML"),
        ("[gates]\nqueue = 1", "gates.*is not a setting"),
        ("[gate]\nwait = 2020-01-01", "gate.wait is"),
    ],
)
def test_mistakes_in_the_file(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "surgetank.toml"
    file.write_text(text)
    with pytest.raises(ConfigError, match=message):
        load(Whole, file=file)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"file [^ ]*/nowhere.toml: No such file or directory$"):
        load(Whole, file=tmp_path / "nowhere.toml")


def test_a_later_source_mends_an_earlier_mistake() -> None:
    flags = [Given("gate.queue", 5, "--queue")]
    assert load(Whole, env={"SURGETANK_GATE__QUEUE": "0"}, flags=flags).gate.queue == 5
