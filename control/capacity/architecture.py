"""What the planner knows of a model: its tensors, and what each layer keeps per token or sequence.

Shapes follow the published layouts: grouped queries (Ainslie et al. 2023, arXiv:2305.13245),
latent attention (DeepSeek-V2, arXiv:2405.04434), sliding windows (Mistral 7B, arXiv:2310.06825),
state-space layers (Mamba, arXiv:2312.00752; Mamba-2, arXiv:2405.21060), gated delta rule
(arXiv:2412.06464).
"""

from dataclasses import dataclass

from surgetank.control.capacity.quantisation import Quantisation

UNSPLIT = 1  # `ways` of a tensor that every rank holds whole
FREELY = 2**31  # `ways` of a tensor that any number of ranks may share


@dataclass(frozen=True, slots=True)
class Tensor:
    """One weight, or `count` equal ones: rows x columns elements each."""

    name: str  # dotted, as checkpoints name it, so that skip lists of quantisers apply
    rows: int  # output features
    columns: int = 1  # input features; 1 for a vector
    count: int = 1  # experts
    ways: int = FREELY  # ranks it can be split over; beyond that it is replicated
    linear: bool = True  # False: stays in 16 bits whatever the quantisation

    @property
    def elements(self) -> int:
        return self.rows * self.columns * self.count


@dataclass(frozen=True, slots=True)
class Attention:
    """Keys and values per token; a window keeps only the last ones."""

    kv_heads: int
    key_dim: int
    value_dim: int
    window: int | None = None  # tokens


@dataclass(frozen=True, slots=True)
class Latent:
    """Multi-head latent attention: one compressed vector per token, whole on every rank."""

    rank: int
    rope_dim: int


@dataclass(frozen=True, slots=True)
class State:
    """A recurrent layer: constant size per sequence, whatever the context."""

    conv: int  # elements in the model's dtype
    recurrent: int  # elements in float32: it accumulates over the whole sequence


Cache = Attention | Latent | State


@dataclass(frozen=True, slots=True)
class Architecture:
    """A model, read from whatever describes it."""

    name: str
    source: str  # where the numbers come from
    family: str
    hidden: int
    vocab: int
    heads: int
    layers: int
    widest_mlp: int  # intermediate features that one token passes at once, all its experts
    max_context: int  # tokens
    dtype: str
    tensors: tuple[Tensor, ...]
    caches: tuple[Cache, ...]  # one per layer that keeps something
    quantisation: Quantisation | None = None
    stored_bytes: int | None = None  # weights measured in the files, when they are there
    notes: tuple[str, ...] = ()

    @property
    def parameters(self) -> int:
        return sum(tensor.elements for tensor in self.tensors)
