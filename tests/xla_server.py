"""Runs StableHLO for core/tests/fake_nrt.c: what a NeuronCore would do, by XLA's CPU client. ``python xla_server.py <socket>`` until its standard input closes.

A request is the program's text, the inputs' bytes and the number of outputs, each with a 64-bit count before it; the answer a status (0, or NRT_FAILURE) and
the outputs' bytes in the same way.
"""

from __future__ import annotations

import functools
import os
import re
import socket
import struct
import sys
import threading

import ml_dtypes
import numpy as np

import referee

DTYPES = {
    "i1": np.bool_, "i8": np.int8, "i16": np.int16, "i32": np.int32, "i64": np.int64, "ui8": np.uint8, "ui16": np.uint16,
    "ui32": np.uint32, "ui64": np.uint64, "f16": np.float16, "bf16": ml_dtypes.bfloat16, "f32": np.float32,
    "f64": np.float64, "complex<f32>": np.complex64, "complex<f64>": np.complex128,
    "f8E4M3FN": ml_dtypes.float8_e4m3fn, "f8E5M2": ml_dtypes.float8_e5m2,
}


def arguments(text: str) -> list[tuple[tuple[int, ...], type]]:
    """Shape and dtype of each argument of main."""
    head = text[text.index("@main(") :]
    head = head[: head.index(") -> (")]
    found = []
    for kind in re.findall(r"%\d+: tensor<([^ ]*?)>(?=[,) ]|$)", head):
        *sizes, dtype = kind.split("x") if "complex" not in kind else [*kind.split("complex")[0].split("x")[:-1], "complex" + kind.split("complex")[1]]
        found.append((tuple(map(int, sizes)), DTYPES[dtype]))
    return found


@functools.cache
def program(text: str):
    return referee.Program(text), arguments(text)


class Lost(Exception):
    pass


def take(connection, n: int) -> bytes:
    data = bytearray()
    while len(data) < n:
        part = connection.recv(min(n - len(data), 1 << 20))
        if not part:
            raise Lost
        data += part
    return bytes(data)


def number(connection) -> int:
    return struct.unpack("=Q", take(connection, 8))[0]


def answer(connection) -> None:
    text = take(connection, number(connection)).decode()
    inputs = [take(connection, number(connection)) for _ in range(number(connection))]
    wanted = number(connection)
    try:
        run, kinds = program(text)
        arrays = [np.frombuffer(x, dtype).reshape(shape) for x, (shape, dtype) in zip(inputs, kinds, strict=True)]
        results = [np.ascontiguousarray(x).tobytes() for x in run(*arrays)]
        assert len(results) == wanted
    except Exception as error:  # the device "fails"; why stands here
        print(f"xla_server: {type(error).__name__}: {str(error)[:2000]}\n{text[:3000]}", file=sys.stderr, flush=True)
        connection.sendall(struct.pack("=Q", 1))
        return
    connection.sendall(struct.pack("=Q", 0) + b"".join(struct.pack("=Q", len(x)) + x for x in results))


def serve(connection) -> None:
    try:
        while True:
            answer(connection)
    except (Lost, ConnectionError):
        connection.close()


def main() -> None:
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(sys.argv[1])
    listener.listen()
    print("ready", flush=True)
    threading.Thread(target=lambda: (sys.stdin.read(), os._exit(0)), daemon=True).start()
    while True:
        connection, _ = listener.accept()
        threading.Thread(target=serve, args=(connection,), daemon=True).start()


if __name__ == "__main__":
    main()
