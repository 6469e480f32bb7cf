"""`surgetank bench serve`: look at the server, play, reduce, keep."""

import asyncio
import importlib.util
import random
import signal
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from surgetank import __version__
from surgetank.control.bench.document import BenchError, document
from surgetank.control.bench.serve import history
from surgetank.control.bench.serve.clients import Client, Plain, Server
from surgetank.control.bench.serve.figures import by_client, errors_of, figures_of
from surgetank.control.bench.serve.inputs import Call
from surgetank.control.bench.serve.kserve import Streamed, Unary
from surgetank.control.bench.serve.player import Played, Player
from surgetank.control.bench.serve.probe import Prober
from surgetank.control.bench.serve.report import client_table, notes_of, tables_of
from surgetank.control.bench.serve.wishes import (
    GRPC,
    GRPC_STREAM,
    HASTY,
    HTTPX,
    OPENAI,
    Wishes,
    hash_of,
)
from surgetank.control.lab.behaviour import BEHAVIOURS
from surgetank.telemetry.clock import Clock

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Keeping:
    """What becomes of the figures. `tolerance`: a share of the earlier figure."""

    out: Path
    history: Path
    compare: bool = False
    tolerance: float = 0.1


@dataclass(frozen=True, slots=True)
class Seen:
    """A run, and what it was told of the server."""

    played: Played
    model: str
    notes: list[str]
    interrupted: bool


def serve(
    wishes: Wishes, calls: Iterator[Call], keeping: Keeping, clock: Clock, say: Say
) -> dict[str, Any]:
    """The whole run: a document whose `interrupted` and `regressed` say how it ended. `wishes` are
    settled, the calls are theirs. Raises BenchError."""
    _check(wishes)
    # Not uvloop: its clock is rounded to milliseconds.
    seen = asyncio.run(measure(wishes, calls, say))
    if not seen.played.rows:
        raise BenchError("no call had ended when the run was stopped")
    return _kept(wishes, keeping, seen, clock, say)


async def measure(wishes: Wishes, calls: Iterator[Call], say: Say) -> Seen:
    """Everything that needs the server. Ctrl-C or SIGTERM ends the play and keeps what there is."""
    prober = Prober(wishes)
    try:
        server, writer, notes = await prober.look()
    finally:
        await prober.close()
    say(f"{server.model} at {server.base_url}: {_load(wishes)}")
    clients = clients_of(wishes, server)
    player = Player(clients, writer, random.Random(f"{wishes.seed}:prompts"))
    interrupted = False

    def stop() -> None:
        nonlocal interrupted
        interrupted = True
        player.stop()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop)
    try:
        played = await player.play(calls, wishes.concurrency, wishes.duration)
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)
        await asyncio.gather(*(client.close() for client in clients.values()))
    return Seen(played, server.model, notes, interrupted)


def clients_of(wishes: Wishes, server: Server) -> dict[str, Client]:
    """One of each kind that is asked for, as a service would keep it."""
    made: dict[str, Client] = {}
    for kind, _ in wishes.clients:
        rng = random.Random(f"{wishes.seed}:{kind}")
        if kind in (OPENAI, HASTY):
            made[kind] = _sdk(kind, server, wishes.timeout)
        elif kind in (GRPC, GRPC_STREAM):
            rpc = Unary if kind == GRPC else Streamed
            made[kind] = rpc(wishes.grpc or "", server.model, server.api_key, wishes.timeout)
        else:
            behaviour = None if kind == HTTPX else BEHAVIOURS[kind]
            made[kind] = Plain(server, wishes.timeout, behaviour, rng)
    return made


def _sdk(kind: str, server: Server, timeout: float) -> Client:
    import openai

    from surgetank.control.bench.load.sdk import Hasty
    from surgetank.control.bench.serve.sdk_client import Sdk

    return Sdk(Hasty if kind == HASTY else openai.AsyncOpenAI, server, timeout)


def _check(wishes: Wishes) -> None:
    kinds = {kind for kind, _ in wishes.clients}
    if kinds & {OPENAI, HASTY} and importlib.util.find_spec("openai") is None:
        raise BenchError(
            "openai is missing; run: pip install 'surgetank[demo]', or use another "
            "--client, such as httpx"
        )


def _load(wishes: Wishes) -> str:
    ends = [
        f"{wishes.requests} requests" if wishes.requests else "",
        f"{wishes.duration:g} s" if wishes.duration else "",
    ]
    if wishes.concurrency:
        how = f"{wishes.concurrency} callers that never pause"
    else:
        how = f"{wishes.rate:g} calls/s" if wishes.rate else f"the trace's times, {wishes.speed:g}x"
    return ", ".join(part for part in (wishes.input, how, *ends) if part)


def _kept(wishes: Wishes, keeping: Keeping, seen: Seen, clock: Clock, say: Say) -> dict[str, Any]:
    figures = figures_of(seen.played, wishes.slo)
    settings = wishes.settings(seen.model)
    rows = seen.played.rows
    kinds = by_client(rows, wishes.slo)
    tables = tables_of(figures, errors_of(rows))
    if len(kinds) > 1:
        tables.append(client_table(kinds))
    notes = [*seen.notes, *notes_of(figures)]
    if seen.interrupted:
        notes.insert(0, f"Interrupted: {seen.played.cut} calls were under way and are not counted.")
    line = {
        "time": clock.wall(),
        "version": __version__,
        "settings_hash": hash_of(settings),
        "interrupted": seen.interrupted,
        "settings": settings,
        "figures": figures,
    }
    regressed = False
    if keeping.compare and not seen.interrupted:
        regressed = _compared(keeping, line, tables, notes)
    history.append(keeping.history, line)
    _drawn(seen.played, wishes, keeping.out, notes)
    ended = {"interrupted": seen.interrupted, "regressed": regressed}
    told = {**settings, "url": wishes.url, "version": __version__}
    values = {**ended, "errors": errors_of(rows), "clients": kinds, **figures}
    return document("serve", clock, told, values, tables, notes)


def _compared(
    keeping: Keeping, line: Mapping[str, Any], tables: list[Any], notes: list[str]
) -> bool:
    """Whether the run is worse than the last of its kind."""
    then = history.last_equal(keeping.history, line["settings_hash"])
    if then is None:
        notes.append(f"Nothing to compare with: {keeping.history} holds no run of these settings.")
        return False
    ratios, worse = history.compare(line["figures"], then["figures"], keeping.tolerance)
    tables.append(history.table_of(ratios, f"version {then['version']}, {_date(then['time'])}"))
    if worse:
        names = ", ".join(each.name for each in ratios if each.worse)
        notes.append(f"Worse by more than {keeping.tolerance:.0%}: {names}.")
    return worse


def _date(wall: float) -> str:
    return datetime.fromtimestamp(wall, UTC).strftime("%Y-%m-%d %H:%M UTC")


def _drawn(played: Played, wishes: Wishes, out: Path, notes: list[str]) -> None:
    if importlib.util.find_spec("matplotlib") is None:
        notes.append("No picture: pip install 'surgetank[demo]' brings matplotlib.")
        return
    from surgetank.control.bench.serve.plot import draw

    path = out / "bench-serve.png"
    draw(played, wishes.slo, _load(wishes), path)
    notes.append(f"picture: {path}")
