"""torch.autocast("neuron")."""

import pytest
import torch

DEVICE = "neuron"


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_lists(dtype):
    x = torch.randn(4, 4, device=DEVICE)
    with torch.autocast(DEVICE, dtype=dtype):
        assert (x @ x).dtype == dtype
        assert torch.nn.functional.linear(x, x).dtype == dtype
        assert torch.softmax((x @ x), -1).dtype == torch.float32
        assert (x @ x).exp().dtype == torch.float32
        assert (x @ x).sum().dtype == torch.float32
        assert torch.addcmul(x, (x @ x), x).dtype == torch.float32
        assert (x + x).dtype == torch.float32
        with torch.autocast(DEVICE, enabled=False):
            assert (x @ x).dtype == torch.float32
    assert (x @ x).dtype == torch.float32


def test_state():
    assert not torch.is_autocast_enabled(DEVICE)
    with torch.autocast(DEVICE):
        assert torch.is_autocast_enabled(DEVICE)
        assert torch.get_autocast_dtype(DEVICE) in torch.neuron.get_amp_supported_dtype()


def test_unsupported_dtype_is_refused():
    with pytest.warns(UserWarning), torch.autocast(DEVICE, dtype=torch.float64):
        assert not torch.is_autocast_enabled(DEVICE)


def test_weights_are_cast_once():
    w = torch.randn(4, 4, device=DEVICE, requires_grad=True)
    x = torch.randn(4, 4, device=DEVICE)
    torch.neuron.clear_op_tracking()
    with torch.autocast(DEVICE, dtype=torch.bfloat16):
        (x @ w + x @ w).sum().backward()
    assert w.grad.dtype == torch.float32


def test_binary_cross_entropy_is_refused():
    x = torch.rand(3, device=DEVICE)
    with torch.autocast(DEVICE), pytest.raises(RuntimeError, match="unsafe to autocast"):
        torch.nn.functional.binary_cross_entropy(x, x)


def test_training_step():
    torch.manual_seed(0)
    m = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.Linear(16, 1)).to(DEVICE)
    opt = torch.optim.AdamW(m.parameters(), lr=1e-2)
    x = torch.randn(32, 8, device=DEVICE)
    y = x.sum(1, keepdim=True)
    losses = []
    for _ in range(20):
        with torch.autocast(DEVICE, dtype=torch.bfloat16):
            loss = torch.nn.functional.mse_loss(m(x).float(), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0]
