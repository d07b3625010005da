"""Wrong calls fail with PyTorch's own exceptions and words."""

import pytest
import torch

DEVICE = "neuron"


def both(f):
    """The exceptions that f raises on the CPU and on the device."""
    out = []
    for device in ("cpu", DEVICE):
        with pytest.raises(Exception) as e:
            f(device)
        out.append(e.value)
    return out


def ints(device, n):
    return [torch.ones(2, dtype=torch.long, device=device)] * n


def conv(device, x, weight, bias=None, transposed=False, **how):
    f = torch.nn.functional
    name = f"conv_transpose{len(x) - 2}d" if transposed else f"conv{len(x) - 2}d"
    return getattr(f, name)(torch.ones(x, device=device), torch.ones(weight, device=device), torch.ones(bias, device=device) if bias else None, **how)


CALLS = {
    "broadcast": lambda d: torch.ones(3, device=d) + torch.ones(4, device=d),
    "mm": lambda d: torch.ones(2, 3, device=d) @ torch.ones(4, 5, device=d),
    "inplace_broadcast": lambda d: torch.ones(3, device=d).add_(torch.ones(2, 3, device=d)),
    "inplace_dtype": lambda d: torch.ones(3, dtype=torch.long, device=d).add_(1.5),
    "cat": lambda d: torch.cat([torch.ones(2, 3, device=d), torch.ones(3, 4, device=d)]),
    "dim": lambda d: torch.ones(2, device=d).sum(3),
    "view": lambda d: torch.ones(2, 3, device=d).view(5),
    "reshape": lambda d: torch.ones(2, 3, device=d).reshape(4, 4),
    "select": lambda d: torch.ones(2, 3, device=d)[4],
    "softmax_dim": lambda d: torch.softmax(torch.ones(2, device=d), 2),
    "bool_sub": lambda d: torch.ones(2, dtype=torch.bool, device=d) - torch.ones(2, dtype=torch.bool, device=d),
    "alpha_bool": lambda d: torch.add(*ints(d, 2), alpha=True),
    "alpha_bool_of_floats": lambda d: torch.ones(2, device=d).add_(torch.ones(2, device=d), alpha=True),
    "alpha_float": lambda d: torch.sub(*ints(d, 2), alpha=1.5),
    "alpha_complex": lambda d: torch.ones(2, device=d).add_(torch.ones(2, device=d), alpha=1j),
    "alpha_of_product": lambda d: torch.addmm(*[torch.ones(2, 2, device=d)] * 3, alpha=1j),
    "beta_of_product": lambda d: torch.baddbmm(*[torch.ones(1, 2, 2, dtype=torch.long, device=d)] * 3, beta=1j),
    "alpha_of_addr": lambda d: torch.addr(torch.ones(2, 2, dtype=torch.long, device=d), *ints(d, 2), alpha=1.5),
    "value": lambda d: torch.addcmul(*ints(d, 3), value=1j),
    "rsub_bool": lambda d: torch.rsub(torch.ones(2, dtype=torch.bool, device=d), 1),
    "inplace_complex": lambda d: torch.ones(2, device=d).mul_(1j),
    "inplace_float": lambda d: torch.ones(2, dtype=torch.long, device=d).mul_(1.5),
    "inplace_bool": lambda d: torch.ones(2, dtype=torch.bool, device=d).mul_(2),
    "fill_complex": lambda d: torch.ones(2, device=d).fill_(1j),
    "conv_channels": lambda d: conv(d, (1, 5, 6, 6), (4, 2, 3, 3)),
    "conv_groups": lambda d: conv(d, (1, 4, 6, 6), (3, 2, 3, 3), groups=2),
    "conv_no_groups": lambda d: conv(d, (1, 4, 6, 6), (4, 4, 3, 3), groups=0),
    "conv_padding": lambda d: conv(d, (1, 4, 6, 6), (4, 4, 3, 3), padding=-1),
    "conv_stride": lambda d: conv(d, (1, 4, 6, 6), (4, 4, 3, 3), stride=0),
    "conv_kernel": lambda d: conv(d, (1, 4, 2, 2), (4, 4, 3, 3)),
    "conv_rank": lambda d: conv(d, (1, 4, 6, 6), (4, 4, 3)),
    "conv_bias": lambda d: conv(d, (1, 4, 6, 6), (4, 4, 3, 3), (5,)),
    "conv_transpose_padding": lambda d: conv(d, (1, 4, 6, 6), (4, 2, 3, 3), transposed=True, output_padding=1),
    "conv_transpose_1d": lambda d: conv(d, (1, 4, 6), (4, 2, 3), transposed=True, stride=2, output_padding=2),
    "conv_transpose_3d": lambda d: conv(d, (1, 4, 6, 6, 6), (4, 2, 3, 3, 3), transposed=True, stride=2, dilation=2, output_padding=3),
    "max_pool_padding": lambda d: torch.nn.functional.max_pool2d(torch.ones(1, 2, 6, 6, device=d), 3, 1, 2),
    "max_pool_stride": lambda d: torch.nn.functional.max_pool2d(torch.ones(1, 2, 6, 6, device=d), 3, 0),
    "max_pool_kernel": lambda d: torch.nn.functional.max_pool2d(torch.ones(1, 2, 2, 2, device=d), 5),
    "avg_pool_channels": lambda d: torch.nn.functional.avg_pool2d(torch.ones(2, 0, 6, 6, device=d), 3),
    "avg_pool_divisor": lambda d: torch.nn.functional.avg_pool2d(torch.ones(1, 2, 6, 6, device=d), 3, divisor_override=0),
    "avg_pool_rank": lambda d: torch.nn.functional.avg_pool3d(torch.ones(6, 6, 6, device=d), 3),
    "out_dtype": lambda d: torch.add(torch.ones(2, device=d), 1, out=torch.empty(2, dtype=torch.long, device=d)),
}


