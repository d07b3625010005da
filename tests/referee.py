"""The independent referee: StableHLO text compiled and run by XLA's CPU client.

Needs jax and jaxlib (requirements/test.txt) and is used by tests only. Arrays are numpy's; bfloat16 and the float8 types
come from ml_dtypes. ``available()`` says whether the referee is installed, so that tests can be skipped.
"""

from __future__ import annotations

import functools
import os

import numpy as np


@functools.cache
def available() -> bool:
    try:
        import jax  # noqa: F401
        import ml_dtypes  # noqa: F401
    except ImportError:
        return False
    return True


@functools.cache
def _client():
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    import jax
    from jax.extend.backend import get_backend

    jax.config.update("jax_enable_x64", True)
    jax.config.update("jax_platforms", "cpu")
    return get_backend("cpu")


@functools.cache
def _options():
    from jaxlib import xla_client

    options = xla_client.CompileOptions()
    debug = options.executable_build_options.debug_options
    debug.xla_cpu_enable_fast_math = False  # NaN, infinities and signed zeros are part of what is compared
    debug.xla_llvm_disable_expensive_passes = True
    debug.xla_backend_optimization_level = 0  # programs run once
    return options


class Program:
    """A compiled module. Called with numpy arrays, it gives the results as a list of numpy arrays.

    A text that MLIR's parser or verifier refuses raises with MLIR's own words.
    """

    def __init__(self, text: str):
        from jaxlib import xla_client

        client = _client()
        devices = xla_client.DeviceList(tuple(client.devices()[:1]))
        self._program = client.compile_and_load(text, devices, _options())

    def __call__(self, *inputs: np.ndarray) -> list[np.ndarray]:
        import jax

        device = _client().devices()[0]
        results = self._program.execute([jax.device_put(np.asarray(x), device) for x in inputs])
        return [np.asarray(x) for x in results]


def run(text: str, *inputs: np.ndarray) -> list[np.ndarray]:
    """Compiles and runs once."""
    return Program(text)(*inputs)


_TORCH_VIEWS = {"bfloat16": "int16", "float8_e4m3fn": "uint8", "float8_e5m2": "uint8"}  # what numpy itself does not know, by its bits


def to_numpy(x) -> np.ndarray:
    """A torch tensor as the array XLA takes."""
    import ml_dtypes
    import torch

    name = str(x.dtype).removeprefix("torch.")
    x = x.detach().contiguous()
    if name in _TORCH_VIEWS:
        return x.view(getattr(torch, _TORCH_VIEWS[name])).numpy().view(getattr(ml_dtypes, name))
    return x.numpy()


def to_torch(x: np.ndarray):
    import torch

    name = x.dtype.name
    x = np.array(x)  # XLA's results are read-only
    if name in _TORCH_VIEWS:
        return torch.from_numpy(x.view(_TORCH_VIEWS[name])).view(getattr(torch, name))
    return torch.from_numpy(x)
