"""TorchNeuron's names for :mod:`torch_neuronx.compile`, and a graph as text.

The texts are those of an FX graph over ATen operators, as a compiler of AOTAutograd gets it: each node says in ``meta["val"]`` what it gives.
"""

from __future__ import annotations

import os
from pathlib import Path

import torch

from .compile import create_neuron_backend, get_dynamo_metrics, get_model_name, neuron_backend, reset_dynamo_metrics, set_model_name
from .compile.backend import decompositions
from .compile.flex import expand
from .compile.importer import Importer, Unsupported

__all__ = [
    "NEFFCompilationError",
    "NEFFExecutionError",
    "create_neuron_backend",
    "fx_to_mlir_string",
    "get_dynamo_metrics",
    "get_model_name",
    "get_rank",
    "load_mlir",
    "neuron_backend",
    "reset_dynamo_metrics",
    "save_fx_as_mlir",
    "save_fx_graph_all_formats",
    "save_fx_graph_txt",
    "save_mlir",
    "set_model_name",
]

NEFFCompilationError = Unsupported  #: what a graph that cannot be compiled raises
NEFFExecutionError = RuntimeError  #: what a graph that fails on the device raises


def get_rank() -> int:
    """This process' rank in the default group; before there is one, that of its launcher, or 0."""
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return torch.distributed.get_rank()
    return int(os.environ.get("RANK", "0"))


def fx_to_mlir_string(gm: torch.fx.GraphModule) -> str:
    """The graph as StableHLO."""
    return Importer(get_model_name()).run(expand(gm, decompositions())).graph_text("stablehlo")


def save_mlir(text: str, path: str | os.PathLike) -> str:
    """Writes MLIR to a file; the folders are made. Returns the path."""
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_text(text)
    return str(path)


def load_mlir(path: str | os.PathLike) -> str:
    """What :func:`save_mlir` wrote."""
    return Path(path).read_text()


def save_fx_as_mlir(gm: torch.fx.GraphModule, path: str | os.PathLike) -> str:
    """Writes the graph as StableHLO."""
    return save_mlir(fx_to_mlir_string(gm), path)


def save_fx_graph_txt(gm: torch.fx.GraphModule, path: str | os.PathLike) -> str:
    """Writes the graph as FX prints it."""
    return save_mlir(str(gm.graph), path)


def save_fx_graph_all_formats(gm: torch.fx.GraphModule, folder: str | os.PathLike, name: str = "graph") -> dict[str, str]:
    """Writes ``name.txt``, ``name.py`` and ``name.mlir``. Returns the paths by format."""
    folder = Path(folder)
    return {
        "txt": save_fx_graph_txt(gm, folder / f"{name}.txt"),
        "py": save_mlir(gm.print_readable(print_output=False), folder / f"{name}.py"),
        "mlir": save_fx_as_mlir(gm, folder / f"{name}.mlir"),
    }
