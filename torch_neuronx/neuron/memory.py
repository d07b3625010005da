"""Device memory: statistics, limits, snapshots.

Figures count what has been asked of the allocator so far; work that is still queued holds its memory until it is done, so call
:func:`torch.neuron.synchronize` before comparing.
"""

from __future__ import annotations

import pickle
import sys
from collections import OrderedDict
from typing import Any

import torch

from .. import _C
from ._utils import _get_device_index

__all__ = [
    "empty_cache",
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
    "reset_max_memory_allocated",
    "reset_peak_memory_stats",
    "set_per_process_memory_fraction",
]

_COUNTERS = ("num_alloc_retries", "num_ooms", "num_tensor_frees", "allocation_requests")


def _index(device) -> int:
    return _get_device_index(device, optional=True)


def empty_cache() -> None:
    """Returns unused cached memory of all devices to the driver."""
    if _C.is_open():
        torch._C._accelerator_emptyCache()


def memory_stats_as_nested_dict(device=None) -> dict[str, Any]:
    """The allocator's figures: ``stats["allocated_bytes"]["all"]["current"]``; empty before the device is used."""
    return _C.memory_stats(_index(device)) if _C.is_open() else {}


class _Stats(OrderedDict):
    """Flat names as in torch.cuda (``allocated_bytes.all.current``) and, on request, TorchNeuron's nested form
    (``stats["allocated_bytes"]["current"]``)."""

    def __init__(self, nested: dict[str, Any]):
        super().__init__()
        self._nested: dict[str, Any] = {}
        for name, value in sorted(nested.items()):
            if isinstance(value, dict):
                for pool, figures in sorted(value.items()):
                    for key, number in sorted(figures.items()):
                        self[f"{name}.{pool}.{key}"] = number
                self._nested[name] = dict(value["all"])
            else:
                self[name] = value

    def __missing__(self, key):
        return self._nested[key]

    def __contains__(self, key) -> bool:
        return super().__contains__(key) or key in self._nested

    def get(self, key, default=None):
        return self[key] if key in self else default


def memory_stats(device=None) -> dict[str, Any]:
    """The allocator's figures.

    Both ``stats["allocated_bytes.all.current"]`` (as in torch.cuda; pools ``all``, ``small_pool``, ``large_pool``; figures
    ``current``, ``peak``, ``allocated``, ``freed``) and ``stats["allocated_bytes"]["current"]`` (TorchNeuron) work. Names:
    ``allocation segment active inactive_split`` (counts), ``allocated_bytes reserved_bytes active_bytes inactive_split_bytes
    requested_bytes`` and the counters ``num_alloc_retries num_ooms num_tensor_frees allocation_requests``.
    """
    return _Stats(memory_stats_as_nested_dict(device))


def _figure(name: str, key: str, device) -> int:
    nested = memory_stats_as_nested_dict(device)
    return nested[name]["all"][key] if nested else 0


def memory_allocated(device=None) -> int:
    """Bytes that tensors hold now."""
    return _figure("allocated_bytes", "current", device)


def max_memory_allocated(device=None) -> int:
    """The most bytes that tensors held since the start or :func:`reset_peak_memory_stats`."""
    return _figure("allocated_bytes", "peak", device)


def memory_reserved(device=None) -> int:
    """Bytes taken from the driver now, in use or cached."""
    return _figure("reserved_bytes", "current", device)


def max_memory_reserved(device=None) -> int:
    """The most bytes taken from the driver since the start or :func:`reset_peak_memory_stats`."""
    return _figure("reserved_bytes", "peak", device)


def reset_peak_memory_stats(device=None) -> None:
    """Peaks start again at the current figures."""
    if _C.is_open():
        torch._C._accelerator_resetPeakStats(_index(device))


def reset_max_memory_allocated(device=None) -> None:
    """The same as :func:`reset_peak_memory_stats`."""
    reset_peak_memory_stats(device)


def reset_accumulated_memory_stats(device=None) -> None:
    """``allocated`` and ``freed`` start again at zero."""
    if _C.is_open():
        torch._C._accelerator_resetAccumulatedStats(_index(device))


def mem_get_info(device=None) -> tuple[int, int]:
    """(free, total) bytes of the device."""
    return _C.memory_info(_index(device))


def set_per_process_memory_fraction(fraction: float, device=None) -> None:
    """At most this part of the device's memory may be reserved; beyond it, allocations fail as out of memory."""
    if not isinstance(fraction, (int, float)):
        raise TypeError("Invalid type for fraction argument, must be `float`")
    if not 0 <= fraction <= 1:
        raise ValueError(f"Invalid fraction value: {fraction}. Allowed range: 0~1")
    index = _index(device)
    total = _C.device_properties(index)["total_memory"]
    # 0 bytes mean "no limit" to the allocator.
    _C.set_memory_limit(index, max(1, int(total * fraction)) if fraction < 1 else 0)


