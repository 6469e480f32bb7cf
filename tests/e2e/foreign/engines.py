"""Engines of other makers in processes of their own, all with the default model."""

import json
import os
import signal
import socket
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import httpx
import torch
from tests.e2e.running import PATIENCE, until

from surgetank.control.bench.export import export
from surgetank.engine.model.load import open_checkpoint

PEERS = Path(__file__).parents[3] / ".venv-peers" / "bin" / "python"
START = 600.0  # seconds, on a machine that has much else to do
VLLM_ENVIRONMENT = {
    "VLLM_CPU_KVCACHE_SPACE": "1",  # GiB
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_NO_USAGE_STATS": "1",
    "HF_HUB_OFFLINE": "1",
    "OMP_NUM_THREADS": "1",
}


@dataclass(frozen=True)
class Maker:
    """How to start one."""

    kind: str
    package: str  # its import name in .venv-peers
    command: Callable[[int, Path, Path], list[str]]  # (port, GGUF file, Hugging Face folder)
    slots: int

    def missing(self) -> str:
        """Why it cannot be started here; empty when it can."""
        if not PEERS.exists():
            return f"{PEERS} is not there: make peers"
        look = f"import importlib.util as u, sys; sys.exit(not u.find_spec({self.package!r}))"
        if subprocess.run([PEERS, "-c", look], check=False).returncode:
            return f"{self.package} is not in {PEERS.parents[1]}: make peers"
        return ""


def _llama(port: int, gguf: Path, folder: Path) -> list[str]:
    settings = {"model": gguf, "port": port, "host": "127.0.0.1", "n_ctx": 2048, "n_threads": 1}
    pairs = [part for name, value in settings.items() for part in (f"--{name}", str(value))]
    return ["-m", "llama_cpp.server", *pairs, "--interrupt_requests", "false"]


def _vllm(port: int, gguf: Path, folder: Path) -> list[str]:
    settings = {"model": folder, "port": port, "host": "127.0.0.1", "dtype": "bfloat16"}
    settings |= {"max-model-len": 2048, "max-num-seqs": 4, "served-model-name": "smollm2"}
    pairs = [part for name, value in settings.items() for part in (f"--{name}", str(value))]
    priority = ["--scheduling-policy", "priority", "--enforce-eager"]
    return ["-m", "vllm.entrypoints.openai.api_server", *pairs, *priority]


def _vllm_grpc(port: int, gguf: Path, folder: Path) -> list[str]:
    _, _, *settings = _vllm(port, gguf, folder)
    return ["-m", "vllm.entrypoints.launchers.grpc_server", *settings]


LLAMA = Maker("llama-cpp-python", "llama_cpp", _llama, slots=1)
VLLM = Maker("vllm", "vllm", _vllm, slots=4)
VLLM_GRPC = Maker("vllm-grpc", "smg_grpc_servicer", _vllm_grpc, slots=4)


class Foreign:
    """One engine; it listens at the same address whenever it runs."""

    def __init__(self, maker: Maker, model: Path, folder: Path) -> None:
        self.maker = maker
        self._model = model
        self._folder = folder
        with socket.create_server(("127.0.0.1", 0)) as listener:
            self._port = int(listener.getsockname()[1])
        self.url = f"http://127.0.0.1:{self._port}"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it and wait until it serves."""
        folder = self._folder / "model"
        if self.maker is not LLAMA:
            export_with_tokenizer(self._model, folder)
        with (self._folder / "engine.log").open("ab") as log:
            self._process = subprocess.Popen(
                [PEERS, *self.maker.command(self._port, self._model, folder)],
                cwd=self._folder,
                env={**os.environ, **VLLM_ENVIRONMENT},
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        what = f"{self.maker.kind} serves; see {self._folder / 'engine.log'}"
        until(self._serves, what, START)

    def kill(self) -> None:
        """It and its children, at once."""
        if self._process is not None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait(PATIENCE)
            self._process = None

    def ask(self, body: dict[str, object], path: str = "/v1/completions") -> httpx.Response:
        """Ask it directly."""
        return httpx.post(self.url + path, json=body, timeout=PATIENCE)

    def metric(self, name: str) -> float:
        """The sum of a metric's series."""
        page = httpx.get(f"{self.url}/metrics", timeout=PATIENCE).text
        lines = [line for line in page.splitlines() if line.startswith(name)]
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines)

    def _serves(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, (self._folder / "engine.log").read_text()[-3000:]
        try:
            return httpx.get(f"{self.url}/v1/models", timeout=5.0).is_success
        except httpx.TransportError:
            return False


def export_with_tokenizer(gguf: Path, folder: Path) -> None:
    """A Hugging Face folder of the same model, its tokenizer included."""
    export(gguf, folder, torch.bfloat16)
    files = open_checkpoint(gguf).tokenizer()
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": files.bos_token,
        "eos_token": files.eos_token,
        "chat_template": files.chat_template,
    }
    (folder / "tokenizer.json").write_text(files.tokenizer_json, "utf-8")
    (folder / "tokenizer_config.json").write_text(json.dumps(settings), "utf-8")
