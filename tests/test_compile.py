"""torch.compile(backend="neuron"): graphs, dynamic shapes, mutation, training, metrics."""

import copy
import warnings

import pytest
import torch
from torch._dynamo.utils import counters

import torch_neuronx
from torch_neuronx.compile import get_dynamo_metrics, reset_dynamo_metrics, set_model_name


@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()
    counters.clear()
    reset_dynamo_metrics()
    torch_neuronx.clear_op_tracking()
    yield
    assert torch.neuron.fallback_counts() == {}


def compare(fn, *args, **options):
    """fn on the CPU, and compiled on the device. Halves: inside a fused chain values stay in float32, so float32 is the reference."""
    want = fn(*args)
    if any(isinstance(a, torch.Tensor) and a.dtype == torch.bfloat16 for a in args):
        exact = fn(*(a.float() if isinstance(a, torch.Tensor) and a.dtype == torch.bfloat16 else a for a in args))
        want = tuple(e.to(w.dtype) for e, w in zip(exact, want))
    got = torch.compile(fn, backend="neuron", **options)(*(a.to("neuron") if isinstance(a, torch.Tensor) else a for a in args))
    torch.testing.assert_close(torch.utils._pytree.tree_map_only(torch.Tensor, lambda t: t.cpu(), got), want)


def frames():
    return counters["frames"]["ok"]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_pointwise_and_reductions(dtype):
    def f(x, y):
        z = (x * y + 1).tanh()
        return z, z.mean(-1), torch.softmax(z, 0), (x > y).sum()

    compare(f, torch.randn(6, 7).to(dtype), torch.randn(7).to(dtype))


def test_views_and_matmul():
    def f(x, w):
        h = (x @ w.t()).view(2, 3, 2, 4).transpose(1, 2)
        return torch.cat([h[..., :2], -h[..., 2:]], -1).flatten(1), h[:, 0]

    compare(f, torch.randn(2, 3, 5), torch.randn(8, 5))


def test_integers_and_indexing():
    def f(table, i):
        return table[i], table.index_select(0, i[:2]), torch.arange(i.shape[0], device=i.device) * 3 // 2, i.argmax()

    compare(f, torch.randn(9, 4), torch.tensor([3, 0, -1 % 9, 8]))


def test_attention():
    def f(q, k, v, m):
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=m, enable_gqa=True)

    compare(f, torch.randn(2, 6, 5, 16), torch.randn(2, 3, 7, 16), torch.randn(2, 3, 7, 16), torch.rand(2, 1, 5, 7) > 0.2)


def test_dynamic_compiles_once():
    def f(x):
        return torch.cat([x, x.flip(0)]).cumsum(0) / x.shape[0]

    g = torch.compile(f, backend="neuron", dynamic=True)
    for n in (3, 5, 8, 13, 64):
        x = torch.randn(n, 7)
        torch.testing.assert_close(g(x.to("neuron")).cpu(), f(x))
    assert frames() == 1
    assert [m.dynamic for m in get_dynamo_metrics()] == [True]


def test_static_request_becomes_dynamic_at_the_second_size():
    g = torch.compile(lambda x: x.sin() * 2, backend="neuron", dynamic=False)
    for n in (3, 5, 8, 13):
        x = torch.randn(n, 4)
        torch.testing.assert_close(g(x.to("neuron")).cpu(), x.sin() * 2)
    assert frames() == 2


def test_static_request_is_kept_where_the_variable_says_so(monkeypatch):
    monkeypatch.setenv("TORCH_NEURONX_AUTOMATIC_DYNAMIC", "0")
    g = torch.compile(lambda x: x.sin() * 2, backend="neuron", dynamic=False)
    for n in (3, 5, 8):
        g(torch.randn(n, 4).to("neuron"))
    assert frames() == 3


def test_inputs_are_mutated_in_place():
    def f(cache, i, row):
        cache.index_copy_(0, i, row)
        cache[0] += 1
        return cache.sum(0)

    cache, i, row = torch.randn(6, 3), torch.tensor([2]), torch.randn(1, 3)
    on_device = cache.to("neuron")
    address = on_device.data_ptr()
    got = torch.compile(f, backend="neuron")(on_device, i.to("neuron"), row.to("neuron"))
    want = f(cache, i, row)
    torch.testing.assert_close(got.cpu(), want)
    torch.testing.assert_close(on_device.cpu(), cache)
    assert on_device.data_ptr() == address


