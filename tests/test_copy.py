"""Copies between host and device and on the device, with conversion and any strides."""

import itertools

import pytest
import torch

DEVICE = "neuron"
DTYPES = [
    torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.float16, torch.bfloat16,
    torch.float32, torch.float64, torch.complex64, torch.complex128,
]  # fmt: skip


def sample(dtype, *shape):
    g = torch.Generator().manual_seed(1)
    t = torch.randint(0, 5, shape, generator=g)
    return t.bool() if dtype == torch.bool else t.to(dtype)


@pytest.mark.parametrize("dtype", DTYPES + [torch.uint16, torch.uint32, torch.uint64, torch.float8_e4m3fn, torch.float8_e5m2])
def test_there_and_back(dtype):
    x = sample(torch.float32, 3, 5).to(dtype) if dtype.is_floating_point else sample(torch.int64, 3, 5).to(dtype)
    y = x.to(DEVICE)
    assert y.dtype == dtype and y.device.type == DEVICE
    assert torch.equal(y.cpu().view(torch.uint8), x.view(torch.uint8))


@pytest.mark.parametrize("src,dst", itertools.product(DTYPES, DTYPES))
def test_conversion(src, dst):
    x = sample(src, 4, 3)
    expected = x.to(dst)
    device = x.to(DEVICE)
    assert torch.equal(device.to(dst).cpu(), expected), "on the device"
    assert torch.equal(torch.empty(4, 3, dtype=dst, device=DEVICE).copy_(x).cpu(), expected), "to the device"
    assert torch.equal(torch.empty(4, 3, dtype=dst).copy_(device), expected), "to the host"


