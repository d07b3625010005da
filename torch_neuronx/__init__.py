"""PyTorch's native backend for device ``neuron``.

``import torch`` loads this package by itself (entry point group ``torch.backends``); with ``TORCH_DEVICE_BACKEND_AUTOLOAD=0``, import it.
Afterwards ``torch.neuron`` is the device module, ``tensor.to("neuron")`` works, and so does ``torch.accelerator``.
"""

from __future__ import annotations

import atexit as _atexit
import os as _os


def _autoload() -> None:
    """Called by ``import torch``. Importing this module did the work.

    Stands before the import of torch: a program that imports this package first comes here while that import is under way.
    """


import torch as _torch  # noqa: E402


def _register() -> bool:
    """Makes PrivateUse1 the device ``neuron``. False: another backend holds that place already."""
    name = _torch._C._get_privateuse1_backend_name()
    if name not in ("privateuseone", "neuron"):
        return False
    if hasattr(_torch, "neuron"):
        return True

    from . import _C, _dlpack
    from . import neuron as _device_module

    if name != "neuron":
        _torch.utils.rename_privateuse1_backend("neuron")
    _torch._register_device_module("neuron", _device_module)
    _torch.utils.generate_methods_for_privateuse1_backend(
        for_tensor=True, for_module=True, for_packed_sequence=True, for_storage=True
    )
    _dlpack.register()
    # `import torch.neuron` and pickles by module path find it too.
    import sys

    sys.modules.setdefault("torch.neuron", _device_module)

    if _os.environ.get("NEURON_LAUNCH_BLOCKING", "0") not in ("", "0"):
        _C.set_launch_blocking(True)
    _atexit.register(_close)
    return True


def _close() -> None:
    from . import _C

    if _C.is_open() and not _C.is_in_bad_fork():
        _C.close()


_registered = _register()

if _registered:
    from . import metrics, ops  # noqa: E402,F401
    from .neuron import (  # noqa: E402,F401
        Event,
        Stream,
        StreamContext,
        _lazy_init,
        current_device,
        current_stream,
        default_stream,
        device,
        device_count,
        empty_cache,
        get_device_properties,
        max_memory_allocated,
        max_memory_reserved,
        mem_get_info,
        memory,
        memory_allocated,
        memory_reserved,
        memory_stats,
        memory_summary,
        reset_accumulated_memory_stats,
        reset_peak_memory_stats,
        set_device,
        set_stream,
        stream,
        streams,
        synchronize,
    )
    from .neuron import is_initialized as is_neuron_runtime_initialized  # noqa: E402,F401
    from .nki import nki_op, set_wrap_nki_enabled, wrap_nki  # noqa: E402,F401
    from .ops import clear_op_tracking, fallback_counts, get_executed_ops, get_fallback_ops  # noqa: E402,F401
    from ._import_hook import after_import as _after_import  # noqa: E402

    def _register_interface() -> None:
        from .neuron._interface import register

        register()

    _after_import("torch._dynamo.device_interface", _register_interface)

    from . import patches as _patches  # noqa: E402

    _patches.install()


def __getattr__(name: str):
    """What needs Dynamo, which takes more than a second to import, is imported when it is asked for."""
    if name == "neuron_dynamo_backend":
        import importlib

        return importlib.import_module(".neuron_dynamo_backend", __name__)
    if name in ("get_dynamo_metrics", "reset_dynamo_metrics"):
        from . import compile

        return getattr(compile, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__version__ = "0.1.0"