@pytest.mark.parametrize("name", CALLS)
def test_same_error_as_the_cpu(name):
    cpu, device = both(CALLS[name])
    assert type(device) is type(cpu)
    assert str(device).split("\n")[0] == str(cpu).split("\n")[0]


_I8 = {"dtype": torch.int8}
TOO_LARGE = {
    "clamp": lambda d: torch.ones(3, device=d, **_I8).clamp(max=300),
    "masked_fill": lambda d: torch.ones(3, device=d, **_I8).masked_fill_(torch.ones(3, dtype=torch.bool, device=d), -300),
    "masked_fill_half": lambda d: torch.ones(3, dtype=torch.half, device=d).masked_fill(torch.ones(3, dtype=torch.bool, device=d), -1e9),
    "index_fill": lambda d: torch.ones(3, device=d, **_I8).index_fill(0, torch.tensor([0], device=d), 300),
    "scatter": lambda d: torch.ones(3, device=d, **_I8).scatter(0, torch.tensor([0], device=d), 300),
    "pad": lambda d: torch.nn.functional.pad(torch.ones(3, device=d, **_I8), (1, 1), value=300),
    "threshold": lambda d: torch.nn.functional.threshold(torch.ones(3, device=d, **_I8), 0, 300),
    "hardtanh": lambda d: torch.nn.functional.hardtanh(torch.ones(3, device=d, **_I8), -300, 300),
    "element": lambda d: torch.ones(3, device=d, **_I8).__setitem__(0, 300),
    "full_like": lambda d: torch.full_like(torch.ones(3, device=d, **_I8), 300),
    "new_full": lambda d: torch.ones(3, device=d, **_I8).new_full((2,), 300),
}


@pytest.mark.parametrize("name", TOO_LARGE)
def test_numbers_that_do_not_fit(name):
    cpu, device = both(TOO_LARGE[name])
    assert type(device) is type(cpu) and str(device).split("\n")[0] == str(cpu).split("\n")[0]


