"""Operators on the CPU: counted, announced, refused on request, complete in what they write back."""

import warnings

import pytest
import torch
import torch_neuronx

DEVICE = "neuron"
# Its row covers 256 frames, not 300.
NAME = "aten::_ctc_loss"


def ctc(device):
    torch.manual_seed(0)
    log_probs = torch.randn(300, 2, 5).log_softmax(2).to(device)
    targets = torch.tensor([[1, 2, 3], [2, 3, 4]], device=device)
    return torch._ctc_loss(log_probs, targets, [300, 300], [3, 3])[0]


@pytest.fixture
def mode():
    was = torch_neuronx.ops.fallback_mode()
    yield torch_neuronx.ops.set_fallback_mode
    torch_neuronx.ops.set_fallback_mode(was)


def test_result_and_count(mode):
    mode("silent")
    got = ctc(DEVICE)
    assert got.device.type == DEVICE
    assert torch.allclose(got.cpu(), ctc("cpu"))
    assert torch.neuron.fallback_counts() == {NAME: 1}
    assert torch_neuronx.get_fallback_ops() == [NAME]
    ctc(DEVICE)
    assert torch.neuron.fallback_counts()[NAME] == 2
    torch_neuronx.clear_op_tracking()
    assert torch.neuron.fallback_counts() == {}


def test_warns_once(run_python):
    out = run_python(
        "import warnings, torch, torch_neuronx\n"
        "x = torch.randn(300, 2, 5).log_softmax(2).to('neuron')\n"
        "t = torch.tensor([[1, 2, 3], [2, 3, 4]], device='neuron')\n"
        "with warnings.catch_warnings(record=True) as seen:\n"
        "    warnings.simplefilter('always')\n"
        "    for _ in range(3): torch._ctc_loss(x, t, [300, 300], [3, 3])\n"
        "seen = [str(w.message) for w in seen if '_ctc_loss' in str(w.message)]\n"
        "print(len(seen), 'fallback_counts' in seen[0])"
    )
    assert out == "1 True"


def test_silent(mode):
    mode("silent")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ctc(DEVICE)


def test_error(mode):
    mode("error")
    with pytest.raises(NotImplementedError, match=r"_ctc_loss.*Float\[300, 2, 5\]"):
        ctc(DEVICE)
    with pytest.raises(ValueError):
        mode("sometimes")


def test_environment(run_python):
    out = run_python("import torch, torch_neuronx\nprint(torch_neuronx.ops.fallback_mode())", TORCH_NEURONX_FALLBACK="error")
    assert out == "error"


def test_executed_ops():
    x = torch.ones(3, device=DEVICE)
    torch.neuron.clear_op_tracking()
    (x + x).mul_(2)
    assert set(torch_neuronx.get_executed_ops()) == {"aten::add.Tensor", "aten::mul_.Tensor"}


def test_written_arguments_come_back(mode):
    mode("silent")
    # In place, with a schema that says so.
    x = torch.randn(6)
    d = x.to(DEVICE)
    d.polygamma_(1)
    assert torch.allclose(d.cpu(), x.polygamma_(1), rtol=1e-4)
    # out=
    out = torch.empty(0, device=DEVICE)
    torch.special.bessel_j0(torch.ones(3, device=DEVICE), out=out)
    assert torch.allclose(out.cpu(), torch.special.bessel_j0(torch.ones(3)))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("layer", ["batch", "instance"])
def test_running_statistics_are_learned(mode, layer, dtype):
    mode("silent")
    torch.manual_seed(0)
    make = torch.nn.BatchNorm2d if layer == "batch" else lambda n: torch.nn.InstanceNorm2d(n, track_running_stats=True)
    host, device = make(3).to(dtype), make(3).to(dtype).to(DEVICE)
    x = torch.randn(4, 3, 5, 5, dtype=dtype) * 2 + 1
    a, b = host(x), device(x.to(DEVICE))
    assert torch.allclose(a, b.cpu(), atol=1e-4)
    assert torch.allclose(host.running_mean, device.running_mean.cpu(), atol=1e-5)
    assert torch.allclose(host.running_var, device.running_var.cpu(), atol=1e-4)
    host.eval(), device.eval()
    assert torch.allclose(host(x), device(x.to(DEVICE)).cpu(), atol=1e-4)


def test_random_operator_on_the_cpu_follows_the_seed(mode):
    mode("silent")
    args = torch.full((20,), 4.0, device=DEVICE)
    torch.neuron.manual_seed(4)
    a = torch.poisson(args).cpu()
    torch.neuron.manual_seed(4)
    assert torch.equal(a, torch.poisson(args).cpu())


def test_convolution(mode):
    mode("silent")
    torch.manual_seed(0)
    host = torch.nn.Conv2d(3, 4, 3, padding=1)
    device = torch.nn.Conv2d(3, 4, 3, padding=1)
    device.load_state_dict(host.state_dict())
    device.to(DEVICE)
    x = torch.randn(2, 3, 8, 8)
    a, b = x.clone().requires_grad_(), x.to(DEVICE).requires_grad_()
    host(a).square().sum().backward()
    device(b).square().sum().backward()
    assert torch.allclose(a.grad, b.grad.cpu(), atol=1e-3)
    assert torch.allclose(host.weight.grad, device.weight.grad.cpu(), atol=1e-2)
    assert torch.allclose(host.bias.grad, device.bias.grad.cpu(), atol=1e-2)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("heads", [4, 2])
def test_attention_without_the_fused_kernel(mode, causal, heads):
    """float64 has no fused kernel everywhere; gradients of masks never."""
    mode("silent")
    torch.manual_seed(0)
    q, k, v = torch.randn(2, 4, 6, 8).double(), torch.randn(2, heads, 6, 8).double(), torch.randn(2, heads, 6, 8).double()
    grads = []
    for device in ("cpu", DEVICE):
        args = [t.clone().to(device).requires_grad_() for t in (q, k, v)]
        out = torch.nn.functional.scaled_dot_product_attention(*args, is_causal=causal, enable_gqa=heads != 4)
        out.square().sum().backward()
        grads.append([out.detach().cpu()] + [t.grad.cpu() for t in args])
    for a, b in zip(*grads, strict=True):
        assert torch.allclose(a, b, atol=1e-6)


def test_operator_support():
    support = torch_neuronx.ops.operator_support()
    assert support["add.Tensor"] == "table"
    assert support["resize_"] == "glue"
    assert set(support.values()) <= {"table", "glue", "composite", "fallback"}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_grouped_products_run_by_their_parts(mode, dtype):
    """PyTorch composes _grouped_mm of products and slices: a row that covers only some calls would send the others to the CPU."""
    mode("error")
    torch.manual_seed(0)
    rows, matrices = torch.randn(16, 16, dtype=dtype), torch.randn(3, 16, 8, dtype=dtype)
    offs = torch.tensor([2, 7, 16], dtype=torch.int32)
    calls = [(rows, matrices, offs), (torch.randn(3, 4, 16, dtype=dtype), matrices, None), (torch.randn(8, 16, dtype=dtype), torch.randn(16, 16, dtype=dtype), offs)]
    for x, y, ends in calls:
        want = torch._grouped_mm(x, y, ends)
        got = torch._grouped_mm(x.to(DEVICE), y.to(DEVICE), None if ends is None else ends.to(DEVICE))
        torch.testing.assert_close(got.cpu(), want, rtol=2e-2 if dtype is torch.bfloat16 else 1e-5, atol=2e-2 if dtype is torch.bfloat16 else 1e-5)
