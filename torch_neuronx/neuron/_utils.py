"""Helpers of the device module."""

from __future__ import annotations

import torch
from torch import _C as _torch_C


def _get_device_index(device: object, optional: bool = False, allow_cpu: bool = False) -> int:
    """The index of a device given as an int, a string, a ``torch.device`` or None (the current one, if ``optional``)."""
    if device is None and not optional:
        raise ValueError(f"Expected a torch.device with a specified index or an integer, but got:{device}")
    if isinstance(device, bool):
        raise TypeError(f"expected a device, got {device!r}")
    if isinstance(device, int):
        return device if device >= 0 else _torch_C._accelerator_getDeviceIndex()
    if device is None:
        return _torch_C._accelerator_getDeviceIndex()
    if isinstance(device, str):
        device = torch.device(device)
    if not isinstance(device, torch.device):
        raise TypeError(f"expected a device, got {device!r}")
    if allow_cpu and device.type == "cpu":
        return -1
    if device.type != "neuron":
        raise ValueError(f"Expected a neuron device, but got: {device}")
    return _torch_C._accelerator_getDeviceIndex() if device.index is None else device.index
