"""Writing to memory that an operand shares: refused where PyTorch's CPU kernels refuse it, in their words."""

import pytest
import torch

from torch_neuronx import _C

DEVICE = "neuron"


def row(n, device):
    return torch.arange(1.0, n + 1).to(device)


def index(*values, device):
    return torch.tensor(values).to(device)


# f(a, i): a is 1 .. 6, i is [0, 1]
REFUSED = {
    "in_place": lambda a, i: a[1:].add_(a[:-1]),
    "iadd": lambda a, i: a.__setitem__(slice(1, None), a[1:].__iadd__(a[:-1])),
    "out": lambda a, i: torch.add(a[1:], 1, out=a[:-1]),
    "transposed": lambda a, i: a[:4].view(2, 2).mul_(a[:4].view(2, 2).t()),
    "copy": lambda a, i: a[1:].copy_(a[:-1]),
    "lerp": lambda a, i: a[1:].lerp_(a[:-1], 0.5),
    "addcmul": lambda a, i: a[1:].addcmul_(a[:-1], a[:-1]),
    "where": lambda a, i: torch.where(a[1:] > 2, a[1:], a[:-1], out=a[:-1]),
    "clamp": lambda a, i: torch.clamp(a[1:], 0, 1, out=a[:-1]),
    "gelu": lambda a, i: torch.ops.aten.gelu.out(a[1:], out=a[:-1]),
    "cumsum": lambda a, i: torch.cumsum(a[1:], 0, out=a[:-1]),
    "gather": lambda a, i: torch.gather(a[:2], 0, i, out=a[:2]),
    "index_select": lambda a, i: torch.index_select(a[:2], 0, i, out=a[:2]),
    "take": lambda a, i: torch.take(a[:2], i, out=a[:2]),
    "cat": lambda a, i: torch.cat([a[:3], a[:3]], out=a),
    "scatter": lambda a, i: a.scatter_(0, i, a),
    "scatter_out": lambda a, i: torch.scatter(a[1:], 0, i, 1.0, out=a[:-1]),
    "scatter_add": lambda a, i: a[1:].scatter_add_(0, i, a[:-1]),
    "index_add": lambda a, i: a[:2].index_add_(0, i, a[:2]),
    "index_copy": lambda a, i: a[:2].index_copy_(0, i, a[1:3]),
    "index_put": lambda a, i: a[:2].index_put_([i], a[:2]),
    "setitem": lambda a, i: a.__setitem__(i, a[:2]),
    "put": lambda a, i: a.put_(i, a[:2]),
    "expanded": lambda a, i: a[:1].expand(3).add_(1),
    "expanded_out": lambda a, i: torch.mul(a[:3], 2, out=a[:1].expand(3)),
    "expanded_scatter": lambda a, i: a[:1].expand(3).scatter_(0, i, 1.0),
}
ALLOWED = {
    "itself": lambda a, i: a.mul_(a),
    "itself_out": lambda a, i: torch.add(a, a, out=a),
    "apart": lambda a, i: a[:3].add_(a[3:]),
    "even_and_odd": lambda a, i: a[::2].add_(a[1::2]),
    "scatter_into_itself": lambda a, i: torch.scatter(a, 0, i, 1.0, out=a),
    "empty": lambda a, i: a[1:1].add_(a[1:1]),
    "tril": lambda a, i: torch.tril(a[:4].view(2, 2), out=a[:4].view(2, 2)),
    "fill_expanded": lambda a, i: a[:1].expand(3).fill_(7),
    "zero_expanded": lambda a, i: a[:1].expand(3).zero_(),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name):
    said = []
    for device in ("cpu", DEVICE):
        a, i = row(6, device), index(0, 1, device=device)
        with pytest.raises(RuntimeError, match="unsupported operation: (some elements|more than one element)") as e:
            REFUSED[name](a, i)
        said.append(str(e.value).split("\n")[0])
        assert a.tolist() == [1, 2, 3, 4, 5, 6]
    assert said[0] == said[1]


@pytest.mark.parametrize("name", ALLOWED)
def test_allowed(name):
    results = []
    for device in ("cpu", DEVICE):
        a, i = row(6, device), index(0, 1, device=device)
        ALLOWED[name](a, i)
        results.append(a.cpu())
    assert torch.equal(*results)


def test_refused_after_a_good_call_of_the_same_kind():
    """Two overlaps with the same sizes and strides: the plan of the one that is allowed is not taken for the other."""
    a = row(8, DEVICE)
    a[:4].add_(a[4:])
    with pytest.raises(RuntimeError, match="some elements of the input tensor"):
        a[:4].add_(a[2:6])
    a[:4].add_(a[:4])
    assert a.tolist() == [12, 16, 20, 24, 5, 6, 7, 8]


def test_a_rejected_call_leaves_other_plans_alone():
    x = torch.ones(3, device=DEVICE)
    x.exp_()
    before = _C.cache_stats()["entries"]
    for _ in range(2):
        with pytest.raises(RuntimeError):
            x.view(1, 3).bmm(x.view(3, 1))
        with pytest.raises(RuntimeError, match="can't be cast"):
            torch.ones(3, dtype=torch.long, device=DEVICE).add_(1.5)
    assert _C.cache_stats()["entries"] >= before
