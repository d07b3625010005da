"""Views share memory and never copy."""

import pytest
import torch

DEVICE = "neuron"


VIEWS = {
    "view": lambda t: t.view(6, 4),
    "view_infer": lambda t: t.view(-1),
    "transpose": lambda t: t.transpose(0, 2),
    "permute": lambda t: t.permute(2, 0, 1),
    "slice": lambda t: t[1:, ::2],
    "select": lambda t: t[1],
    "narrow": lambda t: t.narrow(2, 1, 2),
    "expand": lambda t: t[:, :1].expand(2, 5, 4),
    "unsqueeze": lambda t: t.unsqueeze(1),
    "squeeze": lambda t: t[:1].squeeze(0),
    "unfold": lambda t: t.unfold(1, 2, 1),
    "as_strided": lambda t: t.as_strided((2, 2), (1, 2), 3),
    "diagonal": lambda t: t.diagonal(0, 1, 2),
    "chunk": lambda t: t.chunk(2, 2)[1],
    "split": lambda t: t.split([1, 2], 1)[1],
    "unbind": lambda t: t.unbind(0)[1],
    "movedim": lambda t: t.movedim(0, -1),
    "view_dtype": lambda t: t.view(torch.int32),
    "detach": lambda t: t.detach(),
    "alias": lambda t: torch.ops.aten.alias(t),
    "flatten": lambda t: t.flatten(1),
    "real_of_complex": lambda t: torch.view_as_real(torch.view_as_complex(t.view(2, 3, 2, 2))),
}


@pytest.mark.parametrize("name", VIEWS)
def test_view(name):
    base = torch.arange(24.0).view(2, 3, 4)
    device = base.to(DEVICE)
    expected, got = VIEWS[name](base), VIEWS[name](device)
    assert got.shape == expected.shape and got.stride() == expected.stride()
    assert got.storage_offset() == expected.storage_offset()
    assert got.untyped_storage().data_ptr() == device.untyped_storage().data_ptr()
    assert torch.equal(got.cpu(), expected)


def test_writes_go_through():
    t = torch.zeros(3, 4, device=DEVICE)
    t[1].fill_(1)
    t[:, 2] += 5
    t.t()[0] = 7
    expected = torch.zeros(3, 4)
    expected[1].fill_(1)
    expected[:, 2] += 5
    expected.t()[0] = 7
    assert torch.equal(t.cpu(), expected)


def test_complex_views():
    z = torch.randn(3, 4, dtype=torch.complex64)
    d = z.to(DEVICE)
    assert torch.equal(torch.view_as_real(d).cpu(), torch.view_as_real(z))
    assert torch.equal(d.real.cpu(), z.real) and torch.equal(d.imag.cpu(), z.imag)
    assert torch.equal(d.conj().cpu(), z.conj().resolve_conj())
    assert torch.equal(d.conj().imag.cpu(), z.conj().imag)
    assert torch.equal(d.mH.resolve_conj().cpu(), z.mH.resolve_conj())


def test_view_errors():
    t = torch.zeros(2, 3, 4, device=DEVICE)
    with pytest.raises(RuntimeError, match="view size is not compatible"):
        t.transpose(0, 1).view(-1)
    with pytest.raises(RuntimeError, match="shape '.*' is invalid for input of size 24"):
        t.view(5, 5)
    with pytest.raises(RuntimeError, match="out of bounds for storage"):
        t.as_strided((10, 10), (10, 1))
    with pytest.raises(RuntimeError, match="maximum size for tensor at dimension"):
        t.unfold(0, 3, 1)
    with pytest.raises(RuntimeError, match="last dimension of size 2"):
        torch.view_as_complex(t)
    with pytest.raises(RuntimeError, match="only supported for complex"):
        torch.view_as_real(t)
    with pytest.raises(IndexError):
        t[5]


def test_autograd_through_views():
    x = torch.randn(4, 4)
    grads = []
    for device in ("cpu", DEVICE):
        t = x.clone().to(device).requires_grad_()
        y = (t.t()[1:].unsqueeze(0).expand(2, 3, 4) * 2).sum()
        y.backward()
        grads.append(t.grad.cpu())
    assert torch.equal(*grads)


def test_version_counter():
    t = torch.zeros(3, device=DEVICE)
    v = t._version
    t.add_(1)
    t[0] = 2
    assert t._version == v + 2
    a = torch.ones(3, device=DEVICE, requires_grad=True)
    b = a.exp()
    b.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        b.sum().backward()
