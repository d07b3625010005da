"""Streams and events of the device."""

from __future__ import annotations

import torch

from ._utils import _get_device_index

__all__ = ["Event", "Stream", "StreamContext", "current_stream", "default_stream", "set_stream", "stream"]


class Stream(torch.Stream):
    """A queue of work on a device. Work of one stream runs in order; streams run independently of each other, but what is queued on a stream of normal
    priority comes after what the default stream was given before.

    Args:
        device: the device, default: the current one.
        priority: a negative number asks for a stream that waits for no other.
    """

    def __new__(cls, device=None, priority: int = 0, **kwargs):
        if "stream_id" in kwargs:
            return super().__new__(cls, priority=priority, **kwargs)
        index = _get_device_index(device, optional=True)
        return super().__new__(cls, torch.device("neuron", index), priority=priority)

    def __repr__(self) -> str:
        return f"torch.neuron.Stream(device={self.device}, stream_id={self.stream_id})"


class _EventType(type):
    def __instancecheck__(cls, instance) -> bool:
        if cls is not Event:
            return super().__instancecheck__(instance)
        return isinstance(instance, torch.Event) and instance.device is not None and instance.device.type == "neuron"


class Event(torch.Event, metaclass=_EventType):
    """A point in a stream's work that others can wait for, and whose time can be taken.

    The objects are ``torch.Event``, whose methods accept no class derived from it as an argument; ``isinstance`` knows every event of this
    device as a ``torch.neuron.Event``.

    Args:
        enable_timing: whether :meth:`elapsed_time` will be asked for.
        blocking: accepted for compatibility; waiting always blocks without spinning.
        interprocess: False; events are not shared between processes.
    """

    def __new__(cls, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False):
        if interprocess:
            raise NotImplementedError("neuron events are not shared between processes")
        kind = torch.Event if cls is Event else cls
        return torch.Event.__new__(kind, "neuron", enable_timing=enable_timing)


def _as_stream(s: torch.Stream) -> Stream:
    if isinstance(s, Stream):
        return s
    return Stream(stream_id=s.stream_id, device_index=s.device_index, device_type=s.device_type)


def current_stream(device=None) -> Stream:
    """The calling thread's current stream of the device."""
    return _as_stream(torch._C._accelerator_getStream(_get_device_index(device, optional=True)))


def default_stream(device=None) -> Stream:
    """The device's default stream."""
    index = _get_device_index(device, optional=True)
    kind = int(torch._C._autograd.DeviceType.PrivateUse1)
    return Stream(stream_id=0, device_index=index, device_type=kind)


def set_stream(stream: torch.Stream) -> None:
    """Makes the stream current for its device, and that device current."""
    if stream is not None:
        torch._C._accelerator_setStream(stream)


class StreamContext:
    """Makes a stream and its device current inside a ``with`` block; None changes nothing."""

    def __init__(self, stream: torch.Stream | None):
        self.stream = stream
        self._previous: list[tuple[int, Stream]] = []

    def __enter__(self):
        if self.stream is not None:
            device = torch._C._accelerator_getDeviceIndex()
            self._previous.append((device, current_stream(self.stream.device)))
            set_stream(self.stream)
        return self.stream

    def __exit__(self, *exc):
        if self.stream is not None:
            device, stream = self._previous.pop()
            set_stream(stream)
            torch._C._accelerator_setDeviceIndex(device)


def stream(stream: torch.Stream | None) -> StreamContext:
    """Context manager that selects a stream."""
    return StreamContext(stream)
