"""What training scripts run: optimizers over lists, gradient scaling, recurrent modules; against the CPU, with nothing falling back."""

from __future__ import annotations

import copy

import pytest
import torch

pytest.importorskip("torch_neuronx._C", reason="the native part is not built")
SHAPES = [(3, 4), (5,), (2, 3, 4), (), (7, 1)]
OPTIM = torch.optim
OPTIMIZERS = {
    "adam": lambda p, **k: OPTIM.Adam(p, lr=0.01, weight_decay=0.1, **k),
    "adam-amsgrad": lambda p, **k: OPTIM.Adam(p, lr=0.01, amsgrad=True, maximize=True, **k),
    "adamw": lambda p, **k: OPTIM.AdamW(p, lr=0.01, **k),
    "sgd": lambda p, **k: OPTIM.SGD(p, lr=0.01, weight_decay=0.1, **k),
    "sgd-nesterov": lambda p, **k: OPTIM.SGD(p, lr=0.01, momentum=0.9, nesterov=True, **k),
    "sgd-dampening": lambda p, **k: OPTIM.SGD(p, lr=0.01, momentum=0.9, dampening=0.5, **k),
    "adagrad": lambda p, **k: OPTIM.Adagrad(p, lr=0.01, lr_decay=0.1, weight_decay=0.1, **k),
}


@pytest.fixture(autouse=True)
def no_fallback():
    torch.manual_seed(0)
    before = dict(torch.neuron.fallback_counts())
    yield
    assert torch.neuron.fallback_counts() == before


def close(a, b, dtype=torch.float32):
    tolerance = {"rtol": 2e-2, "atol": 2e-2} if dtype == torch.bfloat16 else {"rtol": 1e-5, "atol": 1e-6}
    torch.testing.assert_close(a.detach().cpu(), b.detach(), **tolerance)


def compare(make, dtype, **scaling):
    cpu = [torch.nn.Parameter(torch.randn(s).to(dtype)) for s in SHAPES]
    device = [torch.nn.Parameter(p.detach().to("neuron")) for p in cpu]
    optimizers = make(cpu), make(device)
    for step in range(3):
        for a, b in zip(cpu, device):
            a.grad = torch.randn_like(a)
            b.grad = a.grad.to("neuron")
        for o, where in zip(optimizers, ("cpu", "neuron")):
            if scaling:
                o.grad_scale = torch.tensor(scaling["scale"], device=where)
                o.found_inf = torch.tensor(float(step == scaling["bad"]), device=where)
            o.step()
            o.param_groups[0]["lr"] *= 0.9
    for a, b in zip(cpu, device):
        close(b, a, dtype)
        close(b.grad, a.grad, dtype)
        for key, value in optimizers[0].state[a].items():
            if isinstance(value, torch.Tensor):
                close(optimizers[1].state[b][key], value, dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("how", ["fused", "foreach", "loop"])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizer(name, how, dtype):
    if (name[:3], how, dtype) == ("sgd", "fused", torch.bfloat16):
        pytest.skip("PyTorch's CPU kernel computes something else for vectors of bfloat16")
    kwargs = {"fused": {"fused": True}, "foreach": {"foreach": True}, "loop": {"foreach": False}}[how]
    compare(lambda p: OPTIMIZERS[name](p, **kwargs), dtype)


@pytest.mark.parametrize("bad", [-1, 1])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_gradient_scale(name, bad):
    compare(lambda p: OPTIMIZERS[name](p, fused=True), torch.float32, scale=4.0, bad=bad)


@pytest.mark.parametrize("make", [OPTIM.NAdam, OPTIM.RAdam, OPTIM.Adadelta, OPTIM.Adamax, OPTIM.RMSprop, OPTIM.ASGD, OPTIM.Rprop])
def test_other_optimizers(make):
    compare(make, torch.float32)


def test_tensor_rate():
    compare(lambda p: OPTIM.AdamW(p, lr=torch.tensor(0.01), fused=True), torch.float32)


def test_grad_scaler():
    model = torch.nn.Linear(4, 4).to("neuron")
    optimizer = OPTIM.SGD(model.parameters(), 0.1)
    scaler = torch.amp.GradScaler("neuron", init_scale=16.0, growth_interval=1)
    before = model.weight.detach().clone()
    for bad in (False, True):
        optimizer.zero_grad()
        loss = model(torch.full((2, 4), float("inf") if bad else 1.0, device="neuron")).sum()
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        if bad:
            assert torch.equal(model.weight, before)
        before = model.weight.detach().clone()
        assert scaler.get_scale() == (16.0 if bad else 32.0)


def test_numbers_by_value():
    x, y = [torch.ones(3, device="neuron")], [torch.ones(3, device="neuron")]
    torch._foreach_add_(x, y, alpha=0.3)
    torch._foreach_add_(x, y, alpha=0.7)
    assert torch.allclose(x[0].cpu(), torch.full((3,), 2.0))


def test_lists_that_share_memory():
    x = torch.zeros(4, device="neuron")
    torch._foreach_add_([x, x], 1)
    assert x.tolist() == [2] * 4
    torch._foreach_add_([x[:3], x[1:]], 1)
    assert x.tolist() == [3, 4, 4, 3]


def test_hundreds_of_tensors():
    x = [torch.full((2,), float(i), device="neuron") for i in range(300)]
    torch._foreach_mul_(x, 2)
    y = torch._foreach_add(x, x)
    assert [v[0].item() for v in y] == [4.0 * i for i in range(300)]
    assert abs(torch.stack(torch._foreach_norm(x)).cpu()[10].item() - 20 * 2**0.5) < 1e-4


def test_list_errors():
    x = [torch.ones(2, device="neuron")]
    with pytest.raises(RuntimeError, match="Tensor lists must have the same number of tensors, got 1 and 2"):
        torch._foreach_add_(x, x + x)
    with pytest.raises(RuntimeError, match="at least one tensor"):
        torch._foreach_add([], 1)


@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("make", [torch.nn.LSTM, torch.nn.GRU, torch.nn.RNN])
def test_recurrent(make, bias, bidirectional):
    cpu = make(5, 6, num_layers=2, bidirectional=bidirectional, bias=bias, batch_first=True)
    device = copy.deepcopy(cpu).to("neuron")
    x = torch.randn(3, 4, 5)
    a, b = cpu(x)[0], device(x.to("neuron"))[0]
    close(b, a)
    (a**2).sum().backward()
    (b**2).sum().backward()
    for p, q in zip(cpu.parameters(), device.parameters()):
        torch.testing.assert_close(q.grad.cpu(), p.grad, rtol=1e-4, atol=1e-5)


def test_cells():
    for make in (torch.nn.LSTMCell, torch.nn.GRUCell, torch.nn.RNNCell):
        cpu = make(5, 6)
        device = copy.deepcopy(cpu).to("neuron")
        x = torch.randn(3, 5)
        a, b = cpu(x), device(x.to("neuron"))
        close(b[0], a[0])
