"""What Dynamo wants to know about the device."""

from __future__ import annotations

from typing import Any

import torch
from torch._dynamo.device_interface import DeviceInterface, register_interface_for_device

import torch_neuronx.neuron as _neuron


class NeuronInterface(DeviceInterface):
    """Devices, streams and properties, for Dynamo and for code that is independent of the device."""

    device = _neuron.device
    Event = _neuron.Event
    Stream = _neuron.Stream

    class Worker:
        """Device properties for worker processes, which must not open the device themselves."""

        _properties: dict[int, Any] = {}

        @staticmethod
        def set_device(device: int) -> None:
            _neuron.set_device(device)

        @staticmethod
        def current_device() -> int:
            return _neuron.current_device()

        @staticmethod
        def get_device_properties(device=None):
            index = _neuron._utils._get_device_index(device, optional=True)
            cache = NeuronInterface.Worker._properties
            if index not in cache:
                cache[index] = _neuron.get_device_properties(index)
            return cache[index]

    current_device = staticmethod(_neuron.current_device)
    set_device = staticmethod(_neuron.set_device)
    device_count = staticmethod(_neuron.device_count)
    is_available = staticmethod(_neuron.is_available)
    current_stream = staticmethod(_neuron.current_stream)
    set_stream = staticmethod(_neuron.set_stream)
    stream = staticmethod(_neuron.stream)
    synchronize = staticmethod(_neuron.synchronize)
    get_device_properties = staticmethod(_neuron.get_device_properties)
    memory_allocated = staticmethod(_neuron.memory_allocated)
    exchange_device = staticmethod(_neuron._exchange_device)
    maybe_exchange_device = staticmethod(_neuron._maybe_exchange_device)

    @staticmethod
    def _set_stream_by_id(stream_id: int, device_index: int, device_type: int) -> None:
        _neuron.set_stream(
            _neuron.Stream(stream_id=stream_id, device_index=device_index, device_type=device_type)
        )

    @staticmethod
    def get_raw_stream(device_idx: int) -> int:
        return _neuron.current_stream(device_idx).stream_id

    @staticmethod
    def get_compute_capability(device=None) -> str:
        return _neuron.get_device_properties(device).name

    @staticmethod
    def is_bf16_supported(including_emulation: bool = False) -> bool:
        return True

    @staticmethod
    def is_dtype_supported(dtype: torch.dtype, including_emulation: bool = False) -> bool:
        return True

    @staticmethod
    def is_triton_capable(device=None) -> bool:
        return False

    @staticmethod
    def raise_if_triton_unavailable(device=None) -> None:
        raise RuntimeError("Triton does not generate code for neuron")


def register() -> None:
    """Registers the interface for ``neuron`` and ``neuron:<index>``."""
    register_interface_for_device("neuron", NeuronInterface)
    for i in range(_neuron.device_count()):
        register_interface_for_device(f"neuron:{i}", NeuronInterface)
