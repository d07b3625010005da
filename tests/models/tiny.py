"""Tiny configurations of Transformers' classes, and what goes into models of them: what test_classes.py and architectures.py share."""

import torch
from transformers import AutoConfig
from transformers.models.auto.configuration_auto import CONFIG_MAPPING


def configure(kind, values, sizes):
    """A configuration of class `kind`: `sizes(kind)` are its small values, `values` override them; a nested dict speaks of a part, None leaves it out."""
    values = sizes(kind) | values
    for name, part in kind.sub_configs.items():
        if values.get(name, {}) is None:
            continue
        given = dict(values.get(name, {}))
        spec = kind.sub_configs_defaults.get(name)
        model_type = given.pop("model_type", spec and spec.model_type)
        if part is AutoConfig:
            if model_type is None:
                continue
            part = CONFIG_MAPPING[model_type]
        values[name] = configure(part, given, sizes)
    config = kind(**values)
    for name, value in vars(config).items():  # two random generators cannot drop the same elements
        if isinstance(value, float) and ("drop" in name or "jitter" in name or name in ("mask_time_prob", "mask_feature_prob")):
            setattr(config, name, 0.0)
    return config


def move(value, *to):
    """Tensors to a device, or floating-point ones to a dtype, in whatever holds them."""
    if isinstance(value, torch.Tensor):
        return value.to(*to) if value.is_floating_point() or not isinstance(to[0], torch.dtype) else value
    if isinstance(value, dict):
        return {name: move(item, *to) for name, item in value.items()}
    return type(value)(move(item, *to) for item in value) if isinstance(value, (list, tuple)) else value
