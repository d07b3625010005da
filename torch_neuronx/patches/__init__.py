"""What other libraries have to be told for want of a hook of theirs: one file for each library, with the versions it is for and the upstream change it waits for.

Nothing is imported here: a patch is made when a program imports the library. (What is patched in `torch` itself is there already.)
"""

from __future__ import annotations

from .._import_hook import after_import
from . import accelerate, flex_attention, higher_order, inductor, transformers


def install() -> None:
    after_import("accelerate.utils.modeling", accelerate.patch)
    after_import("transformers.pipelines.base", transformers.patch)
    after_import("torch.nn.attention.flex_attention", flex_attention.patch)
    higher_order.patch()
    inductor.patch()
