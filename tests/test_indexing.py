"""Indexed writes: sums of halves are kept in float32 and rounded once."""

import pytest
import torch


@pytest.mark.parametrize("dtype, large", [(torch.bfloat16, 288), (torch.float16, 2048)], ids=str)
@pytest.mark.parametrize("shape, dim", [((3,), 0), ((1, 1, 3), 2), ((3, 4), 0), ((4, 3), 1)])
def test_sums_of_halves(shape, dim, dtype, large):
    """A number so large that one more is lost in its dtype, and eight ones at the same place."""
    x = torch.full(shape, large, dtype=dtype, device="neuron")
    ones = torch.ones([8 if d == dim else n for d, n in enumerate(shape)], dtype=dtype, device="neuron")
    place = torch.ones(8, dtype=torch.int64, device="neuron")
    spread = place.reshape([8 if d == dim else 1 for d in range(len(shape))]).expand(ones.shape)
    where = [slice(None)] * dim + [place]
    results = [x.index_add(dim, place, ones), x.scatter_add(dim, spread, ones), x.scatter_reduce(dim, spread, ones, "sum"), x.clone().index_add_(dim, place, ones)]
    if dim == 0:
        results.append(x.index_put(where, ones, accumulate=True))
    for got in results:
        assert got.select(dim, 1).eq(large + 8).all() and got.select(dim, 0).eq(large).all()