def memory_snapshot(device=None) -> list[dict[str, Any]]:
    """The allocator's segments and their blocks, as torch.cuda.memory_snapshot describes them."""
    if not _C.is_open():
        return []
    indices = range(_C.device_count()) if device is None else [_index(device)]
    segments: list[dict[str, Any]] = []
    for index in indices:
        by_address: dict[int, dict[str, Any]] = {}
        for b in _C.memory_blocks(index):
            segment = by_address.get(b["segment"])
            if segment is None:
                segment = by_address[b["segment"]] = {
                    "device": index,
                    "address": b["segment"],
                    "total_size": b["segment_size"],
                    "allocated_size": 0,
                    "active_size": 0,
                    "requested_size": 0,
                    "stream": b["stream"],
                    "segment_type": "small" if b["small_pool"] else "large",
                    "segment_pool_id": (0, 0),
                    "is_expandable": False,
                    "frames": [],
                    "blocks": [],
                }
                segments.append(segment)
            live = b["allocated"]
            segment["blocks"].append(
                {
                    "address": b["address"],
                    "size": b["size"],
                    "requested_size": b["requested"] if live else 0,
                    "state": "active_allocated" if live else "inactive",
                    "frames": [],
                }
            )
            if live:
                segment["allocated_size"] += b["size"]
                segment["active_size"] += b["size"]
                segment["requested_size"] += b["requested"]
    return segments


def _record_memory_history(
    enabled: str | None = "all",
    context: str | None = "all",
    stacks: str = "all",
    max_entries: int = sys.maxsize,
    device=None,
    clear_history: bool = False,
) -> None:
    """Records who allocates, for :func:`_snapshot`; the arguments are those of ``torch.cuda.memory._record_memory_history``. All devices are recorded.

    Args:
        enabled: None turns recording off and forgets what was recorded, ``"state"`` keeps the live blocks' allocations, ``"all"`` also a list of the
            allocations and frees.
        context: of what tracebacks are taken: None, ``"state"`` or ``"alloc"`` (allocations), ``"all"`` (also frees).
        stacks: ``"python"`` or ``"all"`` (with C++ frames).
        max_entries: the length of the list; older entries are dropped.
        clear_history: forgets what was recorded before.
    """
    if enabled not in (None, "state", "all"):
        raise ValueError(f"expected enabled to be None, 'state' or 'all', got {enabled!r}")
    if context not in (None, "state", "alloc", "all"):
        raise ValueError(f"expected context to be None, 'state', 'alloc' or 'all', got {context!r}")
    if stacks not in ("python", "all"):
        raise ValueError(f"expected stacks to be 'python' or 'all', got {stacks!r}")
    _C.record_memory_history(enabled or "", context or "", stacks == "all", max_entries, clear_history)


def _snapshot(device=None) -> dict[str, Any]:
    """A snapshot in the form that PyTorch's memory visualizer reads: segments and blocks, and what :func:`_record_memory_history` recorded."""
    events, live = _C.memory_history()
    frames = {(e["device"], e["addr"]): e["frames"] for e in live}
    segments = memory_snapshot(device)
    for segment in segments:
        for block in segment["blocks"]:
            if block["state"] == "active_allocated":
                block["frames"] = frames.get((segment["device"], block["address"]), [])
    traces: list[list[dict[str, Any]]] = [[] for _ in range(_C.device_count())]
    for event in events:
        index = event.pop("device")
        if event["action"] == "oom":
            event["device_free"] = event.pop("addr")
        if device is None or index == _index(device):
            traces[index].append(event)
    return {"segments": segments, "device_traces": traces}


def _dump_snapshot(filename: str = "dump_snapshot.pickle") -> None:
    """Writes :func:`_snapshot` to a file."""
    with open(filename, "wb") as f:
        pickle.dump(_snapshot(), f)


def _size(n: int) -> str:
    value = float(n)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(value) < 10240 or unit == "GiB":
            break
        value /= 1024
    return f"{int(value)} {unit}".rjust(12)


def memory_summary(device=None, abbreviated: bool = False) -> str:
    """A readable table of the allocator's figures."""
    index = _index(device)
    stats = memory_stats(index)
    rows = [
        ("allocated_bytes", "Allocated memory", True),
        ("active_bytes", "Active memory", True),
        ("requested_bytes", "Requested memory", True),
        ("reserved_bytes", "Reserved memory", True),
        ("inactive_split_bytes", "Non-releasable memory", True),
        ("allocation", "Allocations", False),
        ("active", "Active allocs", False),
        ("segment", "Segments", False),
        ("inactive_split", "Non-releasable allocs", False),
    ]
    pools = [("all", "total")] + ([] if abbreviated else [("large_pool", "from large pool"), ("small_pool", "from small pool")])
    width = 80
    lines = [
        "=" * width,
        f"Neuron memory summary, device {index}".center(width),
        f"out of memory: {stats.get('num_ooms', 0)}   retries: {stats.get('num_alloc_retries', 0)}".center(width),
        "=" * width,
        f"{'Metric':<24}|{'Cur Usage':^13}|{'Peak Usage':^13}|{'Tot Alloc':^13}|{'Tot Freed':^13}",
    ]
    for name, title, is_bytes in rows:
        lines.append("-" * width)
        for pool, label in pools:
            shown = title if pool == "all" else "  " + label
            figures = [stats.get(f"{name}.{pool}.{key}", 0) for key in ("current", "peak", "allocated", "freed")]
            cells = [_size(n) if is_bytes else str(n).rjust(12) for n in figures]
            lines.append(f"{shown:<24}|" + "|".join(f"{c} " for c in cells))
    lines.append("=" * width)
    return "\n".join(lines) + "\n"
