"""Pooling windows larger than the input: with ceil_mode one is a result (EfficientNet's last average is over 2560 x 2560) and costs what the input does."""

import pytest
import torch
import torch.nn.functional as F


@pytest.mark.parametrize("size, kernel, padding", [((7, 7), 2560, 0), ((5, 4), 9, 2), ((6, 6), 7, 3), ((4, 5), (9, 6), (0, 2))])
@pytest.mark.parametrize("pool", [F.avg_pool2d, lambda *args, **options: F.avg_pool2d(*args, count_include_pad=False, **options), F.max_pool2d])
def test_windows_larger_than_the_input(pool, size, kernel, padding):
    def run(x):
        x = x.requires_grad_()
        y = pool(x, kernel, kernel, padding, ceil_mode=True)
        return y, *torch.autograd.grad(y.square().sum(), x)

    x = torch.randn(2, 3, *size)
    for got, want in zip(run(x.to("neuron")), run(x), strict=True):
        torch.testing.assert_close(got.cpu(), want)
    with pytest.raises(RuntimeError, match="too small"):
        pool(x.to("neuron"), 20, 20)