def test_swap_of_two_inputs():
    def f(a, b):
        t = a.clone()
        a.copy_(b)
        b.copy_(t)
        return a + b

    a, b = torch.randn(5), torch.randn(5)
    da, db = a.to("neuron"), b.to("neuron")
    torch.compile(f, backend="neuron")(da, db)
    torch.testing.assert_close(da.cpu(), b)
    torch.testing.assert_close(db.cpu(), a)


def test_graph_break():
    def f(x):
        y = x + 1
        torch._dynamo.graph_break()
        return y * 2

    compare(f, torch.randn(4))
    assert len(get_dynamo_metrics()) == 2


def test_cpu_inputs_are_brought_over():
    f = torch.compile(lambda x, y: x + y, backend="neuron")
    torch.testing.assert_close(f(torch.ones(3).to("neuron"), torch.tensor(2.0)).cpu(), torch.full((3,), 3.0))
    f = torch.compile(lambda x, s: x * s, backend="neuron")
    torch.testing.assert_close(f(torch.ones(3).to("neuron"), torch.tensor(2.5)).cpu(), torch.full((3,), 2.5))


def test_outputs_that_are_inputs_views_and_numbers():
    def f(x):
        return x, x.t(), x.shape[0], None, x[1:]

    x = torch.randn(3, 4)
    got = torch.compile(f, backend="neuron", dynamic=True)(x.to("neuron"))
    want = f(x)
    assert got[2:4] == want[2:4]
    for a, b in zip((got[0], got[1], got[4]), (want[0], want[1], want[4])):
        torch.testing.assert_close(a.cpu(), b)


@pytest.mark.parametrize("dynamic", [False, True])
def test_training_step(dynamic):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.LayerNorm(16), torch.nn.Linear(16, 3))
    on_device = copy.deepcopy(model).to("neuron")
    compiled = torch.compile(on_device, backend="neuron", dynamic=dynamic)
    optimizers = [torch.optim.SGD(m.parameters(), lr=0.1) for m in (model, on_device)]
    for _ in range(3):
        x, y = torch.randn(5, 8), torch.randint(0, 3, (5,))
        for m, o, d in ((model, optimizers[0], "cpu"), (compiled, optimizers[1], "neuron")):
            o.zero_grad()
            torch.nn.functional.cross_entropy(m(x.to(d)), y.to(d)).backward()
            o.step()
    for a, b in zip(model.parameters(), on_device.parameters()):
        torch.testing.assert_close(b.detach().cpu(), a.detach())


@pytest.mark.parametrize("masked", [False, True])
def test_attention_is_trained(masked):
    """The forward graph gives the backward one all that attention saves, also what it leaves empty without dropout; the second length makes it symbolic."""

    def f(q, k, v, m):
        out = torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=m if masked else None, is_causal=not masked, enable_gqa=True)
        return (out * out).sum()

    compiled = torch.compile(f, backend="neuron")
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message="backend 'neuron'")  # nothing runs operator by operator
        for n in (7, 12, 9):
            args, mask, grads = [torch.randn(2, h, n, 16) for h in (6, 3, 3)], torch.rand(2, 1, n, n) > 0.2, []
            for device, g in (("cpu", f), ("neuron", compiled)):
                leaves = [t.detach().to(device).requires_grad_() for t in args]
                g(*leaves, mask.to(device)).backward()
                grads.append([t.grad.cpu() for t in leaves])
            for a, b in zip(*grads):
                torch.testing.assert_close(b, a, rtol=1e-4, atol=1e-5)
    assert frames() == 2


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_int8_weights_are_read_in_place(dtype):
    """A weight that a graph converts from int8 is multiplied as it is stored, without the memory of a converted copy."""

    def f(x, w, scale):
        return torch.nn.functional.linear(x, w.to(x.dtype)) * scale, torch.mm(x, w.t().to(x.dtype)), torch.mm(x @ w.t().to(x.dtype), w.to(x.dtype))

    compiled = torch.compile(f, backend="neuron", dynamic=True)
    torch.manual_seed(0)
    w = torch.randint(-128, 128, (2048, 512), dtype=torch.int8, device="neuron")
    scale = torch.rand(2048, device="neuron").to(dtype) / 1024
    for m in (1, 3, 40):
        x = (torch.rand(m, 512, device="neuron") / 256).to(dtype)
        got = compiled(x, w, scale)
        if m < 10:
            before = torch.neuron.memory_allocated()
            torch.neuron.reset_peak_memory_stats()
            compiled(x, w, scale)
            assert torch.neuron.max_memory_allocated() - before < w.numel() / 2
        for a, b in zip(got, f(x.cpu(), w.cpu(), scale.cpu())):
            rounding = 1e-5 if dtype == torch.float32 else 1e-2
            torch.testing.assert_close(a.cpu(), b, rtol=rounding, atol=rounding * b.abs().max().item())


