"""`surgetank run`: starts engine and sidecar, shows their state, restarts what dies, drains both.

The two are child processes; nothing here imports grpc, torch or a web framework.
"""

import asyncio
import contextlib
import json
import logging
import os
import signal
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from surgetank.control.child import PARENT_VARIABLE, Child, describe_exit
from surgetank.control.client import AdminClient, ApiError, Unreachable
from surgetank.control.panel import Panel
from surgetank.control.sdnotify import VARIABLE, ServiceManager
from surgetank.telemetry.clock import Clock

logger = logging.getLogger(__name__)
USER_MISTAKE = 2
OK, NO_ANSWER = 200, 0  # HTTP statuses of a probe
STEADY = 30.0  # seconds of life after which a child's backoff starts anew


@dataclass(frozen=True)
class Plan:
    """What to run, and within which bounds (seconds)."""

    engine: Sequence[str] | None  # None: it is another's to run
    sidecar: Sequence[str]
    env: Mapping[str, str] = field(default_factory=lambda: os.environ)
    admin_token: str = ""
    also_at: Mapping[str, str] = field(default_factory=dict)  # further URLs to show, by name
    drain_within: float = 35.0  # the sidecar's own drain timeout, and some
    engine_stop_within: float = 10.0
    backoff_first: float = 0.5
    backoff_most: float = 5.0
    poll: float = 0.5


