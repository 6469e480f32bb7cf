"""Every linear backend multiplies the same numbers."""

import pytest
import torch

from surgetank.engine.kernels.linear import (
    LinearBackend,
    PackedLinear,
    TorchLinear,
    best_linear,
)

CPU = torch.device("cpu")
PACKS = isinstance(best_linear(CPU, torch.float32), PackedLinear)
BACKENDS: list[LinearBackend] = [TorchLinear(), PackedLinear()] if PACKS else [TorchLinear()]


@pytest.mark.parametrize("backend", BACKENDS, ids=lambda backend: type(backend).__name__)
def test_prepared_weights_multiply_and_add(backend: LinearBackend) -> None:
    weight, bias = torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]), torch.tensor([1.0, 0.0, -1])
    x = torch.tensor([[1.0, 1.0], [2.0, 0.0]])
    with torch.inference_mode():
        assert backend.prepare(weight)(x).tolist() == [[3.0, 7.0, 11.0], [2.0, 6.0, 10.0]]
        assert backend.prepare(weight, bias)(x).tolist() == [[4.0, 7.0, 10.0], [3.0, 6.0, 9.0]]
        assert backend.prepare(weight)(x[:0]).shape == (0, 3)


@pytest.mark.parametrize("rows", [1, 7, 32, 100])
def test_backends_agree_at_any_number_of_rows(rows: int) -> None:
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(96, 64, generator=generator)
    x = torch.randn(rows, 64, generator=generator)
    with torch.inference_mode():
        plain, *others = [backend.prepare(weight)(x) for backend in BACKENDS]
    for other in others:
        torch.testing.assert_close(other, plain)


def test_packing_is_for_the_cpu_and_the_types_it_knows() -> None:
    assert isinstance(best_linear(torch.device("cuda"), torch.float32), TorchLinear)
    assert isinstance(best_linear(CPU, torch.float64), TorchLinear)