def test_random_numbers_are_those_of_eager():
    def f(x):
        return torch.nn.functional.dropout(x, 0.5), torch.rand_like(x)

    x = torch.ones(64, 64).to("neuron")
    torch.manual_seed(7)
    want = f(x)
    torch.manual_seed(7)
    got = torch.compile(f, backend="neuron")(x)
    for a, b in zip(got, want):
        torch.testing.assert_close(a.cpu(), b.cpu(), rtol=0, atol=0)
    again = torch.compile(f, backend="neuron")(x)
    assert not torch.equal(again[1].cpu(), got[1].cpu())


def test_convolutions_of_symbolic_sizes_get_a_plan_for_each_size():
    torch.manual_seed(0)
    cpu = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3, padding=1), torch.nn.SiLU(), torch.nn.MaxPool2d(2), torch.nn.Conv2d(8, 4, 3, stride=2, padding=1))
    device = copy.deepcopy(cpu).to("neuron")
    compiled = torch.compile(device, backend="neuron", dynamic=True, options={"fallback_execution": False})
    for size in ((2, 3, 16, 12), (5, 3, 20, 24), (2, 3, 16, 12), (4, 3, 18, 30)):
        x = torch.randn(size)
        both = [(model, x.to(where).requires_grad_()) for model, where in ((cpu, "cpu"), (compiled, "neuron"))]
        want, got = ((y := model(t), *torch.autograd.grad(y.square().sum(), [t, *model.parameters()])) for model, t in both)
        for w, g in zip(want, got, strict=True):
            torch.testing.assert_close(g.cpu(), w, rtol=1e-4, atol=1e-4)
    assert counters["stats"]["unique_graphs"] == 1
    assert counters["neuron"]["specialised_graphs"] == 2 * 3 and not counters["neuron"]["eager_graphs"]


def test_a_graph_that_is_not_covered_runs_by_operator_with_a_warning():
    def f(x):
        return torch.fake_quantize_per_tensor_affine(x + 1, 0.1, 0, -128, 127)

    x = torch.randn(3, 3)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        got = torch.compile(f, backend="neuron")(x.to("neuron"))
    torch.testing.assert_close(got.cpu(), f(x))
    assert any("operator by operator" in str(w.message) for w in seen)
    with pytest.raises(Exception, match="fake_quantize"):
        torch.compile(f, backend="neuron", options={"fallback_execution": False})(x.to("neuron"))
    torch_neuronx.clear_op_tracking()  # it is a counted fallback


def test_unknown_option_and_mode():
    with pytest.raises(Exception, match="no option nonsense"):
        torch.compile(lambda x: x + 1, backend="neuron", options={"nonsense": 1})(torch.ones(1).to("neuron"))


def test_metrics():
    set_model_name("toy")
    try:
        torch.compile(lambda x: x + 1, backend="neuron")(torch.ones(2).to("neuron"))
    finally:
        set_model_name("model")
    (m,) = get_dynamo_metrics()
    assert m.model_name == "toy" and m.graph_name.startswith("toy_") and m.graph_node_count >= 3
    assert 0 < m.torch_neuronx_compile_us < 1e6 and m.torch_neuronx_lower_us > 0
    assert counters["neuron"]["compiled_graphs"] == 1


