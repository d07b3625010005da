"""Data that PyTorch's CPU kernels refuse: the same exception and words, at the next synchronisation at the latest, and the device goes on."""

import pytest
import torch

from torch_neuronx import _C

DEVICE = "neuron"
f = torch.nn.functional


def t(d, *values, dtype=None):
    return torch.tensor(values, dtype=dtype).to(d)


INTEGERS = [torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8]
CASES = {
    "multinomial_negative": lambda d: torch.multinomial(t(d, 0.5, -0.5), 1),
    "multinomial_nan": lambda d: torch.multinomial(t(d, 0.5, float("nan")), 1),
    "multinomial_infinite": lambda d: torch.multinomial(t(d, 0.5, float("inf")), 2),
    "multinomial_nothing": lambda d: torch.multinomial(t(d, 0.0, 0.0), 1),
    "multinomial_nothing_in_a_row": lambda d: torch.multinomial(torch.tensor([[0.5, 0.5], [0.0, 0.0]]).to(d), 2, replacement=True),
    "multinomial_negative_replaced": lambda d: torch.multinomial(t(d, 0.5, -1.0), 2, replacement=True),
    "bernoulli": lambda d: torch.bernoulli(t(d, 0.5, 1.5)),
    "bernoulli_of_tensor": lambda d: torch.ones(2).to(d).bernoulli_(t(d, 0.5, -1.5)),
    "normal": lambda d: torch.normal(t(d, 0.0, 0.0), t(d, 1.0, -1.0)),
    "bce_input": lambda d: f.binary_cross_entropy(t(d, 0.5, 1.5), t(d, 0.0, 1.0)),
    "bce_nan": lambda d: f.binary_cross_entropy(t(d, 0.5, float("nan")), t(d, 0.0, 1.0), reduction="none"),
    "bce_target": lambda d: f.binary_cross_entropy(t(d, 0.5, 0.5), t(d, 0.0, -1.0)),
    "bce_bfloat16": lambda d: f.binary_cross_entropy(t(d, 0.5, 2.0).bfloat16(), t(d, 0.0, 1.0).bfloat16()),
    "masked_scatter": lambda d: torch.zeros(4).to(d).masked_scatter(torch.ones(4, dtype=torch.bool).to(d), t(d, 1.0, 2.0)),
    "bincount": lambda d: torch.bincount(t(d, 1, -1)),
    "remainder_of_number": lambda d: torch.remainder(7, t(d, 1, 0)),
    "in_place_division": lambda d: t(d, 1, 0).floor_divide_(t(d, 1, 0)),
}
for dtype in INTEGERS:
    for name, op in {
        "floor": lambda x, y: torch.div(x, y, rounding_mode="floor"), "trunc": lambda x, y: torch.div(x, y, rounding_mode="trunc"),
        "floor_divide": torch.floor_divide, "fmod": torch.fmod, "remainder": torch.remainder,
    }.items():  # fmt: skip
        CASES[f"{name}_{dtype}"] = lambda d, op=op, dtype=dtype: op(t(d, 1, 2, 3, dtype=dtype), t(d, 1, 0, 2, dtype=dtype))
        CASES[f"{name}_number_{dtype}"] = lambda d, op=op, dtype=dtype: op(t(d, 1, 2, 3, dtype=dtype), 0)
