"""Runtime counters: the plan cache and compilation times.

Counting itself is always on (it is nearly free); ``is_enabled`` says whether :func:`report` shows anything, as in TorchNeuron.
"""

from __future__ import annotations

import fnmatch
import os

from . import _C

__all__ = [
    "clear_all",
    "clear_counters",
    "clear_metrics",
    "get_compilation_metrics",
    "get_counter_names",
    "get_counter_value",
    "get_metric_data",
    "get_metric_names",
    "is_enabled",
    "report",
    "report_filtered",
    "set_enabled",
]

_enabled = os.environ.get("TORCH_NEURONX_METRICS_ENABLED", "0") not in ("", "0")

# TorchNeuron's name: key of the cache's figures.
_COUNTERS = {
    "CompilationCache.InMemoryHits": "hits",
    "CompilationCache.InMemoryMisses": "misses",
    "CompilationCache.Evictions": "evictions",
    "CompilationCache.MemoryUsage": "bytes",
    "CompilationCache.TotalCompilations": "misses",
}
_METRICS = {"CompilationCache.CompilationTime": "build_ns"}
_cleared: dict[str, int] = {}


def _value(key: str) -> int:
    value = _C.cache_stats()[key]
    # What is in use now is not a count since a point in time.
    return value if key in ("bytes", "entries") else value - _cleared.get(key, 0)


def is_enabled() -> bool:
    """Whether reports are made (``TORCH_NEURONX_METRICS_ENABLED=1``)."""
    return _enabled


def set_enabled(enabled: bool) -> None:
    """Turns reports on or off."""
    global _enabled
    _enabled = bool(enabled)


def get_counter_names() -> list[str]:
    """Names for :func:`get_counter_value`."""
    return list(_COUNTERS)


def get_counter_value(name: str) -> int | None:
    """The counter's value, None for an unknown name."""
    return _value(_COUNTERS[name]) if name in _COUNTERS else None


def get_metric_names() -> list[str]:
    """Names for :func:`get_metric_data`."""
    return list(_METRICS)


def get_metric_data(name: str) -> dict[str, object] | None:
    """``accumulator`` (nanoseconds), ``total_samples`` and ``repr`` of a metric; None for an unknown name."""
    if name not in _METRICS:
        return None
    total = _value(_METRICS[name])
    return {"accumulator": total, "total_samples": _value("misses"), "repr": f"{total / 1e6:.3f} ms"}


def get_compilation_metrics() -> dict[str, object]:
    """All counters and metrics in one dict."""
    out: dict[str, object] = {name: get_counter_value(name) for name in _COUNTERS}
    out.update({name: get_metric_data(name) for name in _METRICS})
    return out


def report_filtered(counters: list[str] | None = None, metrics: list[str] | None = None) -> str:
    """A readable report of the counters and metrics that match the given patterns."""
    lines = []
    for name in _METRICS:
        if metrics is None or any(fnmatch.fnmatch(name, p) for p in metrics):
            data = get_metric_data(name)
            lines += [f"Metric: {name}", f"  TotalSamples: {data['total_samples']}", f"  Accumulator: {data['repr']}"]
    for name in _COUNTERS:
        if counters is None or any(fnmatch.fnmatch(name, p) for p in counters):
            lines += [f"Counter: {name}", f"  Value: {get_counter_value(name)}"]
    return "\n".join(lines)


def report() -> str:
    """A readable report of everything; empty unless enabled."""
    return report_filtered() if _enabled else ""


def clear_counters() -> None:
    """Counts start again at zero."""
    stats = _C.cache_stats()
    for key in ("hits", "misses", "evictions"):
        _cleared[key] = stats[key]


def clear_metrics() -> None:
    """Metrics start again at zero."""
    _cleared["build_ns"] = _C.cache_stats()["build_ns"]


def clear_all() -> None:
    """Both."""
    clear_counters()
    clear_metrics()