def test_a_bad_index_is_an_error_and_the_device_goes_on():
    f = torch.compile(lambda t, i: t[i], backend="neuron")
    t = torch.randn(4, 2).to("neuron")
    f(t, torch.tensor([1, 9]).to("neuron"))
    with pytest.raises(IndexError, match="index 9 is out of bounds for dimension 0 with size 4"):
        torch.neuron.synchronize()
    torch.testing.assert_close(f(t, torch.tensor([1, 3]).to("neuron")).cpu(), t.cpu()[[1, 3]])


@pytest.mark.parametrize(
    "f",
    [
        lambda x, a: x.copy_(torch.cat([x[3:] * 2, x[:3] * 3])),
        lambda x, a: x.copy_(torch.cat([a.cumsum(0)[:3], x[:3].cumsum(0)])),
        lambda x, a: x.copy_(a.cumsum(0).index_copy(0, torch.tensor([0, 3], device=a.device), x.cumsum(0)[:2])),
        lambda x, a: x.copy_(torch.slice_scatter(a * 2, x.flip(0)[:2], 0, 1, 3)),
        lambda x, a: x.add_(a).copy_(x.flip(0)),
        lambda x, a: (x[2:].clone(), x.mul_(2), x.flip(0)),
    ],
)
def test_a_mutated_input_is_read_before_it_is_overwritten(f):
    x, a = torch.arange(6.0), torch.randn(6)
    dx, da = x.to("neuron"), a.to("neuron")
    got = torch.compile(f, backend="neuron")(dx, da)
    want = f(x, a)
    torch.testing.assert_close(dx.cpu(), x)
    for g, w in zip(got if isinstance(got, tuple) else (got,), want if isinstance(want, tuple) else (want,)):
        torch.testing.assert_close(g.cpu(), w)


@pytest.mark.parametrize(
    "f",
    [
        lambda x, a: x.copy_(torch.cat([a[:2] @ a, x[:2] @ x])),
        lambda x, a: x.copy_(torch.select_scatter(a @ a, (x @ x)[0], 0, 1)),
    ],
)
def test_a_mutated_matrix_is_read_before_it_is_overwritten(f):
    x, a = torch.randn(4, 4), torch.randn(4, 4)
    dx = x.to("neuron")
    torch.compile(f, backend="neuron")(dx, a.to("neuron"))
    f(x, a)
    torch.testing.assert_close(dx.cpu(), x)


class _Noise(torch.nn.Module):
    def forward(self, x):
        return (x * torch.rand(x.shape, device=x.device) + torch.randn_like(x) * x).sin()


def _checkpointed(module, x, compiled, dynamic=None):
    from torch.utils.checkpoint import checkpoint

    def f(x):
        return checkpoint(module, x, use_reentrant=False).sum()

    if compiled:
        torch._dynamo.reset()
        f = torch.compile(f, backend="neuron", dynamic=dynamic)
    x = x.clone().requires_grad_()
    module.zero_grad()
    torch.manual_seed(1)
    loss = f(x)
    loss.backward()
    return [loss.detach(), x.grad, *(p.grad.clone() for p in module.parameters()), torch.rand(3, device="neuron")]


@pytest.mark.parametrize("dynamic", [None, True])
def test_checkpointed_regions_draw_the_same_numbers_again(dynamic):
    """Forward and backward are one compiled graph each, and equal eager ones, down to the next number that the generator gives."""
    torch.manual_seed(0)
    layers = [torch.nn.Linear(8, 8), torch.nn.Dropout(0.5), torch.nn.Linear(8, 8), torch.nn.Dropout(0.3), torch.nn.GELU()]
    for module in (torch.nn.Sequential(*layers).to("neuron"), _Noise()):
        if dynamic and isinstance(module, _Noise):
            continue  # torch.rand of a symbolic size is drawn anew by PyTorch's own tracing
        x = torch.randn(4, 8, device="neuron")
        want = _checkpointed(module, x, False)
        reset_dynamo_metrics()
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # nothing runs operator by operator
            got = _checkpointed(module, x, True, dynamic)
        assert [m.graph_name.rsplit("_", 1)[1] for m in get_dynamo_metrics()] == ["forward", "backward"]
        for w, g in zip(want, got):
            torch.testing.assert_close(g, w, rtol=1e-4, atol=1e-5)