for at in (7, -1, -7):
    x, i = lambda d: torch.ones(4, 3).to(d), lambda d, at=at: t(d, 0, at)
    CASES |= {
        f"embedding_{at}": lambda d, i=i, x=x: f.embedding(i(d), x(d)),
        f"gather_{at}": lambda d, i=i, x=x: x(d).gather(0, i(d).view(2, 1)),
        f"gather_last_{at}": lambda d, i=i, x=x: x(d).gather(1, i(d).view(2, 1)),
        f"scatter_{at}": lambda d, i=i, x=x: x(d).scatter(0, i(d).view(2, 1), 2.0),
        f"scatter_add_{at}": lambda d, i=i, x=x: x(d).scatter_add(1, i(d).view(2, 1), x(d)),
        f"scatter_reduce_{at}": lambda d, i=i, x=x: x(d).scatter_reduce(1, i(d).view(2, 1), x(d), "amax"),
        f"index_select_{at}": lambda d, i=i, x=x: x(d).index_select(0, i(d)),
        f"index_add_{at}": lambda d, i=i, x=x: x(d).index_add(0, i(d), x(d)[:2]),
        f"index_add_vector_{at}": lambda d, i=i: torch.ones(4).to(d).index_add(0, i(d), torch.ones(2).to(d)),
        f"index_copy_{at}": lambda d, i=i, x=x: x(d).index_copy(0, i(d), x(d)[:2]),
        f"index_reduce_{at}": lambda d, i=i, x=x: x(d).index_reduce(0, i(d), x(d)[:2], "prod"),
        f"nll_{at}": lambda d, i=i: f.nll_loss(torch.ones(2, 4).to(d), i(d)),
        f"nll_weight_{at}": lambda d, i=i: f.nll_loss(torch.ones(2, 4).to(d), i(d), torch.ones(4).to(d), reduction="none"),
        f"nll_2d_{at}": lambda d, i=i: f.nll_loss(torch.ones(1, 4, 1, 2).to(d), i(d).view(1, 1, 2)),
        f"nll_backward_{at}": lambda d, i=i: torch.ops.aten.nll_loss_backward(t(d, 1.0)[0], torch.ones(2, 4).to(d), i(d), None, 1, -100, t(d, 2.0)[0]),
        f"cross_entropy_{at}": lambda d, i=i: f.cross_entropy(torch.ones(2, 4).to(d), i(d)),
    }
    if at != -1:
        CASES |= {
            f"index_{at}": lambda d, i=i, x=x: x(d)[i(d)],
            f"index_second_{at}": lambda d, i=i, x=x: x(d)[t(d, 0, 1), i(d)],
            f"index_put_{at}": lambda d, i=i, x=x: x(d).index_put((i(d),), x(d)[:2], accumulate=True),
            f"index_fill_{at}": lambda d, i=i, x=x: x(d).index_fill(0, i(d), 2.0),
            f"take_{at}": lambda d, i=i: torch.ones(2, 2).to(d).take(i(d)),
            f"put_{at}": lambda d, i=i: torch.ones(2, 2).to(d).put(i(d), torch.ones(2).to(d)),
        }


@pytest.mark.parametrize("name", CASES)
def test_fault(name):
    with pytest.raises(Exception) as cpu:
        CASES[name]("cpu")
    with pytest.raises(type(cpu.value)) as device:
        CASES[name](DEVICE)
        torch.neuron.synchronize()
    said = str(device.value).split("\n")[0]
    assert said.endswith(str(cpu.value).split("\n")[0])
    assert type(device.value) is type(cpu.value)
    assert (torch.ones(3, device=DEVICE) + 1).tolist() == [2, 2, 2]


def test_the_operator_and_its_shapes_are_named():
    with pytest.raises(IndexError, match=r"aten::embedding\(float32\[4, 2\], int64\[1\]\): index out of range in self"):
        f.embedding(t(DEVICE, 9), torch.ones(4, 2, device=DEVICE))
        torch.neuron.synchronize()


def test_good_data_is_not_refused():
    assert torch.floor_divide(torch.zeros(0, dtype=torch.long, device=DEVICE), 0).shape == (0,)
    assert torch.floor_divide(t(DEVICE, 7, -7), t(DEVICE, 2, 2)).tolist() == [3, -4]
    assert torch.ones(4, device=DEVICE).index_fill(0, t(DEVICE, -1), 0.0).tolist() == [1, 1, 1, 0]
    assert torch.ones(4, device=DEVICE).take(t(DEVICE, -4, 3)).tolist() == [1, 1]
    assert f.binary_cross_entropy(t(DEVICE, 0.0, 1.0), t(DEVICE, 0.0, 1.0)).item() == 0
    assert f.nll_loss(torch.zeros(2, 4, device=DEVICE), t(DEVICE, 1, -100)).item() == 0
    assert torch.multinomial(t(DEVICE, 0.0, 1.0), 3, replacement=True).tolist() == [1, 1, 1]
    assert torch.bernoulli(t(DEVICE, 0.0, 1.0)).tolist() == [0, 1]
    torch.neuron.synchronize()


def test_faults_of_compiled_graphs():
    @torch.compile(backend="neuron")
    def fused(x, y):
        return (x * 2) // y + 1

    x = torch.arange(1, 5, device=DEVICE)
    assert fused(x, x).tolist() == [3, 3, 3, 3]
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        fused(x, x - 1)
        torch.neuron.synchronize()


def test_one_hot_as_one_operator():
    """PyTorch takes one_hot apart for this device in eager and in traces; the row itself has PyTorch's checks."""
    builder = _C.GraphBuilder("one_hot")
    builder.output(builder.call("one_hot", (builder.input(torch.int64, [2], [1], False), 3), {}, None)[0], None, None)
    plan = builder.compile()
    assert plan.run([t(DEVICE, 0, 2)], [])[0].tolist() == [[1, 0, 0], [0, 0, 1]]
    for bad, words in ((-1, "Class values must be non-negative."), (3, "Class values must be smaller than num_classes.")):
        with pytest.raises(RuntimeError, match=words):
            plan.run([t(DEVICE, 0, bad)], [])
            torch.neuron.synchronize()
