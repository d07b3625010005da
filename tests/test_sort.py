"""Order among equals: torch.topk promises none, and models that take the first of many equal scores depend on the CPU's all the same."""
import random

import pytest
import torch


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64, torch.int64, torch.int8])
def test_topk_takes_the_equals_the_cpu_takes(dtype):
    random.seed(0)
    torch.manual_seed(0)
    for _ in range(60):
        n = random.choice([1, 2, 3, 5, 12, 17, 40, 300, 1000, 5000])
        k = random.choice([1, n, min(n, 4), random.randint(1, n), max(1, n // 64), max(1, n // 70)])
        x = torch.randint(0, random.choice([2, 5, 50]), (3, n)).to(dtype)
        if dtype.is_floating_point and random.random() < 0.2:
            x[x == 1] = float("nan")
        for largest in (True, False):
            values, index = x.to("neuron").topk(k, largest=largest)
            want = x.topk(k, largest=largest)
            assert torch.equal(index.cpu(), want.indices), (n, k, largest)
            torch.testing.assert_close(values.cpu(), want.values, equal_nan=True, rtol=0, atol=0)


def test_sort_is_stable():
    x = torch.randint(0, 3, (4, 300), generator=torch.Generator().manual_seed(0)).float()
    assert torch.equal(x.to("neuron").sort(dim=1).indices.cpu(), x.sort(dim=1, stable=True).indices)