class Supervisor:
    """Owns the two children from start to exit. run() once."""

    def __init__(self, plan: Plan, panel: Panel, clock: Clock) -> None:
        self._plan = plan
        self._panel = panel
        self._clock = clock
        self._manager = ServiceManager(plan.env)
        self._env = {**plan.env, PARENT_VARIABLE: str(os.getpid())}
        self._env.pop(VARIABLE, None)  # it hears from this process alone
        self._children: dict[str, Child] = {}
        self._deaths = {"engine": 0, "sidecar": 0}
        self._stopping = asyncio.Event()
        self._signals = 0
        self._was_ready = False
        self._listeners: dict[str, str] = {}

    async def run(self) -> int:
        """Until a signal, or a child that cannot start; returns the exit code."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._on_signal)
        keepers = [asyncio.create_task(self._keep("sidecar", self._plan.sidecar))]
        if self._plan.engine is not None:
            keepers.append(asyncio.create_task(self._keep("engine", self._plan.engine)))
        watcher = asyncio.create_task(self._watch())
        stopped = asyncio.create_task(self._stopping.wait())
        try:
            await asyncio.wait({stopped, watcher, *keepers}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._stopping.set()
            await self._stop_children()
            codes = await asyncio.gather(*keepers)
            watcher.cancel()
            await asyncio.gather(watcher, stopped, return_exceptions=True)
        if not watcher.cancelled():
            watcher.result()  # only a bug ends it: show it
        if self._signals > 1:
            return 1
        return max(codes)

    def _on_signal(self) -> None:
        self._signals += 1
        if self._signals == 1:
            self._manager.tell(STOPPING="1", STATUS="draining")
            self._panel.say("draining", "draining; once more to stop at once")
            self._stopping.set()
            return
        self._panel.say("killed", "stopping at once: requests in flight are lost")
        for child in self._children.values():
            child.signal(signal.SIGKILL)

    async def _keep(self, name: str, command: Sequence[str]) -> int:
        """Run a child again and again; returns when stopping, or the code of a hopeless start."""
        delay = self._plan.backoff_first
        while not self._stopping.is_set():
            began = self._clock.monotonic()
            child = await Child.start(
                name, command, self._env, self._panel.relay, self._on_child_stdout
            )
            self._children[name] = child
            if self._signals > 1:
                child.signal(signal.SIGKILL)
            elif self._stopping.is_set():
                child.signal(signal.SIGTERM)
            code = await child.wait()
            if self._stopping.is_set():
                break
            if code == USER_MISTAKE and not self._was_ready:
                last = child.tail[-1] if child.tail else "it refused to start and said nothing"
                said = last.removeprefix("surgetank").removeprefix(f" {name}").removeprefix(": ")
                self._panel.say("failed", f"{name}: {said}", process=name, exit_code=code)
                return code
            if self._clock.monotonic() - began > STEADY:
                delay = self._plan.backoff_first
            self._report_death(name, child, code, delay)
            await self._pause(delay)
            delay = min(2 * delay, self._plan.backoff_most)
        return 0

    def _report_death(self, name: str, child: Child, code: int, delay: float) -> None:
        self._deaths[name] += 1
        again = f"restart {self._deaths[name]} in {delay:g} s"
        self._panel.say(
            "died",
            f"the {name} ended by {describe_exit(code)}; {again}",
            process=name,
            exit_code=code,
            restarts=self._deaths[name],
            last_lines=list(child.tail)[-5:],
        )

    async def _pause(self, seconds: float) -> None:
        """Wait, but not past a stop."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._stopping.wait()

    async def _stop_children(self) -> None:
        """The sidecar first, so that the engine serves until the last stream is done."""
        for name, within in (
            ("sidecar", self._plan.drain_within),
            ("engine", self._plan.engine_stop_within),
        ):
            child = self._children.get(name)
            if child is None or not child.running:
                continue
            code = await child.stop(within)
            self._panel.say("stopped", f"{name} stopped ({describe_exit(code)})", process=name)

    def _on_child_stdout(self, name: str, line: str) -> None:
        """The sidecar's one line on stdout says where it listens; anything else is relayed."""
        try:
            said = json.loads(line)
            self._listeners = {str(key): str(url) for key, url in said["listeners"].items()}
        except (ValueError, TypeError, KeyError, AttributeError):
            self._panel.relay(name, line)

    async def _watch(self) -> None:
        """Follow the sidecar's own view: readiness from its door, numbers from its admin API."""
        last = ""
        while True:
            if self._listeners:
                state, status = await self._look(self._listeners)
                if state != last and not self._stopping.is_set():
                    self._manager.tell(READY="1", STATUS=state)  # ready: the doors answer
                    self._show(state, self._listeners)
                    last = state
                self._panel.status(state, status, dict(self._deaths))
            if self._stopping.is_set() or await self._live():
                self._manager.tell(WATCHDOG="1")
            await asyncio.sleep(self._plan.poll)

    async def _live(self) -> bool:
        """Whether a restart of everything would not help. Another's engine is not ours to start
        anew: there it is enough that the door answers."""
        if not self._listeners:
            return True  # dead children are started again, whatever becomes of it
        code = await asyncio.to_thread(_probe, f"{self._listeners['http']}/health/live")
        return code == OK or (code != NO_ANSWER and self._plan.engine is None)

    async def _look(self, listeners: dict[str, str]) -> tuple[str, dict[str, Any]]:
        """The state in one word, and GET /status."""
        ready = await asyncio.to_thread(_probe, f"{listeners['http']}/health/ready")
        status = await asyncio.to_thread(self._status, listeners["admin"])
        if self._stopping.is_set():
            return "stopping", status
        if ready == OK:
            return "ready", status
        if not self._was_ready:
            return "starting", status
        state = str(status.get("state", "unreachable"))
        return "not_ready" if state == "ready" else state, status

    def _status(self, admin_url: str) -> dict[str, Any]:
        """GET /status, or nothing while the admin API does not answer."""
        client = AdminClient(admin_url, self._plan.admin_token, timeout=2.0)
        try:
            status: dict[str, Any] = client.get("/status")
        except (Unreachable, ApiError) as error:
            logger.debug("%s", error)
            return {}
        return status

    def _show(self, state: str, listeners: dict[str, str]) -> None:
        if state != "ready":
            self._panel.say(state, state.replace("_", " "))
        elif self._was_ready:
            self._panel.say(state, "ready again")
        else:
            self._was_ready = True
            self._panel.welcome({**listeners, **self._plan.also_at})


def _probe(url: str) -> int:
    """The door's HTTP status, or NO_ANSWER."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(url, timeout=2.0) as response:
            return int(response.status)
    except urllib.error.HTTPError as error:
        error.close()
        return error.code
    except OSError as error:
        logger.debug("%s: %s", url, error)
        return NO_ANSWER
