"""Smaller parts of PyTorch that meet a device: printing, modules, optimizers, data loading, graph building."""

import pytest
import torch
import torch_neuronx
from torch_neuronx import _C

DEVICE = "neuron"


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.bool, torch.bfloat16, torch.complex64])
def test_print(dtype):
    x = torch.arange(4).to(dtype)
    text = repr(x.to(DEVICE))
    assert "device='neuron:0'" in text
    assert text.replace(", device='neuron:0'", "") == repr(x)


def _has_numbers(dtype):
    try:
        torch.zeros(1, dtype=dtype).item()
        return True
    except (RuntimeError, NotImplementedError):  # parts of bytes, quantised
        return False


_ALL_DTYPES = sorted({t for t in vars(torch).values() if isinstance(t, torch.dtype) and _has_numbers(t)}, key=str)


@pytest.mark.filterwarnings("ignore:ComplexHalf support")
@pytest.mark.parametrize("dtype", _ALL_DTYPES, ids=str)
def test_numbers_of_every_dtype(dtype):
    """Bytes travel, a number is read, and text is the CPU's: also for dtypes that the device does not compute with."""
    x = torch.tensor([1]).to(dtype)
    want, y = x.item(), x.to(DEVICE)
    assert y.dtype == dtype and y.item() == want and type(y.item()) is type(want) and y.tolist() == x.tolist()
    assert y.cpu().view(torch.uint8).tolist() == x.view(torch.uint8).tolist()
    assert repr(y).replace(", device='neuron:0'", "") == repr(x)


def test_default_device():
    with torch.device(DEVICE):
        assert torch.ones(2).device.type == DEVICE
        assert torch.nn.Linear(2, 2).weight.device.type == DEVICE
    torch.set_default_device(DEVICE)
    try:
        assert torch.zeros(1).device.type == DEVICE
    finally:
        torch.set_default_device(None)


def test_equality():
    x = torch.arange(5.0, device=DEVICE)
    assert torch.equal(x, x.clone()) and not torch.equal(x, x + 1)
    assert not torch.equal(x, x[:3])
    torch.testing.assert_close(x, x.clone())


@pytest.mark.parametrize("name", ["SGD", "Adam", "AdamW", "Adagrad", "RMSprop", "Adamax"])
def test_optimizers(name):
    results = []
    for device in ("cpu", DEVICE):
        torch.manual_seed(0)
        m = torch.nn.Linear(4, 3).to(device)
        opt = getattr(torch.optim, name)(m.parameters(), lr=0.05)
        x = torch.arange(8.0, device=device).view(2, 4) / 8
        for _ in range(5):
            opt.zero_grad()
            m(x).square().sum().backward()
            opt.step()
        results.append(m.weight.detach().cpu())
    assert torch.allclose(*results, atol=1e-5)


@pytest.mark.parametrize("options", [{"foreach": True}, {"fused": True}])
def test_adamw_forms(options):
    results = []
    for device in ("cpu", DEVICE):
        torch.manual_seed(0)
        m = torch.nn.Linear(4, 3).to(device)
        opt = torch.optim.AdamW(m.parameters(), lr=0.05, **options)
        for _ in range(4):
            opt.zero_grad()
            m(torch.ones(2, 4, device=device)).square().sum().backward()
            opt.step()
        results.append(m.weight.detach().cpu())
    assert torch.allclose(*results, atol=1e-5)


def test_clip_grad_norm():
    p = torch.nn.Parameter(torch.ones(10, device=DEVICE))
    (p * 3).sum().backward()
    norm = torch.nn.utils.clip_grad_norm_([p], 1.0)
    assert abs(norm.item() - 3 * 10**0.5) < 1e-4 and abs(p.grad.norm().item() - 1) < 1e-4


def test_data_loader_pins():
    data = torch.utils.data.TensorDataset(torch.arange(8.0))
    for (x,) in torch.utils.data.DataLoader(data, batch_size=4, pin_memory=True):
        assert x.is_pinned() and x.to(DEVICE, non_blocking=True).sum().item() == x.sum().item()