_INF, _NAN = float("inf"), float("nan")
_NUMBERS = {
    torch.bool: [5, 0.5],
    torch.uint8: [255, 256, -1, -255, -256, 255.5],
    torch.int8: [127, 128, 127.9, -128, -128.5, -129],
    torch.uint16: [65535, 65536],
    torch.int32: [2**31 - 1, 2**31, -(2**31), 1 + 0j, 1 + 2j],
    torch.int64: [2**63 - 1, 1e19, -1e19, -(2.0**63), _NAN],
    torch.float16: [65504, 65505.0, 1e6, _INF, _NAN],
    torch.bfloat16: [3e38, 1e39, -_INF],
    torch.float32: [1e38, 1e39, _INF, _NAN, 1 + 0j, 1 + 2j],
    torch.float64: [1e308],
    torch.complex64: [1e38, 1e39, 1 + 2j, 1e39j],
    torch.float8_e4m3fn: [448.0, 449.0, _INF],
    torch.float8_e5m2: [57344.0, 6e4, _INF],
}


@pytest.mark.parametrize(("dtype", "number"), [(t, n) for t, numbers in _NUMBERS.items() for n in numbers], ids=str)
def test_which_numbers_fit(dtype, number):
    results = []
    for device in ("cpu", DEVICE):
        try:
            results.append(torch.full((2,), number, dtype=dtype, device=device).cpu().view(torch.uint8).tolist())
        except RuntimeError as error:
            results.append(str(error).split("\n")[0])
    assert results[0] == results[1]


@pytest.mark.parametrize("name", ["broadcast", "mm"])
def test_error_is_repeated_after_a_good_call(name):
    """The check against PyTorch's rules must not be skipped because a similar call went well before."""
    torch.ones(3, device=DEVICE) + torch.ones(3, device=DEVICE)
    torch.ones(2, 3, device=DEVICE) @ torch.ones(3, 5, device=DEVICE)
    for _ in range(2):
        cpu, device = both(CALLS[name])
        assert str(device).split("\n")[0] == str(cpu).split("\n")[0]


def test_mixed_devices():
    x, y = torch.ones(3, device=DEVICE), torch.ones(3)
    for f in (lambda: x + y, lambda: y + x, lambda: x.add_(y), lambda: torch.cat([x, y])):
        with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device.*neuron:0.*cpu|cpu.*neuron:0"):
            f()


def test_cpu_scalars_are_allowed():
    x = torch.ones(3, device=DEVICE)
    assert (x + torch.tensor(2.0)).tolist() == [3, 3, 3]
    assert (torch.tensor(2.0) * x).tolist() == [2, 2, 2]
    assert (x + torch.tensor(2.0, dtype=torch.float64)).dtype == torch.float32
    assert (torch.ones(3, dtype=torch.long, device=DEVICE) + torch.tensor(2.5)).dtype == torch.float32
    assert (torch.ones(3, dtype=torch.long, device=DEVICE) + 2.5).tolist() == [3.5] * 3
    x += torch.tensor(1)
    assert x.tolist() == [2, 2, 2]


def test_indices_may_be_on_the_cpu():
    x = torch.arange(12.0, device=DEVICE).view(3, 4)
    i = torch.tensor([2, 0])
    assert torch.equal(x[i].cpu(), x.cpu()[i])
    mask = torch.tensor([True, False, True])
    assert torch.equal(x[mask].cpu(), x.cpu()[mask])
    x[i] = 0.0
    assert x[2].tolist() == [0] * 4


def test_index_out_of_range():
    x = torch.arange(4.0, device=DEVICE)
    with pytest.raises((IndexError, RuntimeError), match="out of (bounds|range)"):
        x[torch.tensor([9], device=DEVICE)]
        torch.neuron.synchronize()


def test_out_of_memory_type():
    with pytest.raises(torch.OutOfMemoryError):
        torch.empty(1 << 60, dtype=torch.uint8, device=DEVICE)


def test_device_still_works_after_errors():
    for f in CALLS.values():
        with pytest.raises(Exception):  # noqa: B017
            f(DEVICE)
    assert (torch.ones(3, device=DEVICE) + 1).tolist() == [2, 2, 2]
