"""Operators of one's own: functions on PyTorch tensors, and kernels of the Neuron Kernel Interface where AWS's package ``nki`` is installed.

An operator registered with :func:`nki_op` is one of ``torch.library``: it works eagerly, under ``torch.compile`` (where its function becomes part of the
graph), with autograd (``register_autograd``) and on the other devices that its function runs on.
"""

from __future__ import annotations

import contextlib
import importlib.util
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch

__all__ = ["nki_op", "set_wrap_nki_enabled", "wrap_nki"]

# By overload: what torch.compile puts in the operator's place.
DECOMPOSITIONS: dict[Any, Callable] = {}

_wrap_enabled = True


def nki_op(name: str, fn: Callable | None = None, *, mutates_args: str | Iterable[str] = ()) -> Any:
    """Registers a function as the operator ``namespace::name``; a decorator where ``fn`` is not given.

    The schema comes from the function's annotations. ``mutates_args`` names the arguments it writes to (``"unknown"``: perhaps all). The result has
    ``register_autograd``, ``register_fake`` and the other methods of a ``torch.library`` operator; until ``register_fake`` says otherwise the function itself tells
    the results' shapes, so it has to be traceable.

    >>> @nki_op("mylib::scaled_add")
    ... def scaled_add(x: torch.Tensor, y: torch.Tensor, scale: float) -> torch.Tensor:
    ...     return x + scale * y
    """
    if fn is None:
        return lambda f: nki_op(name, f, mutates_args=mutates_args)
    mutated = mutates_args if mutates_args == "unknown" else (mutates_args,) if isinstance(mutates_args, str) else tuple(mutates_args)
    operator = torch.library.custom_op(name, fn, mutates_args=mutated)
    operator.register_fake(fn)
    if not mutated:
        DECOMPOSITIONS[operator._opoverload] = fn
    return operator


def _require() -> None:
    if importlib.util.find_spec("nki") is None:
        raise ImportError(
            "kernels of the Neuron Kernel Interface need AWS's package nki, which is not installed. It is part of the Neuron SDK "
            "(pip install nki --extra-index-url https://pip.repos.neuron.amazonaws.com); nki_op also takes functions of PyTorch operators"
        )


@contextlib.contextmanager
def set_wrap_nki_enabled(enabled: bool) -> Iterator[None]:
    """Within, :func:`wrap_nki` gives back the kernel itself (False) or wraps it (True, the default)."""
    global _wrap_enabled
    before, _wrap_enabled = _wrap_enabled, enabled
    try:
        yield
    finally:
        _wrap_enabled = before


class _Caller:
    """A kernel with the keyword arguments of its launches; ``caller[grid](*args)``."""

    def __init__(self, kernel: Callable, options: dict[str, Any], grid: Any = None):
        self._kernel, self._options, self._grid = kernel, options, grid

    def __getitem__(self, grid: Any) -> _Caller:
        return _Caller(self._kernel, self._options, grid)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        _require()
        kernel = self._kernel if self._grid is None else self._kernel[self._grid]
        return kernel(*args, **{**self._options, **kwargs})


def wrap_nki(nki_kernel: Callable, **options: Any) -> Any:
    """A caller for a ``@nki.jit`` kernel: ``wrap_nki(kernel)[grid](*args)``. Raises ImportError at the call where ``nki`` is not installed."""
    return _Caller(nki_kernel, options) if _wrap_enabled else nki_kernel
