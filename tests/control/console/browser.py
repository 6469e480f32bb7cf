"""Drives a real Chromium, headless, through the DevTools protocol over two pipes."""

import asyncio
import base64
import contextlib
import fcntl
import json
import os
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
)
PATIENCE = 30.0  # seconds for anything that the page is waited for


def find_browser() -> str | None:
    """Its program; None where there is none."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


class BrowserError(Exception):
    """The browser said no, or a script in the page threw."""


class Browser:
    """One process; `call` speaks the protocol, `tab` opens a page with a storage of its own."""

    def __init__(self, process: asyncio.subprocess.Process, to: int, answers: int) -> None:
        self._process = process
        self._to = to
        self._answers = answers
        self._waiting: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._tabs: dict[str, Tab] = {}
        self._number = 0
        self._buffer = b""
        os.set_blocking(answers, False)
        asyncio.get_running_loop().add_reader(answers, self._read)

    async def call(self, method: str, session: str = "", **params: Any) -> dict[str, Any]:
        """One command, to a page where `session` names one. Raises BrowserError."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": params}
        answer = asyncio.get_running_loop().create_future()
        self._waiting[self._number] = answer
        if session:
            message["sessionId"] = session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        said = await asyncio.wait_for(answer, PATIENCE)
        if "error" in said:
            raise BrowserError(f"{method}: {said['error']['message']}")
        result: dict[str, Any] = said["result"]
        return result

    async def tab(self) -> "Tab":
        """A blank page."""
        context = (await self.call("Target.createBrowserContext"))["browserContextId"]
        target = await self.call("Target.createTarget", url="about:blank", browserContextId=context)
        attached = await self.call(
            "Target.attachToTarget", targetId=target["targetId"], flatten=True
        )
        tab = self._tabs[attached["sessionId"]] = Tab(self, attached["sessionId"], context)
        for domain in ("Page", "Runtime", "Log"):
            await tab.call(f"{domain}.enable")
        return tab

    async def close(self) -> None:
        """Ask it to end; end it where it does not."""
        try:
            await self.call("Browser.close")
            await asyncio.wait_for(self._process.wait(), 10)
        except (TimeoutError, OSError):
            self._process.kill()
            await self._process.wait()
        finally:
            asyncio.get_running_loop().remove_reader(self._answers)
            os.close(self._to)
            os.close(self._answers)

    def _read(self) -> None:
        self._buffer += os.read(self._answers, 1 << 20)
        *messages, self._buffer = self._buffer.split(b"\0")
        for text in messages:
            message = json.loads(text)
            if (answer := self._waiting.pop(message.get("id", 0), None)) is not None:
                answer.set_result(message)
            elif (tab := self._tabs.get(message.get("sessionId", ""))) is not None:
                tab.heard(message["method"], message["params"])


class Tab:
    """One page. `problems`: exceptions, console errors and failed loads, as they came."""

    def __init__(self, browser: Browser, session: str, context: str) -> None:
        self._browser = browser
        self._session = session
        self._context = context
        self.problems: list[str] = []
        self._loaded = asyncio.Event()

    async def call(self, method: str, **params: Any) -> dict[str, Any]:
        """A command to this page."""
        return await self._browser.call(method, self._session, **params)

    async def goto(self, url: str) -> None:
        """Returns when the page and what it names are loaded."""
        self._loaded.clear()
        await self.call("Page.navigate", url=url)
        await asyncio.wait_for(self._loaded.wait(), PATIENCE)

    async def look(self, script: str) -> Any:
        """The value of an expression in the page; promises are waited for."""
        said = await self.call(
            "Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True
        )
        if "exceptionDetails" in said:
            raise BrowserError(f"{script}: {said['exceptionDetails']}")
        return said["result"].get("value")

    async def until(self, condition: str) -> None:
        """Returns once the expression is true; TimeoutError shows what the page says instead."""
        script = f"new Promise(ok => {{ const look = () => ({condition}) ? ok(true) : "
        script += "setTimeout(look, 30); look(); })"
        try:
            await asyncio.wait_for(self.look(script), PATIENCE)
        except TimeoutError:
            text = await self.look("document.body.innerText.slice(0, 1500)")
            raise TimeoutError(f"never true: {condition}; the page says: {text}") from None

    async def text(self, selector: str) -> str:
        """What an element says."""
        found: str = await self.look(f"document.querySelector({selector!r}).textContent")
        return found

    async def press(self, key: str) -> None:
        """One key, as a person's keyboard sends it."""
        typed = {"Enter": "\r", "Tab": "\t"}.get(key, key if len(key) == 1 else "")
        code = {"Enter": 13, "Escape": 27, "Tab": 9}.get(key, ord(key.upper()[0]))
        event = {"key": key, "windowsVirtualKeyCode": code}
        down = {"type": "keyDown", "text": typed} if typed else {"type": "rawKeyDown"}
        await self.call("Input.dispatchKeyEvent", **event, **down)
        await self.call("Input.dispatchKeyEvent", type="keyUp", **event)

    async def type(self, text: str) -> None:
        """Into what has the focus."""
        await self.call("Input.insertText", text=text)

    async def size(self, width: int, height: int, *, dark: bool = False) -> None:
        """The window, and what the system prefers."""
        await self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 600,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        await self.call("Emulation.setEmulatedMedia", features=[scheme])

    async def shoot(self, path: Path) -> int:
        """The whole page as a PNG; returns its bytes."""
        shot = await self.call("Page.captureScreenshot", captureBeyondViewport=True)
        return await asyncio.to_thread(path.write_bytes, base64.b64decode(shot["data"]))

    async def close(self) -> None:
        """With everything that it kept."""
        await self._browser.call("Target.disposeBrowserContext", browserContextId=self._context)

    def heard(self, method: str, params: dict[str, Any]) -> None:
        """An event of the page."""
        match method:
            case "Page.loadEventFired":
                self._loaded.set()
            case "Runtime.exceptionThrown":
                details = params["exceptionDetails"]
                said = details.get("exception", {}).get("description", "")
                self.problems.append(f"{details['text']} {said}")
            case "Runtime.consoleAPICalled" if params["type"] in ("error", "warning", "assert"):
                self.problems.append(f"console: {params['args']}")
            case "Log.entryAdded" if params["entry"]["level"] in ("error", "warning"):
                entry = params["entry"]
                self.problems.append(f"{entry['text']} {entry.get('url', '')}")


@contextlib.asynccontextmanager
async def running(program: str, folder: Path) -> AsyncIterator[Browser]:
    """A browser with a profile in `folder`; it is gone afterwards."""
    theirs, to = _pipe()
    answers, out = _pipe()

    def give() -> None:  # the browser reads 3 and writes 4
        os.dup2(theirs, 3)
        os.dup2(out, 4)

    process = await asyncio.create_subprocess_exec(
        program,
        *FLAGS,
        f"--user-data-dir={folder}",
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
        pass_fds=(3, 4),
        preexec_fn=give,
    )
    os.close(theirs)
    os.close(out)
    browser = Browser(process, to, answers)
    try:
        yield browser
    finally:
        await browser.close()


def _pipe() -> tuple[int, int]:
    """A pipe whose ends are out of the way of the numbers that the browser wants."""
    ends = os.pipe()
    moved = [fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 20) for end in ends]
    for end in ends:
        os.close(end)
    return moved[0], moved[1]
