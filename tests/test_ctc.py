"""CTC loss and its gradient on the device, and complex random numbers: cases that the recorded calls do not reach."""

import pytest
import torch

DEVICE = "neuron"


@pytest.fixture(autouse=True)
def native_only():
    before = dict(torch.neuron.fallback_counts())
    yield
    assert dict(torch.neuron.fallback_counts()) == before


@pytest.mark.parametrize("zero_infinity", [False, True])
@pytest.mark.parametrize("joined", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_ctc(dtype, joined, zero_infinity):
    torch.manual_seed(3)
    frames, samples, classes = 13, 5, 6
    log_probs = torch.randn(frames, samples, classes, dtype=dtype).log_softmax(2)
    # the third target does not fit into its one frame, the fourth is empty, the first repeats one label
    frames_of, lengths = torch.tensor([13, 9, 1, 4, 13]), torch.tensor([5, 3, 2, 0, 5])
    targets = torch.randint(1, classes, (samples, 5))
    targets[0] = 1
    if joined:
        targets = torch.cat([targets[i, : lengths[i]] for i in range(samples)])
    for reduction in ("none", "mean", "sum"):
        results = []
        for device in ("cpu", DEVICE):
            x = log_probs.to(device, copy=True).requires_grad_()
            loss = torch.nn.functional.ctc_loss(x, targets.to(device), frames_of, lengths, reduction=reduction, zero_infinity=zero_infinity)
            loss.backward(torch.ones_like(loss))
            results.append((loss.detach().cpu(), x.grad.cpu()))
        torch.testing.assert_close(results[1], results[0], rtol=1e-4, atol=1e-5, equal_nan=True)


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
def test_complex_random(dtype):
    torch.manual_seed(0)
    z = torch.empty(50000, dtype=dtype, device=DEVICE).normal_(1, 2).cpu()
    assert abs(z.mean() - 1) < 0.05 and abs(z.real.std() - 2**0.5) < 0.03 and abs(z.imag.std() - 2**0.5) < 0.03
    u = torch.empty(50000, dtype=dtype, device=DEVICE).uniform_(1, 3).cpu()
    assert abs(u.mean() - (2 + 2j)) < 0.03
    for pair in (torch.view_as_real(z), torch.view_as_real(u)):
        assert abs(torch.corrcoef(pair.T)[0, 1]) < 0.03  # independent parts
    assert 1 <= u.real.min() and u.real.max() <= 3 and 1 <= u.imag.min() and u.imag.max() <= 3
    assert torch.randn(7, dtype=dtype, device=DEVICE).cpu().isfinite().all() and torch.rand_like(u.to(DEVICE)).cpu().real.max() < 1


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
def test_complex_logaddexp(dtype):
    inf, nan = float("inf"), float("nan")
    s = [complex(-inf, 1), complex(inf, 2), complex(nan, 0), complex(0, nan), complex(-inf, 0), complex(inf, 0), complex(3, 1), -2j]
    s = torch.tensor(s, dtype=dtype)
    x, y = s[:, None].expand(8, 8), s.expand(8, 8)
    torch.testing.assert_close(torch.logaddexp(x.to(DEVICE), y.to(DEVICE)).cpu(), torch.logaddexp(x, y), equal_nan=True)
    z = torch.randn(3, 9, dtype=dtype)
    for dim in (0, 1):
        torch.testing.assert_close(torch.logcumsumexp(z.to(DEVICE), dim).cpu(), torch.logcumsumexp(z, dim))
        torch.testing.assert_close(torch.logsumexp(z.to(DEVICE), dim).cpu(), torch.logsumexp(z, dim))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.int32, torch.bool])
def test_hash(dtype):
    inf, nan = float("inf"), float("nan")
    x = torch.tensor([[0.0, -0.0, 1.5, -2.25], [inf, -inf, nan, 5e-324], [1e-310, -3e-308, 1.7e308, 7.0]], dtype=torch.float64)
    x = x.to(dtype) if dtype.is_floating_point else x.nan_to_num(0, 3, -3).clamp(-9, 9).to(dtype)
    for kw in ({}, {"dim": 1}, {"dim": (0, 1)}, {"dim": 0, "keepdim": True}):
        want, got = torch.hash_tensor(x, **kw), torch.hash_tensor(x.to(DEVICE), **kw).cpu()
        assert got.dtype == want.dtype and got.tolist() == want.tolist()