def test_views_of_a_graph_that_runs_by_operator():
    """Tracing takes attention's result to be laid out as its query, so that merging the heads is a view."""

    def f(q):
        heads = q.view(2, 5, 2, 8).transpose(1, 2)
        x = torch.nn.functional.scaled_dot_product_attention(heads, heads, heads).transpose(1, 2).reshape(2, 5, 16)
        return torch.fake_quantize_per_tensor_affine(x, 0.1, 0, -128, 127)

    q = torch.randn(2, 5, 16)
    with pytest.warns(UserWarning, match="operator by operator"):
        got = torch.compile(f, backend="neuron")(q.to("neuron"))
    torch.testing.assert_close(got.cpu(), f(q))
    torch_neuronx.clear_op_tracking()  # it is a counted fallback


def test_checkpointed_regions_that_run_by_operator(monkeypatch):
    from torch_neuronx.compile import backend

    def refuse(self, gm):
        raise backend.Unsupported("this test")

    monkeypatch.delenv("TORCH_NEURONX_DISABLE_FALLBACK_EXECUTION", raising=False)
    monkeypatch.setattr(backend.Importer, "run", refuse)
    module = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Dropout(0.5), torch.nn.GELU()).to("neuron")
    x = torch.randn(4, 8, device="neuron")
    want = _checkpointed(module, x, False)
    with pytest.warns(UserWarning, match="operator by operator: this test") as seen:
        got = _checkpointed(module, x, True)
    assert not [w for w in seen if "boxed" in str(w.message)]
    for w, g in zip(want, got):
        torch.testing.assert_close(g, w, rtol=1e-4, atol=1e-5)


def test_graphs_on_other_devices(run_python):
    source = """
import torch, warnings
a, b = torch.ones(3, device="neuron:0"), torch.ones(3, device="neuron:1")
compiled = lambda f: torch.compile(f, backend="neuron")
print(compiled(lambda: torch.ones(2, device="neuron:1") * 2)().device, compiled(lambda x: x + torch.rand_like(x))(b).device, torch.neuron.current_device())
with warnings.catch_warnings(record=True) as seen:
    warnings.simplefilter("always")
    x, y = compiled(lambda x, y: (x * 2, y * 3 + x.to("neuron:1")))(a, b)
print(x.tolist(), x.device, y.tolist(), y.device, any("neuron:0 and neuron:1" in str(w.message) for w in seen))
"""
    lines = run_python(source, NEURON_RT_NUM_CORES="2", TORCH_NEURONX_DISABLE_FALLBACK_EXECUTION="0").splitlines()
    assert lines == ["neuron:1 neuron:1 0", "[2.0, 2.0, 2.0] neuron:0 [4.0, 4.0, 4.0] neuron:1 True"]


@pytest.mark.parametrize("dynamic", [False, True])
def test_outputs_that_share_memory_are_views_of_one_result(dynamic):
    def f(x):
        y = x * 2
        return y, y.transpose(0, 1), y[1:], *y.split(1, 1), y[:, 1].unsqueeze(0)

    def pieces(x):  # nobody returns the memory as a whole
        y = (x + 1).flatten()
        return y[:4], y[2:6]

    for fn in (f, pieces):
        compiled = torch.compile(fn, backend="neuron", dynamic=dynamic)
        for rows in (3, 4):
            x = torch.arange(3.0 * rows).reshape(rows, 3)
            want, got = fn(x), compiled(x.to("neuron"))
            assert [t.shape for t in got] == [t.shape for t in want] and [t.stride() for t in got] == [t.stride() for t in want]
            assert len({t.untyped_storage().data_ptr() for t in got}) == 1
            for results in (want, got):
                results[1].mul_(-1)
            for w, g in zip(want, got):
                torch.testing.assert_close(g.cpu(), w)
