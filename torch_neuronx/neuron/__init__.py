"""``torch.neuron``: devices, streams, random numbers and memory of the Neuron backend.

One device is one logical NeuronCore. Nothing is opened before a device is first used.
"""

from __future__ import annotations

import dataclasses

import torch

from .. import _C
from . import _utils, memory, random, streams
from ._utils import _get_device_index
from .memory import (
    _dump_snapshot,
    _record_memory_history,
    _snapshot,
    empty_cache,
    max_memory_allocated,
    max_memory_reserved,
    mem_get_info,
    memory_allocated,
    memory_reserved,
    memory_snapshot,
    memory_stats,
    memory_stats_as_nested_dict,
    memory_summary,
    reset_accumulated_memory_stats,
    reset_max_memory_allocated,
    reset_peak_memory_stats,
    set_per_process_memory_fraction,
)
from .random import (
    get_rng_state,
    get_rng_state_all,
    initial_seed,
    manual_seed,
    manual_seed_all,
    seed,
    seed_all,
    set_rng_state,
    set_rng_state_all,
)
from .streams import Event, Stream, StreamContext, current_stream, default_stream, set_stream, stream

__all__ = [
    "Event",
    "Stream",
    "StreamContext",
    "clear_op_tracking",
    "current_device",
    "current_stream",
    "default_generators",
    "default_stream",
    "device",
    "device_count",
    "device_of",
    "empty_cache",
    "fallback_counts",
    "get_amp_supported_dtype",
    "get_device_capability",
    "get_device_name",
    "get_device_properties",
    "get_dynamo_metrics",
    "get_executed_ops",
    "get_fallback_ops",
    "get_rng_state",
    "get_rng_state_all",
    "init",
    "initial_seed",
    "is_available",
    "is_bf16_supported",
    "is_initialized",
    "manual_seed",
    "manual_seed_all",
    "max_memory_allocated",
    "max_memory_reserved",
    "mem_get_info",
    "memory_allocated",
    "memory_reserved",
    "memory_snapshot",
    "memory_stats",
    "memory_stats_as_nested_dict",
    "memory_summary",
    "reset_accumulated_memory_stats",
    "reset_dynamo_metrics",
    "reset_max_memory_allocated",
    "reset_peak_memory_stats",
    "seed",
    "seed_all",
    "set_device",
    "set_per_process_memory_fraction",
    "set_rng_state",
    "set_rng_state_all",
    "set_stream",
    "stream",
    "synchronize",
]


# ---- process ----


def is_available() -> bool:
    """Whether there is a device. Never raises, opens nothing."""
    return _C.device_count() > 0


def is_initialized() -> bool:
    """Whether the runtime is open in this process."""
    return _C.is_open() and not _C.is_in_bad_fork()


def _is_in_bad_fork() -> bool:
    """Whether this process was forked from one that had opened the runtime."""
    return _C.is_in_bad_fork()


def init() -> None:
    """Opens the runtime; the first use of a device does it as well.

    Raises:
        RuntimeError: in a process forked from one that had opened it, and where an environment variable is malformed.
    """
    if _C.is_in_bad_fork():
        raise RuntimeError(
            "Cannot re-initialize Neuron in forked subprocess. To use Neuron with multiprocessing, you must use the "
            "'spawn' start method"
        )
    _C.open()


_lazy_init = init


# ---- devices ----


def device_count() -> int:
    """Number of devices this process sees; 0 instead of an error."""
    return _C.device_count()


def current_device() -> int:
    """Index of the calling thread's current device."""
    return torch._C._accelerator_getDeviceIndex()


def set_device(device: int | str | torch.device) -> None:
    """Makes a device current for the calling thread."""
    index = _get_device_index(device)
    if index >= 0:
        torch._C._accelerator_setDeviceIndex(index)


def _exchange_device(device: int) -> int:
    """Makes a device current (a negative index: none) and returns the one before."""
    if device < 0:
        return -1
    return torch._C._accelerator_exchangeDevice(device)


