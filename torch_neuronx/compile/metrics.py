"""What was compiled, and how long each part took."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field


@dataclass
class NeuronCompilationMetrics:
    """One compiled graph. Times are in microseconds."""

    graph_id: int
    graph_name: str  #: ``<model>_<number>_<forward|backward|inference>``
    model_name: str
    has_collectives: bool
    graph_node_count: int
    timestamp: float = field(default_factory=time.time)
    torch_neuronx_fx_passes_us: float = 0.0
    torch_neuronx_lower_us: float = 0.0  #: importing the FX graph
    torch_neuronx_compile_us: float = 0.0  #: libtnx's passes and planning
    dynamic: bool = False  #: some size is symbolic


_lock = threading.Lock()
_metrics: list[NeuronCompilationMetrics] = []
_model_name = "model"


def get_dynamo_metrics() -> list[NeuronCompilationMetrics]:
    """The graphs compiled since the start or the last :func:`reset_dynamo_metrics`, oldest first."""
    with _lock:
        return list(_metrics)


def reset_dynamo_metrics() -> None:
    """Forgets all compiled graphs' metrics. The graphs themselves stay."""
    with _lock:
        _metrics.clear()


def set_model_name(name: str) -> None:
    """The name that graphs compiled from now on carry."""
    global _model_name
    _model_name = str(name)


def get_model_name() -> str:
    """The name set by :func:`set_model_name`, ``"model"`` by default."""
    return _model_name


def record(metrics: NeuronCompilationMetrics) -> None:
    """Adds one graph."""
    with _lock:
        _metrics.append(metrics)
    from torch._dynamo.utils import counters

    counters["neuron"]["compiled_graphs"] += 1
