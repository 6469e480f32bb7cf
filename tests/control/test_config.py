"""The whole configuration: defaults, its mistakes end to end, and its reference page."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from surgetank.control.cli import main
from surgetank.control.config import Config
from surgetank.control.lint import lint
from surgetank.control.reference import allowed, leaves, markdown
from surgetank.control.sources import ConfigError, Given, from_assignment, load
from surgetank.engine.backends.remote.config import Role

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "configuration.md"
EXAMPLE = ROOT / "examples" / "backends" / "several.toml"


def test_the_default_listeners_are_loopback_only() -> None:
    config = Config()
    assert (config.http.host, config.http.port) == ("127.0.0.1", 8400)
    assert (config.grpc.host, config.grpc.port) == ("127.0.0.1", 8401)
    assert (config.admin.host, config.admin.port) == ("127.0.0.1", 8402)
    assert (config.engine.metrics_host, config.engine.metrics_port) == ("127.0.0.1", 8403)


def test_the_reference_page_is_current() -> None:
    again = "surgetank docs config --out docs/configuration.md"
    assert PAGE.read_text("utf-8") == markdown(Config), f"run: {again}"


def test_every_setting_says_what_it_means_and_what_is_allowed() -> None:
    for key, field in leaves(Config):
        assert field.description, key
        assert allowed(field), key
        assert "<class" not in allowed(field), key


@pytest.mark.parametrize(
    ("assignment", "message"),
    [
        ("control.period=0", "control.period is 0 (--set); allowed: number, 0.01 to 10"),
        ("control.drain_timeout=10s", 'control.drain_timeout is "10s" (--set); allowed: number'),
        ("control.period=inf", "control.period is Infinity (--set); allowed: number, 0.01 to 10"),
        ("admin.port=65536", "admin.port is 65536 (--set); allowed: whole number, 0 to 65535"),
        ("log.level=loud", 'log.level is "loud" (--set); allowed: one of debug, info, warning'),
        ("gate.queue_requests=-1", "gate.queue_requests is -1 (--set); allowed: whole number, 1"),
        ("engine.socket=", 'engine.socket is "" (--set); allowed: path (it names no file)'),
        ("leases.url=redis:/x", "leases.url is a secret of another kind (--set); allowed: text"),
        ("tenants.keys=[{key='hush',tenant='a'}]", "tenants.keys.0.key is a secret of another"),
        ("leases.tenants={a={concurrency=0}}", 'leases.tenants is {"a": {"concurrency": 0}}'),
        ("backends.0.url=ftp://h", 'backends.0.url is "ftp://h" (--set); allowed: text, matching'),
        ("backends.0.url=http://h:70000", 'backends.0.url is "http://h:70000" (--set); allowed: t'),
        (
            "backends=[{url='http://h',role='all'}]",
            'backends.0.role is "all" (--set); allowed: one of both, prefill',
        ),
        ("backend.url=http://h", "backend.url (--set) is not a setting; did you mean backends.0.u"),
        ("http.port=none", 'http.port is "none" (--set); allowed: whole number, 0 to 65535'),
        ("engine.threads=0", "engine.threads is 0 (--set); allowed: whole number, 1 to 1024; or"),
        ("engine.max_num_seqs=512", "engine: max_batch_tokens is 512; allowed: more than max_num"),
    ],
)
def test_a_mistake_anywhere_is_one_sentence(assignment: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(Config, flags=[from_assignment(Config, assignment)])
    assert str(caught.value).startswith(message)


def test_engines_are_called_by_their_place_unless_they_are_named() -> None:
    urls = ["http://10.0.0.1:8000/base", "https://gpu.example", "http://[::1]:80"]
    given = Given("backends", [{"url": url} for url in urls], "--backend")
    config = load(Config, flags=[given, from_assignment(Config, "backends.2.name=spare")])
    assert [each.name for each in config.backends] == ["10.0.0.1:8000", "gpu.example:443", "spare"]
    assert [each.role for each in config.backends] == [Role.BOTH] * 3
    twice = from_assignment(Config, "backends.1.name=spare")
    with pytest.raises(ConfigError, match="backends: spare: each engine has a name of its own"):
        load(Config, flags=[given, twice, from_assignment(Config, "backends.2.name=spare")])
    with pytest.raises(ConfigError, match="backends: embedded is the name of our own engine"):
        load(Config, flags=[given, from_assignment(Config, "backends.0.name=embedded")])


def test_engines_by_http_and_by_grpc_do_not_mix() -> None:
    given = Given("backends", [{"url": "grpc://10.0.0.1"}], "--backend")
    assert [each.name for each in load(Config, flags=[given]).backends] == ["10.0.0.1:50051"]
    other = from_assignment(Config, "backends.1.url=http://10.0.0.2:8000")
    with pytest.raises(ConfigError, match="some are http and some grpc; allowed: all of one kind"):
        load(Config, flags=[given, other])
    for wrong in ("backends.0.pass_priority=true", "envoy.port=0"):
        with pytest.raises(ConfigError, match=r"allowed.* by http"):
            load(Config, flags=[given, from_assignment(Config, wrong)])


def test_the_example_of_several_engines_is_right() -> None:
    config = load(Config, file=EXAMPLE)
    assert [each.name for each in config.backends] == ["gpu-1", "gpu-2", "prefill-1"]
    assert [each.role for each in config.backends] == [Role.BOTH, Role.BOTH, Role.PREFILL]
    assert lint(config) == []


def test_a_secret_is_shown_nowhere() -> None:
    with pytest.raises(ConfigError) as caught:
        load(Config, env={"SURGETANK_ADMIN__TOKEN": "hush", "SURGETANK_ADMIN__PORT": "0x"})
    assert "hush" not in str(caught.value)
    config = load(Config, env={"SURGETANK_ADMIN__TOKEN": "12345"})
    assert config.admin.token.get_secret_value() == "12345"
    assert "12345" not in repr(config)


@pytest.mark.parametrize("command", ["run", "engine", "sidecar"])
def test_a_mistake_ends_every_process_with_exit_code_2(command: str) -> None:
    result = CliRunner().invoke(main, [command, "--set", "control.period=0"])
    assert result.exit_code == 2
    sentence = "surgetank: control.period is 0 (--set); allowed: number, 0.01 to 10\n"
    assert (result.stdout, result.stderr) == ("", sentence)


def test_a_flag_is_named_in_its_own_mistake() -> None:
    result = CliRunner().invoke(main, ["sidecar", "--http-port", "many"])
    assert 'http.port is "many" (--http-port)' in result.stderr
    assert result.exit_code == 2


def test_the_sidecars_configuration_needs_no_torch_and_the_command_line_little() -> None:
    """What is imported counts, not how long it takes here."""
    script = (
        "import sys\n"
        "from surgetank.control.cli import main\n"
        "heavy = {'torch', 'grpc', 'fastapi', 'pydantic', 'rich', 'uvloop'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
        "from surgetank.control.config import Config\n"
        "Config()\n"
        "assert not {'torch', 'numpy'} & set(sys.modules)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, env=os.environ, check=False
    )
    assert done.returncode == 0, done.stderr
