"""``torch.compile(model, backend="neuron")``.

Dynamo and AOTAutograd trace the model, :mod:`.importer` turns the ATen graph into libtnx's program form, and libtnx plans it in milliseconds. Nothing
here generates source code or calls a compiler.
"""

from __future__ import annotations

from .backend import create_neuron_backend, neuron_backend
from .metrics import NeuronCompilationMetrics, get_dynamo_metrics, get_model_name, reset_dynamo_metrics, set_model_name

__all__ = [
    "NeuronCompilationMetrics",
    "create_neuron_backend",
    "get_dynamo_metrics",
    "get_model_name",
    "neuron_backend",
    "reset_dynamo_metrics",
    "set_model_name",
]
