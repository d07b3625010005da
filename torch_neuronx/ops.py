"""Which operators ran, and which of them on the CPU."""

from __future__ import annotations

from . import _C

__all__ = [
    "clear_op_tracking",
    "fallback_counts",
    "fallback_mode",
    "get_executed_ops",
    "get_fallback_ops",
    "operator_support",
    "set_fallback_mode",
]


def get_executed_ops() -> list[str]:
    """Names (``aten::add.Tensor``) of the operators that ran on the device since the last :func:`clear_op_tracking`."""
    return [name for name, executed, _ in _C.op_counts() if executed]


def get_fallback_ops() -> list[str]:
    """Names of the operators that ran on the CPU since the last :func:`clear_op_tracking`."""
    return [name for name, _, fallback in _C.op_counts() if fallback]


def fallback_counts() -> dict[str, int]:
    """How often each operator ran on the CPU since the last :func:`clear_op_tracking`."""
    return {name: fallback for name, _, fallback in _C.op_counts() if fallback}


def clear_op_tracking() -> None:
    """Sets all counts to zero."""
    _C.clear_op_counts()


def fallback_mode() -> str:
    """``warn``, ``error`` or ``silent``: what happens when an operator has to run on the CPU."""
    return _C.fallback_mode()


def set_fallback_mode(mode: str) -> None:
    """Sets :func:`fallback_mode`; the environment variable ``TORCH_NEURONX_FALLBACK`` gives the first value."""
    _C.set_fallback_mode(mode)


def operator_support() -> dict[str, str]:
    """For every aten overload: ``table`` (a row of libtnx), ``glue`` (a kernel of the extension), ``composite`` (PyTorch takes
    it apart) or ``fallback`` (on the CPU)."""
    return dict(_C.operator_support())
