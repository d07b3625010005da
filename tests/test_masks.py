"""Operators that read data back: nonzero, masks as indices, masked_select, equal. They are native, so printing is too."""

import pytest
import torch



pytestmark = pytest.mark.usefixtures("strict")


@pytest.fixture
def x():
    return torch.randn(3, 4, 5, generator=torch.Generator().manual_seed(1))


def same(got, want):
    assert got.dtype == want.dtype and torch.equal(got.cpu(), want)


COMPARISONS = (torch.eq, torch.ne, torch.lt, torch.le, torch.gt, torch.ge)


@pytest.mark.parametrize("shape", [(40, 1200), (3, 5000), (1, 1024), (7, 64)])
def test_places_compared_with_numbers(shape):
    """The masks of causal and windowed attention: in a long row, the place compared with a number of the row."""

    def masks(x, step):
        places = torch.arange(x.shape[1], device=x.device)[None].expand(x.shape)
        numbers = torch.arange(x.shape[0], device=x.device)[:, None] * step
        return [f(a, b) for f in COMPARISONS for a, b in ((places, numbers), (numbers, places))]

    compiled, t = torch.compile(masks, backend="neuron", dynamic=True), torch.zeros(shape)
    for step in (100, -3, 1, 2**61):
        for got, want in zip(compiled(t.to("neuron"), step), masks(t, step)):
            same(got, want)
    t = torch.randn(shape)
    for k in (-3000, -2, 0, 1, 700, 3000):
        same(t.to("neuron").tril(k), t.tril(k))
        same(t.to("neuron").triu(k), t.triu(k))


@pytest.mark.parametrize("shape", [(), (7,), (3, 4), (2, 0, 3), (2, 3, 4)])
@pytest.mark.parametrize("dtype", [torch.bool, torch.int64, torch.float32, torch.bfloat16])
def test_nonzero(shape, dtype):
    t = (torch.rand(shape, generator=torch.Generator().manual_seed(2)) > 0.5).to(dtype)
    d = t.to("neuron")
    same(d.nonzero(), t.nonzero())
    if shape:
        for a, b in zip(torch.where(d), torch.where(t)):
            same(a, b)
    out = torch.empty(0, dtype=torch.int64, device="neuron")
    same(torch.nonzero(d, out=out), t.nonzero())


def test_masks_as_indices(x):
    d, m, rows = x.to("neuron"), x > 0.2, torch.tensor([True, False, True])
    dm, drows = m.to("neuron"), rows.to("neuron")
    same(d[dm], x[m])
    same(d[drows], x[rows])
    same(d[:, dm[0]], x[:, m[0]])
    same(d[drows, :, 1], x[rows, :, 1])
    same(d[drows, torch.tensor([1, 3], device="neuron")], x[rows, torch.tensor([1, 3])])
    same(torch.masked_select(d, drows.view(3, 1, 1)), torch.masked_select(x, rows.view(3, 1, 1)))


def test_assignment_through_masks(x):
    m, rows = x > 0.2, torch.tensor([True, False, True])
    for mask, value in ((m, torch.tensor(7.0)), (rows, torch.randn(4, 5)), (m, torch.randn(int(m.sum())))):
        want, got = x.clone(), x.to("neuron")
        want[mask] = value
        got[mask.to("neuron")] = value.to("neuron")
        same(got, want)


def test_gradients_through_masks(x):
    m = x > 0.2
    leaf, other = x.clone().requires_grad_(), x.to("neuron").requires_grad_()
    (leaf[m] ** 2).sum().backward()
    (other[m.to("neuron")] ** 2).sum().backward()
    torch.testing.assert_close(other.grad.cpu(), leaf.grad)


def test_a_mask_that_does_not_fit(x):
    with pytest.raises(IndexError, match="mask"):
        x.to("neuron")[torch.ones(4, dtype=torch.bool, device="neuron")]


def test_equal(x):
    d = x.to("neuron")
    assert torch.equal(d, d.clone()) and not torch.equal(d, d + 1) and not torch.equal(d, d[:2])
    assert torch.equal(d[:0], d[:0].clone())
    with pytest.raises(RuntimeError, match="same device"):
        torch.equal(d, x)


def test_printing(x):
    assert repr(x.to("neuron"))[:40] == repr(x)[:40]
