"""Transformers 5.x: ``pipeline(..., device=0)``, and a pipeline for which no device is named, are on this device.

``Pipeline.__init__`` (``transformers/pipelines/base.py``) turns a number into a device by a fixed list of accelerators, and into the CPU for want of one. No name,
hook or environment variable adds to the list. Waits for: a branch of it for ``is_torch_neuron_available``, which Transformers has, or for ``torch.accelerator``.
"""

from __future__ import annotations

import functools
import inspect
import sys

import torch


def patch() -> None:
    import importlib.metadata

    module = sys.modules["transformers.pipelines.base"]
    if importlib.metadata.version("transformers").split(".")[0] != "5" or hasattr(module, "is_torch_neuron_available"):
        return
    original = module.Pipeline.__init__
    signature = inspect.signature(original)

    def is_ours(device) -> bool:
        return type(device) is int and device >= 0 and torch.neuron.is_available() and torch.accelerator.current_accelerator().type == "neuron"

    @functools.wraps(original)
    def __init__(self, *args, **kwargs):
        call = signature.bind(self, *args, **kwargs)
        placed = getattr(call.arguments["model"], "hf_device_map", None)
        device = call.arguments.get("device")
        if placed is not None:
            # Accelerate has placed the model, and moves the inputs: the pipeline goes by its first device, and takes no other.
            original(*call.args, **call.kwargs)
            first = next(iter(placed.values()))
            if device is None and is_ours(first):
                self.device = torch.device("neuron", first)
            return
        number = 0 if device is None else device
        if is_ours(number):
            call.arguments["device"] = torch.device("neuron", number)
        original(*call.args, **call.kwargs)

    module.Pipeline.__init__ = __init__
