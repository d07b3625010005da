"""Results lie in memory as PyTorch's do: what a later view, write or contiguous() sees depends on it."""

import random

import pytest
import torch

F = torch.nn.functional
OPERATORS = {
    "exp": lambda a, b: a.exp(),
    "add_scalar": lambda a, b: a + 1,
    "add": lambda a, b: a + b,
    "compare": lambda a, b: a > b,
    "addcmul": lambda a, b: torch.addcmul(a, a, b),
    "clamp": lambda a, b: a.clamp_min(0.5),
    "gelu": lambda a, b: F.gelu(a),
    "hardswish": lambda a, b: F.hardswish(a),
    "dropout": lambda a, b: F.dropout(a, 0.5),
    "convert": lambda a, b: a.to(torch.bfloat16),
    "clone": lambda a, b: a.clone(),
    "empty_like": lambda a, b: torch.empty_like(a),
    "masked_fill": lambda a, b: a.masked_fill(b > 0, 1.0),
    "softmax": lambda a, b: a.softmax(-1),
    "layer_norm": lambda a, b: F.layer_norm(a, a.shape[-1:]),
    "flip": lambda a, b: a.flip(0),
    "sort": lambda a, b: a.sort()[0],
    "cumsum": lambda a, b: a.cumsum(0),
    "sum": lambda a, b: a.sum(0),
}


def view_of(x, rng):
    for _ in range(rng.randint(0, 4)):
        kind, d, e = rng.randrange(6), rng.randrange(x.dim()), rng.randrange(x.dim())
        if kind == 0:
            x = x.transpose(d, e)
        elif kind == 1 and x.shape[d] > 1:
            x = x.narrow(d, 0, x.shape[d] - 1)
        elif kind == 2 and x.dim() < 5:
            x = x.unsqueeze(d)
        elif kind == 3 and d != e:
            x = x.diagonal(0, d, e)
        elif kind == 4:
            x = x[(slice(None),) * d + (slice(None, None, 2),)]
        elif kind == 5 and x.dim() < 5:
            x = x.expand(rng.randint(1, 3), *x.shape)
    return x


def shuffled(shape, rng):
    """A dense tensor with its dimensions in some order in memory, now and then repeated along one of them."""
    order = rng.sample(range(len(shape)), len(shape))
    x = torch.randn([shape[i] for i in order]).permute([order.index(i) for i in range(len(shape))])
    return x.narrow(d, 0, 1) if rng.random() < 0.2 and shape[d := rng.randrange(len(shape))] else x


def strides(x):
    """Those that mean something."""
    return [s for s, n in zip(x.stride(), x.shape) if n > 1] if x.numel() else []


@pytest.mark.parametrize("name", OPERATORS)
def test_results_lie_as_the_cpus(name):
    rng = random.Random(name)
    for _ in range(60):
        shape = [rng.randint(1, 4) for _ in range(rng.randint(1, 4))]
        base, state = torch.randn(shape), rng.getstate()
        a = view_of(base, rng)
        after = rng.getstate()
        rng.setstate(state)
        a_device = view_of(base.to("neuron"), rng)
        rng.setstate(after)
        b = shuffled(a.shape, rng)
        b_device = torch.empty_strided(b.shape, b.stride(), device="neuron").copy_(b)
        want, got = OPERATORS[name](a, b), OPERATORS[name](a_device, b_device)
        assert strides(got) == strides(want), (name, a.shape, a.stride(), b.shape, b.stride())


def test_copies_between_devices_keep_the_order():
    x = torch.randn(4, 3, 2).diagonal(0, 0, 1)
    assert x.to("neuron").stride() == x.clone().stride() == x.to("neuron").cpu().stride()
    y = torch.randn(4, 3, 2).to("neuron").diagonal(0, 0, 1)
    assert y.cpu().stride() == x.clone().stride()


def test_a_diagonal_is_not_written_through_its_contiguous_copy():
    for device in ("cpu", "neuron"):
        x = torch.ones(16, 7, 5, 7, device=device).diagonal(1, 3, -4).clamp_min(0.5)
        x.contiguous().fill_(3)
        assert x.max() == 1
