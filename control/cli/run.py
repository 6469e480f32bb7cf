"""`surgetank run | engine | sidecar`: the processes, from flags to exit code."""

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from surgetank.control.cli.output import USAGE, fail, json_option

if TYPE_CHECKING:
    from surgetank.control.config import Config

PRESET_NAMES = ("chat", "batch", "code", "translate", "long-context")
# Flags for the common settings; everything else is --set section.key=value.
FLAGS = {
    "model": ("engine.model", "GGUF file or Hugging Face folder.  [default: SmolLM2-135M]"),
    "device": ("engine.device", "auto, cpu or cuda."),
    "socket": ("engine.socket", "unix socket between sidecar and engine."),
    "http-port": ("http.port", "Port of the OpenAI door."),
    "grpc-port": ("grpc.port", "Port of the gRPC door."),
    "admin-port": ("admin.port", "Port of the admin API."),
    "log-level": ("log.level", "debug, info, warning or error."),
}


def config_options(function: Callable[..., None]) -> Callable[..., None]:
    """--preset, --config, --backend, --set and the flags of FLAGS, in this order of strength."""
    for name, (key, help_text) in reversed(FLAGS.items()):
        function = click.option(f"--{name}", key.replace(".", "__"), help=help_text)(function)
    function = click.option(
        "--set", "assignments", multiple=True, metavar="SECTION.KEY=VALUE", help="Any setting."
    )(function)
    function = click.option(
        "--backend",
        "backends",
        multiple=True,
        metavar="URL",
        help="Protect this engine, not our own: http[s]:// or grpc[s]://HOST:PORT, repeatable.",
    )(function)
    function = click.option(
        "--config", "file", type=click.Path(path_type=Path), help="A TOML file of settings."
    )(function)
    return click.option(
        "--preset",
        type=click.Choice(PRESET_NAMES),
        help="Settings for a way of use: docs/presets.md.",
    )(function)


def _load(options: dict[str, Any]) -> "Config":
    """The configuration that the options ask for, or exit 2 with a sentence."""
    from surgetank.control.config import Config
    from surgetank.control.presets import PRESETS
    from surgetank.control.sources import ConfigError, Given, from_assignment, from_text, load

    name = options["preset"]
    try:
        urls = [{"url": url} for url in options["backends"]]
        flags = [Given("backends", urls, "--backend")] if urls else []
        flags += [from_assignment(Config, text) for text in options["assignments"]]
        for flag, (key, _) in FLAGS.items():
            text = options[key.replace(".", "__")]
            if text is not None:
                flags.append(from_text(Config, key, text, f"--{flag}"))
        preset = [] if name is None else PRESETS[name].given(name)
        return load(Config, preset=preset, file=options["file"], env=os.environ, flags=flags)
    except ConfigError as error:
        fail(bool(options.get("as_json")), USAGE, "configuration", str(error))


def _arguments(options: dict[str, Any]) -> list[str]:
    """The same options for a child's command line."""
    arguments = [] if options["preset"] is None else ["--preset", options["preset"]]
    arguments += [] if options["file"] is None else ["--config", str(options["file"])]
    for url in options["backends"]:
        arguments += ["--backend", url]
    for text in options["assignments"]:
        arguments += ["--set", text]
    for name, (key, _) in FLAGS.items():
        text = options[key.replace(".", "__")]
        if text is not None:
            arguments += [f"--{name}", text]
    return arguments


@click.command()
@config_options
@json_option
def run(**options: Any) -> None:
    """Engine and sidecar together: ready, watched, restarted; Ctrl-C drains and stops both.

    With --json, stdout carries one JSON object for each change of state.
    """
    import asyncio

    from surgetank.control.panel import make_panel
    from surgetank.control.supervisor import Plan, Supervisor
    from surgetank.telemetry.clock import SystemClock

    config = _load(options)
    arguments = _arguments(options)
    command = [sys.executable, "-m", "surgetank"]
    plan = Plan(
        engine=[*command, "engine", *arguments] if not config.backends else None,
        sidecar=[*command, "sidecar", *arguments],
        env={**os.environ, "SURGETANK_LOG__FORMAT": _log_format(config)},
        admin_token=config.admin.token.get_secret_value(),
        also_at=_metrics_url(config),
        drain_within=config.control.drain_timeout + 10.0,
    )

    async def supervise() -> int:
        panel = make_panel(options["as_json"])
        try:
            return await Supervisor(plan, panel, SystemClock()).run()
        finally:
            panel.close()

    sys.exit(asyncio.run(supervise()))


def _metrics_url(config: "Config") -> dict[str, str]:
    """Where the engine's metrics are, unless the engine picks its port itself."""
    if config.backends:
        return {}
    host, port = config.engine.metrics_host, config.engine.metrics_port
    return {"engine metrics": f"http://{host}:{port}/metrics"} if port else {}


def _log_format(config: "Config") -> str:
    """The children write to our pipes; what suits them is decided by where our own stderr goes."""
    if config.log.format != "auto":
        return config.log.format
    return "text" if sys.stderr.isatty() else "json"


@click.command()
@config_options
def engine(**options: Any) -> None:
    """The engine process alone: owns the model and the device, serves one sidecar."""
    from surgetank.telemetry import logs

    config = _load(options)
    logs.configure(config.log.level, config.log.as_json())
    try:
        from surgetank.engine.server import serve
    except ModuleNotFoundError as error:
        message = (
            f"{error.name} is not installed; the engine needs: pip install 'surgetank[engine]'"
        )
        fail(False, USAGE, "configuration", message)
    sys.exit(serve(config.engine))


@click.command()
@config_options
def sidecar(**options: Any) -> None:
    """The sidecar alone: doors, gate, control loop and admin API; waits for an engine.

    Says where it listens in one line of JSON on stdout.
    """
    # Before grpc is imported: its core would add lines of its own to our one sentence.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    from surgetank.control.sidecar import serve
    from surgetank.telemetry import logs

    config = _load(options)
    logs.configure(config.log.level, config.log.as_json())
    sys.exit(serve(config))
