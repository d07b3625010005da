"""What keeps indices and shapes inside their tensors: also when an earlier, valid call of the same kind has been seen (PyTorch's Meta kernels are asked once)."""

import pytest
import torch


def neuron(*tensors):
    return [t.to("neuron") for t in tensors]


def test_gather_and_scatter_sizes():
    x, i = neuron(torch.zeros(4, 4), torch.zeros(4, 3, dtype=torch.int64))
    x.gather(1, i)
    x.clone().scatter_(1, i, torch.ones(4, 3, device="neuron"))
    long = torch.zeros(5, 3, dtype=torch.int64, device="neuron")
    for call in (
        lambda: x.gather(1, long),
        lambda: x.clone().scatter_(1, long, torch.ones(5, 3, device="neuron")),
        lambda: x.clone().scatter_add_(1, long, torch.ones(5, 3, device="neuron")),
        lambda: x.clone().scatter_(1, long, 1.0),
        lambda: x.clone().scatter_(0, i, torch.ones(2, 3, device="neuron")),
    ):
        with pytest.raises(RuntimeError, match="(?i)index|size"):
            call()
            torch.neuron.synchronize()


@pytest.mark.parametrize("bad", [-1, 4, -5])
def test_only_indexing_counts_from_the_end(bad):
    table, i = torch.randn(4, 2).to("neuron"), torch.tensor([0, bad]).to("neuron")
    for call in (
        lambda: torch.nn.functional.embedding(i, table),
        lambda: table.index_select(0, i),
        lambda: table.gather(0, i.view(2, 1)),
        lambda: torch.nn.functional.cross_entropy(table[:2], torch.tensor([0, bad * 50], device="neuron")),
        lambda: table.clone().index_add_(0, i, table[:2]),
        lambda: table.clone().scatter_(0, i.view(2, 1), 1.0),
    ):
        with pytest.raises((IndexError, RuntimeError), match="out of (bounds|range)"):
            call()
            torch.neuron.synchronize()
    if bad == -1:
        torch.testing.assert_close(table[i].cpu(), table.cpu()[[0, -1]])
        torch.testing.assert_close(table.take(i).cpu(), table.cpu().take(torch.tensor([0, -1])))
    assert table.sum().isfinite().item()


def test_an_expanded_tensor_is_not_written():
    x = torch.zeros(1, device="neuron").expand(8)
    for call in (lambda: x.add_(1), lambda: torch.add(torch.ones(8, device="neuron"), 1, out=x), lambda: x.mul_(3)):
        with pytest.raises(RuntimeError, match="more than one element of the written-to tensor"):
            call()


def test_second_call_with_other_sizes_is_checked_too():
    ln = torch.nn.functional.layer_norm
    x = torch.randn(3, 4).to("neuron")
    ln(x, (4,), None, torch.zeros(4, device="neuron"))
    with pytest.raises(RuntimeError):
        ln(x, (4,), None, torch.zeros(1, device="neuron"))
    y = torch.tensor([0, 2, 1], device="neuron")
    torch.nn.functional.nll_loss(x, y, torch.ones(4, device="neuron"))
    with pytest.raises(RuntimeError, match="weight"):
        torch.nn.functional.nll_loss(x, y, torch.ones(2, device="neuron"))
    torch.select_scatter(x, torch.zeros(4, device="neuron"), 0, 1)
    with pytest.raises(RuntimeError):
        torch.select_scatter(x, torch.zeros(5, device="neuron"), 0, 1)
    with pytest.raises(RuntimeError, match=r"\[3, 4\]"):
        torch.zeros(3, 1, device="neuron").add_(x)
