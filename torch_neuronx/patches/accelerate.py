"""Accelerate 1.x: ``device_map="auto"`` finds this device.

``accelerate.utils.modeling.get_max_memory`` asks a fixed list of devices for their free memory, and CUDA for want of another: a machine whose accelerator is
``neuron`` has none, and ``"auto"``, ``"balanced"`` and ``"sequential"`` silently mean the CPU. Waits for: ``get_max_memory`` asking ``torch.accelerator``, or a
branch of it for ``is_neuron_available``.
"""

from __future__ import annotations

import functools
import sys

import torch


def patch() -> None:
    import importlib.metadata

    module = sys.modules["accelerate.utils.modeling"]
    if importlib.metadata.version("accelerate").split(".")[0] != "1" or hasattr(module, "is_neuron_available"):
        return
    original = module.get_max_memory

    @functools.wraps(original)
    def get_max_memory(max_memory=None):
        found = original(max_memory)
        if max_memory is not None or any(key != "cpu" for key in found) or not torch.neuron.is_available():
            return found
        devices = {i: torch.neuron.mem_get_info(i)[0] for i in range(torch.neuron.device_count())}
        # A device that is a share of this machine's processor has the host's memory, which counts once.
        return devices if torch.neuron.get_device_properties(0).driver == "host" else devices | found

    module.get_max_memory = get_max_memory