def test_threads():
    import threading

    errors = []

    def work(k):
        try:
            x = torch.full((1000,), float(k), device=DEVICE)
            for _ in range(200):
                x = x + 1
            assert x[0].item() == k + 200
        except Exception as e:  # noqa: BLE001 - reported below
            errors.append(e)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not errors


def test_backward_threads_and_hooks():
    x = torch.randn(5, device=DEVICE, requires_grad=True)
    seen = []
    y = x * 2
    y.register_hook(lambda g: seen.append(g.device.type))
    y.sum().backward()
    assert seen == [DEVICE] and x.grad.tolist() == [2] * 5


def test_inference_mode():
    with torch.inference_mode():
        x = torch.ones(3, device=DEVICE)
        x.add_(1)
        assert (x @ x).item() == 12


def test_foreach():
    a = [torch.ones(3, device=DEVICE), torch.ones(2, 2, device=DEVICE)]
    torch._foreach_add_(a, 2)
    torch._foreach_mul_(a, [t.clone() for t in a])
    assert a[0].tolist() == [9] * 3 and a[1].tolist() == [[9, 9], [9, 9]]


# ---- building graphs by hand ----


def add_mul_graph():
    g = _C.GraphBuilder("test")
    n = g.symbol("n")
    a = g.input(torch.float32, [n, 4], [4, 1])
    b = g.input(torch.float32, [4], [1])
    (s,) = g.call("add.Tensor", (a, b), {"alpha": 2})
    (t,) = g.call("mul.Tensor", (s, a))
    return g, n, a, b, s, t


def test_graph_builder():
    g, n, a, b, s, t = add_mul_graph()
    dtype, sizes = g.value_info(t)
    assert dtype == torch.float32 and sizes == [n, 4]
    g.output(t)
    g.output(s, into=0)
    plan = g.compile()
    assert plan.n_inputs == 2
    for rows in (2, 3, 7):
        x, y = torch.randn(rows, 4), torch.randn(4)
        dx = x.to(DEVICE)
        (out,) = plan.run([dx, y.to(DEVICE)], [rows])
        assert torch.allclose(out.cpu(), (x + 2 * y) * x, atol=1e-5)
        assert torch.allclose(dx.cpu(), x + 2 * y, atol=1e-5)


def test_graph_host_inputs():
    g = _C.GraphBuilder()
    a = g.input(torch.float32, [3], [1])
    k = g.input(torch.float32, [], [], host=True)
    (s,) = g.call("mul.Tensor", (a, k))
    g.output(s)
    plan = g.compile()
    x = torch.arange(3.0, device=DEVICE)
    assert plan.run([x, torch.tensor(3.0)])[0].tolist() == [0, 3, 6]
    assert plan.run([x, 2.0])[0].tolist() == [0, 2, 4]


def test_graph_errors():
    g = _C.GraphBuilder()
    a = g.input(torch.float32, [3], [1])
    with pytest.raises(NotImplementedError, match="no row"):
        g.call("no_such_operator", (a,))
    with pytest.raises(TypeError, match="misses its argument"):
        g.call("add.Tensor", (a,))
    with pytest.raises(TypeError, match="takes"):
        g.call("add.Tensor", (a, a, a, a, a))
    with pytest.raises(ValueError, match="no operation"):
        g.dim("pow", 2, 3)
    g.output(a)
    plan = g.compile()
    with pytest.raises(RuntimeError, match="inputs"):
        plan.run([])
    with pytest.raises(RuntimeError, match="not on neuron"):
        plan.run([torch.ones(3)])


def test_graph_text():
    g = _C.GraphBuilder("text")
    a = g.input(torch.float32, [2, 4], [4, 1])
    g.output(g.call("mul.Tensor", (a, a))[0])
    assert g.text("tnx")
    assert "stablehlo" in g.text("stablehlo")
    with pytest.raises(RuntimeError, match="format"):
        g.text("no such format")


def test_rows():
    rows = _C.rows()
    names = {r["functional"] for r in rows}
    assert "add.Tensor" in names and _C.has_row("add_.Tensor") and not _C.has_row("nothing")
    assert torch_neuronx.ops.operator_support()["mm"] == "table"
