"""DLPack: neuron tensors travel as kDLExtDev, without a copy."""

import gc

import numpy
import pytest
import torch
from torch.utils.dlpack import DLDeviceType, from_dlpack, to_dlpack

_DTYPES = [
    torch.bool, torch.uint8, torch.int16, torch.int64, torch.uint16, torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64,
    torch.float8_e4m3fn,
]  # fmt: skip


def test_device():
    assert torch.ones(2, device="neuron").__dlpack_device__() == (DLDeviceType.kDLExtDev, 0)
    assert torch.ones(2).__dlpack_device__() == (DLDeviceType.kDLCPU, 0)


@pytest.mark.parametrize("dtype", _DTYPES, ids=str)
def test_round_trip_shares_memory(dtype):
    x = torch.arange(12, device="neuron").to(dtype).view(3, 4).t()[1:]
    for y in (torch.from_dlpack(x), from_dlpack(to_dlpack(x))):
        assert y.dtype == dtype and y.device == x.device and y.shape == x.shape and y.stride() == x.stride()
        assert y.data_ptr() == x.data_ptr()
    y.zero_()
    assert not x.cpu().to(torch.complex64).any()


def test_copy_and_device():
    x = torch.arange(3.0, device="neuron")
    y = torch.from_dlpack(x, copy=True)
    assert y.data_ptr() != x.data_ptr() and torch.equal(x, y)
    assert torch.from_dlpack(x, device="neuron").data_ptr() == x.data_ptr()
    assert torch.from_dlpack(x, device="cpu").tolist() == [0, 1, 2]
    assert torch.from_dlpack(numpy.ones(2), device="neuron").device.type == "neuron"
    with pytest.raises(ValueError, match="without copying"):
        torch.from_dlpack(x, device="cpu", copy=False)


def test_a_capsule_keeps_the_memory():
    capsule = to_dlpack(torch.full((1000,), 3.0, device="neuron"))
    gc.collect()
    torch.zeros(1000, device="neuron")
    before = torch.neuron.memory_allocated()
    assert from_dlpack(capsule).sum().item() == 3000
    del capsule
    gc.collect()
    assert torch.neuron.memory_allocated() < before


def test_refused():
    with pytest.raises(BufferError, match="require gradient"):
        torch.from_dlpack(torch.ones(2, device="neuron", requires_grad=True))
    with pytest.raises((RuntimeError, BufferError)):
        numpy.from_dlpack(torch.ones(2, device="neuron"))  # not memory that a program may read


def test_subclass_decides_for_itself():
    class Tagged(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            return (1, 7) if func is torch.Tensor.__dlpack_device__ else super().__torch_function__(func, types, args, kwargs or {})

    assert torch.ones(2, device="neuron").as_subclass(Tagged).__dlpack_device__() == (1, 7)
