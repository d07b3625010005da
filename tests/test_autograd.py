"""Autograd and torch.func on the device: what PyTorch does above a backend must work with this one."""

import pytest
import torch
import torch.nn.functional as F
from torch.func import grad, hessian, jacfwd, jacrev, jvp, vmap


def _on_both(f, *inputs, rtol=1e-4, atol=1e-5):
    torch.neuron.clear_op_tracking()
    want = f(*inputs)
    got = f(*(x.detach().to("neuron").requires_grad_(x.requires_grad) for x in inputs))
    want, got = (r if isinstance(r, tuple) else (r,) for r in (want, got))
    for w, g in zip(want, got):
        assert g.device.type == "neuron"
        torch.testing.assert_close(g.detach().cpu(), w.detach(), rtol=rtol, atol=atol)
    assert torch.neuron.fallback_counts() == {}


def test_hooks():
    x = torch.ones(3, device="neuron", requires_grad=True)
    seen = []
    y = x * 2
    y.register_hook(lambda g: g * 3)
    y.retain_grad()
    x.register_post_accumulate_grad_hook(lambda t: seen.append(t.grad.sum().item()))
    y.sum().backward()
    assert seen == [18.0] and y.grad.tolist() == [3, 3, 3] and x.grad.tolist() == [6, 6, 6]


def test_function_with_saved_tensors():
    class Square(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx, g):
            return 2 * g * ctx.saved_tensors[0]

    x = torch.arange(3.0, device="neuron", requires_grad=True)
    Square.apply(x).sum().backward()
    assert x.grad.tolist() == [0, 2, 4]


def test_a_changed_saved_tensor_is_noticed():
    y = torch.ones(3, device="neuron", requires_grad=True).exp()
    y.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_anomaly_detection():
    with pytest.warns(UserWarning), torch.autograd.detect_anomaly(check_nan=True), pytest.raises(RuntimeError, match="returned nan values"):
        torch.tensor([-1.0], device="neuron", requires_grad=True).sqrt().sum().backward()


@pytest.mark.parametrize("pin_memory", [False, True])
def test_saved_tensors_on_the_cpu(pin_memory):
    with torch.autograd.graph.save_on_cpu(pin_memory=pin_memory, device_type="neuron"):
        x = torch.ones(3, device="neuron", requires_grad=True)
        y = x.exp().mul(2).sum()
    y.backward()
    torch.testing.assert_close(x.grad.cpu(), torch.ones(3).exp() * 2)


def test_gradients_of_gradients():
    torch.manual_seed(0)

    def second(f):
        def run(x):
            (g,) = torch.autograd.grad(f(x).sum(), x, create_graph=True)
            return torch.autograd.grad(g.square().sum(), x)[0]

        return run

    x = torch.randn(4, 4, requires_grad=True)
    _on_both(second(lambda x: F.gelu(F.layer_norm(x @ x, (4,)))), x, rtol=1e-3, atol=1e-3)
    _on_both(second(lambda x: torch.softmax(x, -1) * x.tanh()), x)
    _on_both(second(lambda x: F.conv2d(x.view(1, 1, 4, 4), x[:2, :2].reshape(1, 1, 2, 2)).pow(3)), x, rtol=1e-3, atol=1e-3)
    assert torch.autograd.gradgradcheck(lambda x: torch.sigmoid(x) @ x, torch.randn(3, 3, dtype=torch.float64, device="neuron", requires_grad=True))


def test_transforms():
    torch.manual_seed(0)
    x, w = torch.randn(3, 4), torch.randn(4, 4)
    _on_both(lambda x, w: vmap(lambda r: F.layer_norm(r @ w, (4,)))(x), x, w)
    _on_both(lambda x, w: vmap(grad(lambda r, w: (r @ w).tanh().sum(), argnums=1), in_dims=(0, None))(x, w), x, w)
    _on_both(lambda x: jvp(torch.sin, (x,), (torch.ones_like(x),))[1], x)
    _on_both(lambda x: jacrev(lambda r: r.softmax(0))(x[0]), x)
    _on_both(lambda x: jacfwd(lambda r: r.softmax(0))(x[0]), x)
    _on_both(lambda x: hessian(lambda r: r.pow(3).sum())(x[0]), x)


def test_random_numbers_under_vmap():
    x = torch.zeros(2, 8, device="neuron")
    with pytest.raises(RuntimeError, match="randomness"):
        vmap(lambda r: r + torch.randn(8, device="neuron"))(x)
    a, b = vmap(lambda r: r + torch.randn(8, device="neuron"), randomness="different")(x)
    assert not torch.equal(a, b)
    a, b = vmap(lambda r: r + torch.randn(8, device="neuron"), randomness="same")(x)
    assert torch.equal(a, b)


@pytest.mark.filterwarnings("ignore:There is a performance drop")
def test_attention_under_transforms():
    torch.manual_seed(0)
    q, k, v = (torch.randn(3, 2, 2, 5, 4) for _ in range(3))
    mask = torch.rand(3, 5, 5) > 0.3

    def causal(q, k, v):
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)

    def loss(*qkv):
        return causal(*qkv).square().sum()

    _on_both(vmap(causal), q, k, v)
    _on_both(vmap(causal, in_dims=(0, None, None)), q, k[0], v[0])
    _on_both(vmap(F.scaled_dot_product_attention), q, k, v, mask)
    _on_both(vmap(grad(loss, argnums=(0, 1, 2))), q, k, v)
    _on_both(grad(lambda *qkv: vmap(causal)(*qkv).square().sum(), argnums=(0, 1, 2)), q, k, v)


def test_gradients_without_memory():
    z = torch._efficientzerotensor((2, 3), device="neuron")
    assert z._is_zerotensor() and z.device == torch.device("neuron:0")
    assert torch.equal(z + 1, torch.ones(2, 3, device="neuron")) and (z * 5)._is_zerotensor()
    assert z.clone().sum().item() == 0 and z.cpu().tolist() == [[0, 0, 0], [0, 0, 0]]
    x = torch.ones(2, 3, device="neuron")
    assert x.copy_(z).sum().item() == 0 and z.to(torch.int32).dtype == torch.int32 and not z.t().contiguous().any()
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(torch.ones(3, device="neuron"), torch.ones(3, device="neuron"))
        assert torch.autograd.forward_ad.unpack_dual(dual.round() * dual).tangent.tolist() == [1, 1, 1]
    assert torch.neuron.fallback_counts() == {}