LAYOUTS = {
    "contiguous": lambda t: t,
    "transposed": lambda t: t.t(),
    "strided": lambda t: t[::2, 1::2],
    "offset": lambda t: t[1:],
    "expanded": lambda t: t[:, :1].expand(-1, 4),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_source_layouts(layout):
    base = torch.arange(24.0).view(6, 4)
    view, device_view = LAYOUTS[layout](base), LAYOUTS[layout](base.to(DEVICE))
    assert torch.equal(view.to(DEVICE).cpu(), view)
    assert torch.equal(device_view.cpu(), view)
    assert torch.equal(device_view.clone().cpu(), view)
    assert torch.equal(device_view.contiguous().cpu(), view)
    assert device_view.contiguous().is_contiguous()
    assert device_view.clone().stride() == view.clone().stride()
    assert device_view.to(torch.float64).stride() == view.to(torch.float64).stride()


@pytest.mark.parametrize("layout", ["contiguous", "transposed", "strided", "offset"])
@pytest.mark.parametrize("src_dtype", [torch.float32, torch.int64])
def test_destination_layouts(layout, src_dtype):
    for where in ("cpu", DEVICE):
        expected = torch.zeros(6, 4)
        target = LAYOUTS[layout](expected)
        src = torch.arange(target.numel()).to(src_dtype).view(target.shape)
        target.copy_(src)
        device = torch.zeros(6, 4, device=DEVICE)
        LAYOUTS[layout](device).copy_(src.to(where))
        assert torch.equal(device.cpu(), expected)
        host = torch.zeros(6, 4)
        LAYOUTS[layout](host).copy_(src.to(DEVICE))
        assert torch.equal(host, expected)


def test_broadcast():
    row = torch.arange(4.0)
    for src in (row, row.to(DEVICE)):
        assert torch.equal(torch.zeros(3, 4, device=DEVICE).copy_(src).cpu(), row.expand(3, 4))
    assert torch.equal(torch.zeros(3, 4).copy_(row.to(DEVICE)), row.expand(3, 4))
    with pytest.raises(RuntimeError, match="must match the size|shape"):
        torch.zeros(3, 4, device=DEVICE).copy_(torch.zeros(5))


def test_non_blocking_takes_a_snapshot():
    x = torch.ones(1 << 20)
    y = x.to(DEVICE, non_blocking=True)
    x.zero_()
    assert y.sum().item() == 1 << 20


def test_to_host_waits():
    x = torch.ones(1 << 20, device=DEVICE)
    for _ in range(5):
        x = x + 1
    host = x.to("cpu", non_blocking=True)
    assert host[-1] == 6


def test_overlapping_copy_on_the_device():
    x = torch.arange(10.0, device=DEVICE)
    expected = torch.arange(10.0)
    x[1:].copy_(x[:-1].clone())
    expected[1:].copy_(expected[:-1].clone())
    assert torch.equal(x.cpu(), expected)
    with pytest.raises(RuntimeError, match="single memory location"):
        torch.zeros(1, device=DEVICE).expand(3).copy_(torch.ones(3, device=DEVICE))


def test_lazy_conjugate_and_negative():
    z = torch.randn(3, 4, dtype=torch.complex64)
    d = z.to(DEVICE)
    assert torch.equal(d.conj().cpu().resolve_conj(), z.conj().resolve_conj())
    assert torch.equal(torch.empty_like(z).copy_(d.conj()), z.conj().resolve_conj())
    assert torch.equal(torch.empty_like(d).copy_(z.conj()).cpu(), z.conj().resolve_conj())
    assert torch.equal(d.conj().imag.cpu().resolve_neg(), z.conj().imag.resolve_neg())
    target = torch.zeros_like(d)
    target.conj().copy_(d)
    assert torch.equal(target.cpu(), z.conj().resolve_conj())


@pytest.mark.parametrize("dtype", DTYPES)
def test_item(dtype):
    x = sample(dtype, 5)
    assert x.to(DEVICE)[3].item() == x[3].item()
    assert x.to(DEVICE).tolist() == x.tolist()


def test_zero_sizes():
    x = torch.empty(0, 3, device=DEVICE)
    assert x.cpu().shape == (0, 3) and x.clone().shape == (0, 3)
    assert torch.empty(0, 3).to(DEVICE).to(torch.int64).shape == (0, 3)
    assert torch.empty(0, 3, device=DEVICE).copy_(torch.empty(0, 3)).numel() == 0


def test_memory_formats():
    x = torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last)
    y = x.to(DEVICE)
    assert y.is_contiguous(memory_format=torch.channels_last) and torch.equal(y.cpu(), x)
    z = y.to(memory_format=torch.contiguous_format)
    assert z.is_contiguous() and torch.equal(z.cpu(), x)
    assert z.clone(memory_format=torch.channels_last).is_contiguous(memory_format=torch.channels_last)
    assert torch.empty_like(y).stride() == torch.empty_like(x).stride()


def test_numpy():
    with pytest.raises(TypeError, match="can't convert neuron:0 device type tensor to numpy"):
        torch.ones(1, device=DEVICE).numpy()
    assert torch.ones(2, device=DEVICE).numpy(force=True).tolist() == [1, 1]


def test_meta_and_other_devices():
    assert torch.ones(2, device=DEVICE).to("meta").device.type == "meta"
    assert torch.empty(3, device="meta").to_empty(device=DEVICE).device.type == DEVICE if hasattr(torch.Tensor, "to_empty") else True
    m = torch.nn.Linear(2, 2, device="meta").to_empty(device=DEVICE)
    assert m.weight.device.type == DEVICE


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.uint8, torch.float32, torch.bfloat16])
def test_ranges_of_fractions(strict, dtype):
    """An integer range has whole ends and a whole step; whether they say how many elements there are differs between int64 and the others."""
    for ends in ((2.5,), (3.1,), (0.9, 8.1, 2.0), (2.1, 7.9, 1.5), (1.0, 5.000001, 2.0)):
        assert torch.equal(torch.arange(*ends, dtype=dtype, device=DEVICE).cpu(), torch.arange(*ends, dtype=dtype))
    if not dtype.is_floating_point:
        with pytest.raises((RuntimeError, ValueError), match="step must be nonzero"):
            torch.arange(0, 3, 0.5, dtype=dtype, device=DEVICE)
