"""One child process: started in a session of its own, its output relayed, ended by its pid."""

import asyncio
import signal
from collections import deque
from collections.abc import Callable, Mapping, Sequence

PARENT_VARIABLE = "SURGETANK_PARENT_PID"  # a child ends when this is not its parent any more
TAIL_LINES = 20
MAX_LINE = 64 * 1024  # bytes of one line of output that are kept

Relay = Callable[[str, str], None]  # the child's name, one line of its stderr


def describe_exit(code: int) -> str:
    """An exit code as people read it: "exit code 1", "signal 9 (SIGKILL)"."""
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"signal {-code} ({signal.Signals(-code).name})"
    except ValueError:
        return f"signal {-code}"


class Child:
    """A running child. A session of its own keeps a terminal's Ctrl-C with the parent alone."""

    def __init__(
        self, name: str, process: asyncio.subprocess.Process, relay: Relay, on_stdout: Relay
    ) -> None:
        self.name = name
        self.tail: deque[str] = deque(maxlen=TAIL_LINES)  # its last stderr lines
        self._process = process
        self._pumps = [
            asyncio.create_task(self._pump(process.stderr, relay, self.tail)),
            asyncio.create_task(self._pump(process.stdout, on_stdout, None)),
        ]

    @classmethod
    async def start(
        cls,
        name: str,
        command: Sequence[str],
        env: Mapping[str, str],
        relay: Relay,
        on_stdout: Relay,
    ) -> "Child":
        """Start it; raises OSError when the command cannot be executed."""
        process = await asyncio.create_subprocess_exec(
            *command,
            env=dict(env),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
            limit=MAX_LINE,
        )
        return cls(name, process, relay, on_stdout)

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    @property
    def running(self) -> bool:
        """False once it has been waited for."""
        return self._process.returncode is None

    async def wait(self) -> int:
        """Its exit code (negative: the signal that ended it), when all its output was relayed."""
        code = await self._process.wait()
        # A grandchild may hold the pipes open: its output is not worth waiting for.
        await asyncio.wait(self._pumps, timeout=1.0)
        for pump in self._pumps:
            pump.cancel()
        return code

    async def stop(self, within: float) -> int:
        """SIGTERM, and SIGKILL if it still runs after `within` seconds; returns its exit code."""
        self.signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(within):
                return await self.wait()
        except TimeoutError:
            self.signal(signal.SIGKILL)
            return await self.wait()

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to it, if it still runs."""
        if self.running:
            self._process.send_signal(number)

    async def _pump(
        self, stream: asyncio.StreamReader | None, relay: Relay, tail: deque[str] | None
    ) -> None:
        if stream is None:
            return
        while True:
            try:
                raw = await stream.readline()
            except ValueError:  # a line longer than MAX_LINE: the stream dropped what it held
                raw = b"(a line too long to relay)\n"
            if not raw:
                return
            line = raw.decode("utf-8", "replace").rstrip("\r\n")
            if tail is not None:
                tail.append(line)
            relay(self.name, line)