def _maybe_exchange_device(device: int) -> int:
    if device < 0:
        return -1
    return torch._C._accelerator_maybeExchangeDevice(device)


class device:  # noqa: N801 - torch.<backend>.device is the established name
    """Context manager that makes a device current; None and negative indices change nothing."""

    def __init__(self, device):
        self.idx = _get_device_index(device, optional=True) if device is not None else -1
        self.prev_idx = -1

    def __enter__(self):
        self.prev_idx = _exchange_device(self.idx)
        return self

    def __exit__(self, *exc):
        _maybe_exchange_device(self.prev_idx)
        return False


class device_of(device):  # noqa: N801
    """Context manager that makes the device of a tensor current; other tensors change nothing."""

    def __init__(self, obj):
        super().__init__(obj.get_device() if getattr(obj, "device", None) is not None and obj.device.type == "neuron" else None)


@dataclasses.dataclass(frozen=True)
class _DeviceProperties:
    """What is known about a device."""

    name: str  # the instance family, "host" for this machine's CPU
    chip: str  # the processor's own name
    driver: str
    isa: str
    total_memory: int  # bytes
    multi_processor_count: int  # threads the device computes with


def get_device_properties(device=None) -> _DeviceProperties:
    """Name, memory and cores of a device."""
    p = _C.device_properties(_get_device_index(device, optional=True))
    return _DeviceProperties(p["name"], p["chip"], p["driver"], p["isa"], p["total_memory"], p["cores"])


def get_device_name(device=None) -> str:
    """``neuron:<index>``; the chip's name is in :func:`get_device_properties`."""
    return f"neuron:{_get_device_index(device, optional=True)}"


def get_device_capability(device=None) -> dict:
    """The dtypes the device supports, as ``torch.accelerator.get_device_capability`` gives them."""
    return torch.accelerator.get_device_capability(_get_device_index(device, optional=True))


def synchronize(device=None) -> None:
    """Waits for all work of a device, and raises the first error of work that failed meanwhile."""
    _C.synchronize(_get_device_index(device, optional=True))


def get_amp_supported_dtype() -> list[torch.dtype]:
    """The dtypes of ``torch.autocast("neuron")``."""
    return [torch.float32, torch.float16, torch.bfloat16]


def is_bf16_supported(including_emulation: bool = True) -> bool:
    """True: every device computes with bfloat16."""
    return True


def _sleep(cycles: int) -> None:
    """Accepted for compatibility; does nothing."""


# ---- operators ----


def get_executed_ops() -> list[str]:
    """See :func:`torch_neuronx.get_executed_ops`."""
    return [name for name, executed, _ in _C.op_counts() if executed]


def get_fallback_ops() -> list[str]:
    """See :func:`torch_neuronx.get_fallback_ops`."""
    return [name for name, _, fallback in _C.op_counts() if fallback]


def fallback_counts() -> dict[str, int]:
    """How often each operator ran on the CPU instead of the device since the last :func:`clear_op_tracking`."""
    return {name: fallback for name, _, fallback in _C.op_counts() if fallback}


def clear_op_tracking() -> None:
    """Sets the counts of operators to zero."""
    _C.clear_op_counts()


# ---- compiled graphs ----


def get_dynamo_metrics() -> list:
    """See :func:`torch_neuronx.compile.metrics.get_dynamo_metrics`."""
    from ..compile.metrics import get_dynamo_metrics

    return get_dynamo_metrics()


def reset_dynamo_metrics() -> None:
    """See :func:`torch_neuronx.compile.metrics.reset_dynamo_metrics`."""
    from ..compile.metrics import reset_dynamo_metrics

    reset_dynamo_metrics()


def __getattr__(name: str):
    if name == "default_generators":
        return tuple(_C.default_generator(i) for i in range(device_count()))
    if name == "_initialized":  # activation checkpointing asks for it
        return is_initialized()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
