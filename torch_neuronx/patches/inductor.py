"""PyTorch 2.13: ``torch.compile(f)`` without a backend compiles graphs of this device.

``torch.compile`` means Inductor where the caller names nothing, and Inductor generates loops for devices that have a code generator of its kind; for another
it ends in a ``KeyError`` with the device's name. Graphs with a tensor of this device go to the backend ``neuron`` instead, whether or not Inductor was named;
every other graph is Inductor's, as is each choice that ``torch.compile`` makes before it sees a graph.
Why not ``set_default_backend``: docs/decisions/default-backend.md.
Waits for: Inductor handing a device's graphs to a whole-graph compiler that the device registers.
"""

from __future__ import annotations

import functools
import itertools
import warnings
from typing import Any

import torch


def _uses_neuron(gm: Any, inputs: Any) -> bool:
    """Whether some tensor of the graph is on the device: an input, a parameter, or one made inside."""
    made = (node.meta.get("example_value", node.meta.get("val")) for node in gm.graph.nodes) if isinstance(gm, torch.fx.GraphModule) else ()
    held = itertools.chain(gm.parameters(), gm.buffers()) if isinstance(gm, torch.nn.Module) else ()
    return any(isinstance(x, torch.Tensor) and x.device.type == "neuron" for x in itertools.chain(inputs, held, made))


def patch() -> None:
    wrapper = torch._TorchCompileInductorWrapper
    original = wrapper.__call__
    if not torch.__version__.startswith("2.13.") or hasattr(original, "__wrapped__"):
        return

    @functools.wraps(original)
    def call(self, model_, inputs_, *, config_patches=None):
        if not _uses_neuron(model_, inputs_):
            return original(self, model_, inputs_, config_patches=config_patches)
        from ..compile import neuron_backend

        if self.config:
            warnings.warn(f"backend 'neuron' has one mode and none of Inductor's options; {', '.join(sorted(self.config))} ignored", stacklevel=2)
        return neuron_backend(model_, inputs_)

    wrapper.__call__ = call
