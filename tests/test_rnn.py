"""Recurrent networks. On devices other than the CPU PyTorch calls fused cells; the CPU computes the same from parts."""

import copy

import pytest
import torch
from torch import nn

_CELLS = {nn.LSTM: "aten::_thnn_fused_lstm_cell", nn.GRU: "aten::_thnn_fused_gru_cell", nn.RNN: None}


def _same(module, x, *rest):
    """Results and all gradients on the device equal the CPU's, and nothing ran on the CPU."""
    on_device = copy.deepcopy(module).to("neuron")
    torch.neuron.clear_op_tracking()
    results = []
    for m, device in ((module, "cpu"), (on_device, "neuron")):
        y = x.detach().to(device).requires_grad_()
        out, state = m(y, *rest)
        states = state if isinstance(state, tuple) else (state,)
        (out * torch.linspace(0, 1, out.shape[-1], device=device)).sum().add(sum(s.sum() for s in states)).backward()
        results.append([out, *states, y.grad, *(p.grad for p in m.parameters())])
    for want, got in zip(*results):
        torch.testing.assert_close(got.cpu(), want, rtol=1e-4, atol=1e-5)
    assert torch.neuron.fallback_counts() == {}


@pytest.mark.parametrize("options", [{}, {"bias": False}, {"num_layers": 2, "bidirectional": True, "batch_first": True}], ids=str)
@pytest.mark.parametrize("kind", _CELLS, ids=lambda k: k.__name__)
def test_networks(kind, options):
    torch.manual_seed(0)
    _same(kind(4, 5, **options), torch.randn(3, 2, 4))
    if _CELLS[kind]:
        assert _CELLS[kind] in torch.neuron.get_executed_ops()


@pytest.mark.parametrize("kind", _CELLS, ids=lambda k: k.__name__)
def test_packed_sequences(kind):
    torch.manual_seed(0)
    module, x = kind(4, 5), torch.randn(3, 2, 4)
    packed = nn.utils.rnn.pack_padded_sequence(x, torch.tensor([3, 1]))
    want = nn.utils.rnn.pad_packed_sequence(module(packed)[0])[0]
    got = nn.utils.rnn.pad_packed_sequence(module.to("neuron")(packed.to("neuron"))[0])[0]
    torch.testing.assert_close(got.cpu(), want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", [nn.LSTMCell, nn.GRUCell, nn.RNNCell], ids=lambda k: k.__name__)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
def test_cells(kind, dtype):
    torch.manual_seed(0)
    cell, x = kind(4, 5, dtype=dtype), torch.randn(3, 4, dtype=dtype)
    want, got = cell(x), copy.deepcopy(cell).to("neuron")(x.to("neuron"))
    want, got = (want, got) if isinstance(want, tuple) else ((want,), (got,))
    tolerance = 2e-2 if dtype == torch.bfloat16 else 1e-5
    for w, g in zip(want, got):
        assert g.dtype == dtype
        torch.testing.assert_close(g.cpu(), w, rtol=tolerance, atol=tolerance)


def test_gradients_of_the_cells():
    def inputs(*shapes):
        return [torch.randn(*s, dtype=torch.float64, device="neuron", requires_grad=True) for s in shapes]

    torch.manual_seed(0)
    lstm, gru = torch.ops.aten._thnn_fused_lstm_cell, torch.ops.aten._thnn_fused_gru_cell
    assert torch.autograd.gradcheck(lambda *a: lstm(*a)[:2], inputs((2, 12), (2, 12), (2, 3), (12,), (12,)))
    assert torch.autograd.gradcheck(lambda *a: lstm(*a)[1], inputs((2, 12), (2, 12), (2, 3)))  # no gradient of hy, no bias
    assert torch.autograd.gradcheck(lambda *a: gru(*a)[0], inputs((2, 9), (2, 9), (2, 3), (9,), (9,)))
    assert torch.autograd.gradgradcheck(lambda *a: gru(*a)[0], inputs((2, 9), (2, 9), (2, 3), (9,), (9,)))


def test_wrong_shapes():
    gates, state = torch.ones(2, 9, device="neuron"), torch.ones(2, 4, device="neuron")
    with pytest.raises(RuntimeError, match="do not fit together"):
        torch.ops.aten._thnn_fused_gru_cell(gates, gates, state)


@pytest.mark.parametrize("kind", [nn.LSTMCell, nn.GRUCell], ids=lambda k: k.__name__)
def test_compiled(kind):
    torch._dynamo.reset()
    cell, x = kind(4, 5).to("neuron"), torch.randn(3, 4, device="neuron")
    want, got = cell(x), torch.compile(cell, backend="neuron")(x)
    torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)
