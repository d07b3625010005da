"""Random numbers of the device: Philox generators, each a seed and an offset."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from .. import _C
from ._utils import _get_device_index

__all__ = [
    "get_rng_state",
    "get_rng_state_all",
    "initial_seed",
    "manual_seed",
    "manual_seed_all",
    "seed",
    "seed_all",
    "set_rng_state",
    "set_rng_state_all",
]


def _generator(device=None) -> torch.Generator:
    return _C.default_generator(_get_device_index(device, optional=True))


def get_rng_state(device=None) -> Tensor:
    """The state of the device's generator: a CPU ByteTensor of 16 bytes, the seed and the offset."""
    return _generator(device).get_state()


def set_rng_state(new_state: Tensor, device=None) -> None:
    """Sets the state; 8 bytes are taken as a seed with offset 0."""
    state = new_state.detach()
    if state.device.type != "cpu":
        state = state.cpu()
    _generator(device).set_state(state.contiguous())


def get_rng_state_all() -> list[Tensor]:
    """The states of all devices."""
    return [get_rng_state(i) for i in range(_C.device_count())]


def set_rng_state_all(new_states: Iterable[Tensor]) -> None:
    """Sets the states of all devices."""
    for i, state in enumerate(new_states):
        set_rng_state(state, i)


def manual_seed(seed: int) -> None:
    """Seeds the current device's generator."""
    _generator().manual_seed(int(seed))


def manual_seed_all(seed: int) -> None:
    """Seeds the generators of all devices. Opens nothing, so it may be called before a fork."""
    for i in range(_C.device_count()):
        _C.default_generator(i).manual_seed(int(seed))


def seed() -> int:
    """Seeds the current device's generator with a random number, and returns it."""
    return _generator().seed()


def seed_all() -> int:
    """Seeds all devices' generators with the same random number, and returns it."""
    value = 0
    for i in range(_C.device_count()):
        if i == 0:
            value = _C.default_generator(0).seed()
        else:
            _C.default_generator(i).manual_seed(value)
    return value


def initial_seed() -> int:
    """The seed of the current device's generator."""
    return _generator().initial_seed()
