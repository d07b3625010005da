"""torch.distributions whose samplers reject: gamma and what is made of it, Poisson. On the device, with its generator."""

import pytest
import torch
from torch import distributions as D


N = 40_000


pytestmark = pytest.mark.usefixtures("strict")


def on_device(*numbers, dtype=torch.float32):
    return torch.tensor(numbers, dtype=dtype, device="neuron")


CASES = {
    "gamma": lambda t: D.Gamma(on_device(0.05, 0.5, 1, 2.5, 40, 3000, dtype=t), on_device(2, dtype=t)),
    "chi2": lambda t: D.Chi2(on_device(1, 4, dtype=t)),
    "beta": lambda t: D.Beta(on_device(0.5, 2, 30, dtype=t), on_device(0.5, 5, 10, dtype=t)),
    "dirichlet": lambda t: D.Dirichlet(on_device(0.3, 2, 7, dtype=t)),
    "student": lambda t: D.StudentT(on_device(12, dtype=t)),
    "poisson": lambda t: D.Poisson(on_device(0.3, 4, 9.9, 12, 500, dtype=t)),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_moments(case, dtype):
    torch.manual_seed(1)
    d = case(dtype)
    x = d.sample((N,))
    assert x.dtype == dtype and x.device.type == "neuron"
    mean, variance = d.mean.cpu().double(), d.variance.cpu().double()
    x = x.cpu().double()
    assert ((x.mean(0) - mean).abs() < 5 * (variance / N).sqrt() + 1e-6).all()
    assert ((x.var(0) / variance - 1).abs() < 0.2).all()
    torch.manual_seed(1)
    assert torch.equal(case(dtype).sample((N,)).cpu().double(), x)
    assert not torch.equal(case(dtype).sample((N,)).cpu().double(), x)


def test_distribution_of_gamma():
    """The place of each sample in its distribution is uniform."""
    torch.manual_seed(2)
    for shape in (0.2, 0.9, 1.0, 3.0, 50.0):
        x = torch._standard_gamma(torch.full((N,), shape, device="neuron", dtype=torch.float64)).cpu()
        place = torch.special.gammainc(torch.tensor(shape, dtype=torch.float64), x).sort().values
        assert (place - (torch.arange(N) + 0.5) / N).abs().max() < 1.95 / N**0.5  # Kolmogorov and Smirnov, one in a thousand


def test_poisson_is_whole_and_refuses_negative_rates():
    assert torch.poisson(on_device(0.0, 0.0)).tolist() == [0, 0]
    x = torch.poisson(torch.full((1000,), 30.0, device="neuron", dtype=torch.bfloat16))
    assert x.dtype == torch.bfloat16 and torch.equal(x, x.floor())
    with pytest.raises(RuntimeError, match="invalid Poisson rate, expected rate to be non-negative"):
        torch.poisson(on_device(2.0, -1.0)).cpu()


@pytest.mark.parametrize("shape", [0.1, 0.5, 1.0, 2.0, 10.0, 200.0])
def test_gradient_of_gamma(shape):
    """Against differences of the quantile; PyTorch's own is good to a thousandth."""
    torch.manual_seed(3)
    shapes = torch.full((500,), shape, device="neuron", requires_grad=True)
    x = D.Gamma(shapes, torch.ones((), device="neuron")).rsample()
    x.sum().backward()
    want = torch._standard_gamma_grad(shapes.detach().cpu().double(), x.detach().cpu().double())
    torch.testing.assert_close(shapes.grad.cpu().double(), want, rtol=5e-3, atol=1e-6)
