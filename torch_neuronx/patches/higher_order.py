"""PyTorch 2.13: higher-order operators (``torch.cond``, ``while_loop``, checkpointed regions) run under this device's autocast.

They let the autocast keys of the devices on a fixed list through to what they contain, and raise for any other: autocast on this device and an operator of
that kind do not go together. Waits for: ``AutocastPrivateUse1`` in ``torch._ops._HIGHER_ORDER_OP_DEFAULT_FALLTHROUGH_DISPATCH_KEYS``.
"""

from __future__ import annotations

import torch


def patch() -> None:
    key = torch._C.DispatchKey.AutocastPrivateUse1
    default = getattr(torch._ops, "_HIGHER_ORDER_OP_DEFAULT_FALLTHROUGH_DISPATCH_KEYS", None)
    if default is None or key in default or not torch.__version__.startswith("2.13."):
        return
    default.append(key)  # read whenever an operator is made
    for operator in torch._ops._higher_order_ops.values():
        if key not in operator.py_kernels:
            operator.fallthrough(key)
