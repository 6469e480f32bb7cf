"""The reference linear backend is a plain matrix product."""

import torch

from surgetank.engine.kernels.linear import TorchLinear


def test_prepared_weights_multiply_and_add() -> None:
    weight, bias = torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]), torch.tensor([1.0, 0.0, -1])
    x = torch.tensor([[1.0, 1.0], [2.0, 0.0]])
    assert TorchLinear().prepare(weight)(x).tolist() == [[3.0, 7.0, 11.0], [2.0, 6.0, 10.0]]
    assert TorchLinear().prepare(weight, bias)(x).tolist() == [[4.0, 7.0, 10.0], [3.0, 6.0, 9.0]]
