"""What tests of the ``trn`` driver share: a libnrt.so.1 for tests (core/tests/fake_nrt.c) whose programs XLA runs (xla_server.py), and a "compiler" that hands its
input through, so that a NEFF is the StableHLO text itself. Scripts run in processes of their own, because a process has one driver.
"""

from __future__ import annotations

import os
import pathlib
import shutil
import subprocess
import sys
import textwrap

ROOT = pathlib.Path(__file__).parent.parent

COMPILER = """#!/bin/sh
# compile <module> .. --output <neff>: the NEFF is the module
echo compile >> "$COMPILER_LOG"
in=$2
while [ $# -gt 1 ]; do [ "$1" = --output ] && out=$2; shift; done
cp "$in" "$out"
"""


def build_library(folder: pathlib.Path) -> pathlib.Path:
    """Compiles the library for tests."""
    library = folder / "libnrt.so.1"
    compiler = os.environ.get("CC") or shutil.which("cc") or shutil.which("gcc")
    source = ROOT / "core/tests/fake_nrt.c"
    subprocess.run([compiler, "-shared", "-fPIC", "-D_GNU_SOURCE", f"-I{ROOT / 'core'}", source, "-o", library, "-lpthread"], check=True)
    return library


class Machine:
    """A folder with library, compiler and cache; ``run`` executes a script on it."""

    def __init__(self, folder: pathlib.Path, library: pathlib.Path, server: pathlib.Path | None):
        self.folder = folder
        self.compiler = folder / "neuronx-cc"
        self.write_compiler(COMPILER)
        self.environment = {
            **os.environ,
            "TORCH_NEURONX_DRIVER": "trn",
            "TORCH_NEURONX_NRT_LIBRARY": str(library),
            "TORCH_NEURONX_COMPILER": str(self.compiler),
            "TORCH_NEURONX_NEFF_CACHE_DIR": str(folder / "cache"),
            "TORCH_NEURONX_DEBUG_DIR": str(folder / "failed"),
            "COMPILER_LOG": str(folder / "compiled"),
            "PYTHONPATH": str(ROOT),
        }
        if server:
            self.environment["FAKE_NRT_SOCKET"] = str(server)

    def write_compiler(self, text: str) -> None:
        self.compiler.write_text(text)
        self.compiler.chmod(0o755)

    def start(self, script: str, **environment: str) -> subprocess.Popen:
        return subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(script)], env={**self.environment, **environment}, cwd=self.folder,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )

    def run(self, script: str, **environment: str) -> str:
        """The script's output; what it wrote to stderr is shown if it fails."""
        process = self.start(script, **environment)
        out, errors = process.communicate(timeout=240)
        assert process.returncode == 0, f"{out}\n{errors}"
        return out

    def compilations(self) -> int:
        log = self.folder / "compiled"
        return len(log.read_text().splitlines()) if log.exists() else 0


def start_server(folder: pathlib.Path) -> tuple[subprocess.Popen, pathlib.Path]:
    socket = folder / "xla"
    process = subprocess.Popen([sys.executable, ROOT / "tests/xla_server.py", socket], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "ready\n"
    return process, socket


# What the programs of the tests begin with.
PROLOGUE = """
import torch
from torch_neuronx import _C

def programs():
    torch.neuron.synchronize()
    return _C.program_stats()["programs"]

def same(f, *tensors, **tolerance):
    torch.testing.assert_close(f(*[t.to("neuron") for t in tensors]).cpu(), f(*[t.clone() for t in tensors]), **tolerance)

torch.manual_seed(0)
_C.set_fallback_mode("error")
"""
