"""PyTorch 2.13: ``flex_attention`` accepts tensors of this device.

``torch.nn.attention.flex_attention._validate_device`` knows a fixed list of devices and refuses every other one before any backend is asked. And the operator behind
it has kernels for the autocast keys of the CPU and CUDA only: autocast on another device finds none. Waits for: a list that a PrivateUse1 backend can join (or no
list), and autocast kernels that are registered for any device.
"""

from __future__ import annotations

import functools
import sys

import torch


def patch() -> None:
    module = sys.modules["torch.nn.attention.flex_attention"]
    original = getattr(module, "_validate_device", None)
    if original is None or not torch.__version__.startswith("2.13."):
        return

    @functools.wraps(original)
    def _validate_device(query, key, value):
        if query.device.type != "neuron":
            original(query, key, value)

    module._validate_device = _validate_device
    _register_autocast(module.flex_attention_hop)


def _register_autocast(hop) -> None:
    key = torch._C.DispatchKey.AutocastPrivateUse1
    if key in hop.py_kernels:
        return

    @hop.py_impl(key)
    def flex_attention(query, key_, value, *args):
        dtype = torch.get_autocast_dtype("neuron")
        query, key_, value = (t.to(dtype) if t.is_floating_point() and t.dtype != torch.float64 else t for t in (query, key_, value))
        with torch._C._ExcludeDispatchKeyGuard(torch._C.DispatchKeySet(key)):
            return hop(query, key_, value, *args)
