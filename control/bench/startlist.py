"""Which engines take part: ours, its variants, and the peers that are installed here."""

import importlib.util
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch

from surgetank.control.bench.document import BenchError
from surgetank.control.bench.export import export
from surgetank.control.bench.linked import Linked
from surgetank.control.bench.rival import Entry, Piped
from surgetank.engine.model.locate import resolve

OURS = "surgetank"
INSIDE = "surgetank, no link"
HF = "transformers"
LLAMA = "llama.cpp"
VLLM = "vllm"
PEERS = (HF, LLAMA, VLLM)
PEERS_PYTHON = Path(".venv-peers/bin/python")
LINES = str(Path(__file__).parent / "peers" / "lines.py")
HOW = {
    HF: "pip install transformers",
    LLAMA: "make peers",
    VLLM: "make peers",
}


@dataclass(frozen=True, slots=True)
class Course:
    """What all engines have in common."""

    model: str
    dtype: str
    threads: int
    sequences: int  # the largest batch
    tokens: int  # the most prompt tokens that a batch reads
    folder: Path  # for exported weights and logs
    peers: tuple[str, ...] = PEERS

    @property
    def env(self) -> dict[str, str]:
        """The same for every process: so many threads, that do not spin while they wait."""
        return {
            "GOMP_SPINCOUNT": "2000",
            "KMP_BLOCKTIME": "0",
            "OMP_NUM_THREADS": str(self.threads),
            "TOKENIZERS_PARALLELISM": "false",
        }

    @property
    def settings(self) -> dict[str, str]:
        """Ours: every batch is read in one step and then decodes together, as the peers' do."""
        return {
            "model": self.model,
            "dtype": self.dtype,
            "threads": str(self.threads),
            "max_num_seqs": str(self.sequences),
            "max_batch_tokens": str(max(self.tokens, self.sequences + 1)),
            "tpot_target": "60",
        }


@dataclass(frozen=True, slots=True)
class Variant:
    """Ours in another environment or with other settings: NAME:KEY=VALUE,...; keys in upper case
    are the environment's, others the engine's."""

    name: str
    env: Mapping[str, str]
    settings: Mapping[str, str]

    @classmethod
    def parse(cls, text: str) -> "Variant":
        """Raises BenchError."""
        name, _, rest = text.partition(":")
        pairs = dict(item.partition("=")[::2] for item in rest.split(",") if "=" in item)
        if not name or not pairs:
            raise BenchError(f"variant is {text!r}; allowed: NAME:KEY=VALUE,KEY=VALUE")
        env = {key: value for key, value in pairs.items() if key.upper() == key}
        return cls(name, env, {key: value for key, value in pairs.items() if key not in env})


def start_list(course: Course, variants: Sequence[Variant]) -> tuple[list[Entry], list[str]]:
    """Who takes part, and one line for each peer that is not installed."""
    ours = [
        Entry(OURS, "", partial(Linked, OURS, course.settings, course.env)),
        Entry(INSIDE, "", partial(Piped, INSIDE, _inside(course), course.env, course.folder)),
        *(
            Entry(
                f"{OURS} {each.name}",
                "",
                partial(
                    Linked,
                    f"{OURS} {each.name}",
                    {**course.settings, **each.settings},
                    {**course.env, **each.env},
                ),
            )
            for each in variants
        ),
    ]
    absent = [name for name in course.peers if not _installed(name)]
    rivals = [entry for name in course.peers if name not in absent for entry in _peer(name, course)]
    return ours + rivals, [f"{name} is not installed; to compare: {HOW[name]}" for name in absent]


def _inside(course: Course) -> list[str]:
    words = [f"{key}={value}" for key, value in course.settings.items()]
    return [sys.executable, "-m", "surgetank.control.bench.inside", *words]


def _peer(name: str, course: Course) -> list[Entry]:
    python = str(PEERS_PYTHON.absolute())

    def entry(label: str, *command: str, extra: Mapping[str, str] = {}) -> Entry:
        start = partial(Piped, label, command, {**course.env, **extra}, course.folder)
        return Entry(label, name, start)

    threads = str(course.threads)
    if name == LLAMA:
        gguf = str(resolve(course.model))
        return [
            entry(f"{LLAMA}/fa-{flash}", python, LINES, "llamacpp", gguf, flash, threads)
            for flash in ("off", "on")
        ]
    dtype = "float32" if course.dtype == "auto" else course.dtype
    weights = course.folder / f"{Path(resolve(course.model)).stem}-{dtype}"
    folder = str(export(Path(resolve(course.model)), weights, getattr(torch, dtype)).absolute())
    if name == HF:
        return [entry(HF, sys.executable, LINES, "hf", folder, dtype, threads)]
    own = {
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "VLLM_LOGGING_LEVEL": "WARNING",
        "VLLM_NO_USAGE_STATS": "1",
        "HF_HUB_OFFLINE": "1",
    }
    return [entry(VLLM, python, LINES, "vllm_cpu", folder, dtype, extra=own)]


def _installed(name: str) -> bool:
    if name == HF:
        return importlib.util.find_spec("transformers") is not None
    package = {LLAMA: "llama_cpp", VLLM: "vllm"}[name]
    if not PEERS_PYTHON.exists():
        return False
    look = f"import importlib.util as u, sys; sys.exit(u.find_spec({package!r}) is None)"
    return subprocess.run([PEERS_PYTHON, "-c", look], check=False).returncode == 0


def physical_cores() -> int:
    """What the engine takes by default, and all others here too."""
    return torch.get_num_threads()
