"""Programs written as StableHLO, compiled by nxcc and run by libnrt on the host device through the public NRT API: the counterpart of referee.py.

``Program(text)(arrays...)`` gives the results as numpy arrays. Only the names of the API are used, as any other program would.
"""

from __future__ import annotations

import ctypes
import functools
import os
import re
import subprocess
import tempfile
from pathlib import Path

import numpy as np

BUILD = Path(os.environ.get("TNX_BUILD_DIR", Path(__file__).resolve().parent.parent / "build")) / "core"
LIBRARY, COMPILER = BUILD / "nrt" / "libnrt.so.1", BUILD / "nxcc"


def available() -> bool:
    return LIBRARY.exists() and COMPILER.exists()


class NrtError(RuntimeError):
    def __init__(self, call: str, status: int, name: str):
        super().__init__(f"{call}: {name}")
        self.status = status


class TensorInfo(ctypes.Structure):
    _fields_ = [
        ("name", ctypes.c_char * 256), ("usage", ctypes.c_int), ("size", ctypes.c_size_t), ("dtype", ctypes.c_int),
        ("shape", ctypes.POINTER(ctypes.c_uint32)), ("ndim", ctypes.c_uint32),
    ]  # fmt: skip


@functools.cache
def library() -> ctypes.CDLL:
    lib = ctypes.CDLL(str(LIBRARY))
    lib.nrt_get_status_as_str.restype = ctypes.c_char_p
    lib.nrt_tensor_get_va.restype = ctypes.c_void_p
    lib.nrt_tensor_get_size.restype = ctypes.c_size_t
    check(lib, "nrt_init", 3, b"2.0", b"1.0")
    return lib


def check(lib, name: str, *args):
    status = getattr(lib, name)(*args)
    if status:
        raise NrtError(name, status, lib.nrt_get_status_as_str(status).decode())


def compile_text(text: str, *options: str) -> bytes:
    """The NEFF's bytes. A failure raises with nxcc's words."""
    with tempfile.TemporaryDirectory() as folder:
        source, result = Path(folder) / "module.mlir", Path(folder) / "module.neff"
        source.write_text(text)
        command = [COMPILER, "compile", source, "--framework", "XLA", "--target", "trn2", "--output", result, *options]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"nxcc gave {done.returncode}: {done.stderr.strip()}")
        return result.read_bytes()


def _dtype(name: str) -> np.dtype:
    import ml_dtypes

    table = {
        "i1": np.bool_, "ui8": np.uint8, "i8": np.int8, "i16": np.int16, "i32": np.int32, "i64": np.int64, "ui16": np.uint16, "ui32": np.uint32,
        "ui64": np.uint64, "f8E4M3FN": ml_dtypes.float8_e4m3fn, "f8E5M2": ml_dtypes.float8_e5m2, "f16": np.float16, "bf16": ml_dtypes.bfloat16,
        "f32": np.float32, "f64": np.float64, "complex<f32>": np.complex64, "complex<f64>": np.complex128,
    }  # fmt: skip
    return np.dtype(table[name])


def result_types(text: str) -> list[tuple[np.dtype, tuple[int, ...]]]:
    """Dtypes and shapes of main's results, from its signature: NRT's own list has no name for some dtypes."""
    signature = re.search(r"@main\(.*?\) -> \((.*)\) \{\n", text)[1]
    types = []
    for t in re.findall(r"tensor<((?:\d+x)*)((?:complex<f\d+>)|\w+)>", signature):
        types.append((_dtype(t[1]), tuple(int(s) for s in t[0].split("x") if s)))
    return types


class Program:
    def __init__(self, text: str):
        self.types = result_types(text)
        self.lib = library()
        neff = compile_text(text)
        self.model = ctypes.c_void_p()
        check(self.lib, "nrt_load", neff, ctypes.c_size_t(len(neff)), 0, -1, ctypes.byref(self.model))

    def __del__(self):
        if getattr(self, "model", None):
            self.lib.nrt_unload(self.model)

    def tensor(self, size: int, name: bytes):
        t = ctypes.c_void_p()
        check(self.lib, "nrt_tensor_allocate", 0, 0, ctypes.c_size_t(size), name, ctypes.byref(t))
        return t

    def __call__(self, *inputs: np.ndarray) -> list[np.ndarray]:
        lib, tensors, sets = self.lib, [], [ctypes.c_void_p(), ctypes.c_void_p()]
        for s in sets:
            check(lib, "nrt_allocate_tensor_set", ctypes.byref(s))
        try:
            for i, x in enumerate(inputs):
                x = np.ascontiguousarray(x)
                t = self.tensor(x.nbytes, b"input")
                tensors.append(t)
                check(lib, "nrt_tensor_write", t, ctypes.c_void_p(x.ctypes.data), ctypes.c_size_t(0), ctypes.c_size_t(x.nbytes))
                check(lib, "nrt_add_tensor_to_tensor_set", sets[0], f"input{i}".encode(), t)
            outputs = []
            for i, (dtype, shape) in enumerate(self.types):
                x = np.empty(shape, dtype)
                outputs.append((x, self.tensor(x.nbytes, b"output")))
                tensors.append(outputs[-1][1])
                check(lib, "nrt_add_tensor_to_tensor_set", sets[1], f"output{i}".encode(), outputs[-1][1])
            check(lib, "nrt_execute", self.model, sets[0], sets[1])
            for x, t in outputs:
                check(lib, "nrt_tensor_read", t, ctypes.c_void_p(x.ctypes.data), ctypes.c_size_t(0), ctypes.c_size_t(x.nbytes))
            return [x for x, _ in outputs]
        finally:
            for s in sets:
                lib.nrt_destroy_tensor_set(ctypes.byref(s))
            for t in tensors:
                lib.nrt_tensor_free(ctypes.byref(t))


def run(text: str, *inputs: np.ndarray) -> list[np.ndarray]:
    return Program(text)(*inputs)
