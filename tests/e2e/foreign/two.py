"""Two engines of another maker behind one gate."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
from tests.e2e.foreign.engines import Foreign, Maker
from tests.e2e.running import PATIENCE, Running, until

from surgetank.engine.model.locate import default_model

SLOW_START = "--set=routing.slow_start=0"


class Two:
    """The engines, called a and b, and the product before them."""

    def __init__(self, engines: dict[str, Foreign], service: Running) -> None:
        self.engines = engines
        self.service = service

    def looks(self) -> dict[str, dict[str, Any]]:
        """What `surgetank backends` tells, by name."""
        answer = httpx.get(f"{self.service.listeners['admin']}/backends", timeout=PATIENCE)
        return {each["name"]: each for each in answer.json()["backends"]}

    def ask(self, prompt: str, tokens: int = 4) -> str:
        """One completion of so many tokens at most; the engine that made it."""
        answer = self.service.ask(prompt=prompt, max_tokens=tokens)
        assert answer.status_code == 200, answer.text
        told = httpx.get(
            f"{self.service.listeners['admin']}/explain/{answer.headers['x-request-id']}",
            timeout=PATIENCE,
        )
        return str(told.json()["backend"])

    def act(self, act: str, name: str) -> None:
        """Drain one, or undrain it."""
        url = f"{self.service.listeners['admin']}/backends/{name}/{act}"
        httpx.post(url, json={"who": "ann", "why": "a new driver"}).raise_for_status()


@contextmanager
def two_of(maker: Maker, folder: Callable[[str], Path], *settings: str) -> Iterator[Two]:
    """Both are up; `folder` makes one of that name."""
    engines: dict[str, Foreign] = {}
    try:
        for name in ("a", "b"):
            engines[name] = Foreign(maker, default_model(), folder(name))
            engines[name].start()
        flags = [f"--backend={engine.url}" for engine in engines.values()]
        names = ["--set=backends.0.name=a", "--set=backends.1.name=b"]
        with Running(folder("run"), *flags, *names, SLOW_START, *settings) as service:
            service.wait_for("ready")
            both = Two(engines, service)
            until(lambda: all(each["up"] for each in both.looks().values()), "both are found")
            yield both
    finally:
        for engine in engines.values():
            engine.kill()
