"""Operators of one's own: torch_neuronx.nki_op, eagerly and compiled, with and without gradients."""

import importlib.util
import itertools

import pytest
import torch
import torch_neuronx
from torch_neuronx import nki_op

_number = itertools.count()


def make(fn, **options):
    return nki_op(f"tnx_test::op{next(_number)}", fn, **options)


def scaled_add(x: torch.Tensor, y: torch.Tensor, scale: float = 2.0) -> torch.Tensor:
    return torch.relu(x + scale * y)


def test_eager_and_compiled_agree(strict):
    op = make(scaled_add)
    x, y = torch.randn(4, 5), torch.randn(4, 5)
    want = scaled_add(x, y, 3.0)
    torch.testing.assert_close(op(x.to("neuron"), y.to("neuron"), 3.0).cpu(), want)
    compiled = torch.compile(lambda x, y: op(x, y, 3.0) * 2, backend="neuron", fullgraph=True, options={"fallback_execution": False})
    torch.testing.assert_close(compiled(x.to("neuron"), y.to("neuron")).cpu(), want * 2)
    torch.testing.assert_close(op(x, y, 3.0), want)


def test_as_a_decorator():
    @nki_op("tnx_test::decorated")
    def twice(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x + 1, x * 2

    a, b = torch.ops.tnx_test.decorated(torch.ones(3, device="neuron"))
    assert a.cpu().tolist() == b.cpu().tolist() == [2.0] * 3


@pytest.mark.parametrize("compiled", [False, True])
def test_gradients(compiled, strict):
    op = make(scaled_add)

    def backward(ctx, grad):
        return grad * 10, grad * 20, None

    op.register_autograd(backward)
    f = torch.compile(lambda x, y: op(x, y), backend="neuron") if compiled else op
    x, y = (torch.randn(3, device="neuron", requires_grad=True) for _ in range(2))
    f(x, y).sum().backward()
    assert x.grad.cpu().tolist() == [10.0] * 3
    assert y.grad.cpu().tolist() == [20.0] * 3


@pytest.mark.parametrize("compiled", [False, True])
def test_mutated_arguments(compiled):
    def bump(x: torch.Tensor, by: float) -> None:
        x.add_(by)

    op = make(bump, mutates_args="x")

    def f(x):
        y = x * 2
        op(y, 3.0)
        return y

    f = torch.compile(f, backend="neuron") if compiled else f
    assert f(torch.ones(2, device="neuron")).cpu().tolist() == [5.0, 5.0]


def test_kernels_need_nki():
    if importlib.util.find_spec("nki"):
        pytest.skip("nki is installed")
    with pytest.raises(ImportError, match="package nki, which is not installed"):
        torch_neuronx.wrap_nki(lambda x: x)[2](torch.ones(1))
    with torch_neuronx.set_wrap_nki_enabled(False):
        assert torch_neuronx.wrap_nki(scaled_add) is scaled_add
