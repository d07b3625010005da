"""DLPack for the device.

The C side of PyTorch exports and imports PrivateUse1 tensors as ``kDLExtDev``; ``Tensor.__dlpack_device__`` knows that type only under the name
``privateuse1``, which the device does not have any more.
"""

from __future__ import annotations

import functools

import torch


def register() -> None:
    """Makes ``Tensor.__dlpack_device__`` (and so ``torch.from_dlpack``) know tensors of the device."""
    plain = torch.Tensor.__dlpack_device__
    if hasattr(plain, "_knows_neuron"):
        return

    @functools.wraps(plain)
    def dlpack_device(self):
        if self.device.type != "neuron" or torch.overrides.has_torch_function_unary(self):
            return plain(self)
        from torch.utils.dlpack import DLDeviceType

        return DLDeviceType.kDLExtDev, self.device.index

    dlpack_device._knows_neuron = True  # type: ignore[attr-defined]
    torch.Tensor.__dlpack_device__ = dlpack_device  # type: ignore[method-assign]
