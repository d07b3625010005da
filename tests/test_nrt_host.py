"""libnrt on the host device and its compiler: what XLA runs in test_stablehlo.py and test_stablehlo_operators.py, nxcc compiles and libnrt runs; the results are
compared with PyTorch's.

Those tests are collected again here, with another runner. What needs no Python (the API, damaged files, faults) is in core/tests/nrt_api.c and
core/tests/test_hlo_import.c.
"""

from __future__ import annotations

import subprocess
import threading

import nrt_host
import numpy as np
import pytest
import referee
import torch

if not nrt_host.available():
    pytest.skip("libnrt-host and nxcc are not built", allow_module_level=True)
pytest.importorskip("torch_neuronx._C", reason="the native part is not built")

import test_stablehlo_operators  # noqa: E402
from test_stablehlo import recorded, test_mutated_input, test_random_rows, test_rows, test_transformer_step  # noqa: E402, F401

# The tests of the graph's operators, by their names there.
globals().update({name: test for name, test in vars(test_stablehlo_operators).items() if name.startswith("test_")})
pytestmark = pytest.mark.skipif(not test_stablehlo_operators.WRITER.exists(), reason="the C test programs are not built")


@pytest.fixture(autouse=True)
def run_by_nrt(monkeypatch):
    monkeypatch.setattr(referee, "run", nrt_host.run)


def attention_text(mask: bool) -> tuple[str, list[torch.Tensor]]:
    import torch_neuronx._C as _C

    torch.manual_seed(3)
    inputs = [torch.randn(2, 4, 5, 8), torch.randn(2, 2, 6, 8), torch.randn(2, 2, 6, 8)] + ([torch.randn(2, 1, 5, 6)] if mask else [])
    builder = _C.GraphBuilder("attention")
    values = [builder.input(x.dtype, list(x.shape), list(x.stride()), False) for x in inputs]
    arguments = (*values[:3], values[3] if mask else None, 0.0, False)
    builder.output(builder.call("scaled_dot_product_attention", arguments, {"enable_gqa": True}, None)[0], None, None)
    return builder.text("stablehlo"), inputs


@pytest.mark.parametrize("mask", [False, True])
@pytest.mark.parametrize("known", [True, False])
def test_attention_is_an_operator_or_its_decomposition(mask, known):
    """A composite that nobody knows is what its decomposition function says."""
    text, inputs = attention_text(mask)
    assert text.count('name = "tnx.attention"') == 1
    if not known:
        text = text.replace('name = "tnx.attention"', 'name = "somebody.else"')
    got = referee.to_torch(nrt_host.run(text, *[referee.to_numpy(x) for x in inputs])[0])
    want = torch.nn.functional.scaled_dot_product_attention(*inputs, enable_gqa=True)
    torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-5)


def test_two_copies_of_the_core_in_one_process():
    """torch_neuronx's device and libnrt's device compute side by side, each with memory of its own."""
    text = sum_text()
    program = nrt_host.Program(text)
    x = torch.arange(6.0).reshape(2, 3)
    errors = []

    def device():
        for i in range(50):
            if not torch.equal((x.to("neuron") * i + 1).cpu(), x * i + 1):
                errors.append(f"neuron, round {i}")

    thread = threading.Thread(target=device)
    thread.start()
    for i in range(50):
        got = program(referee.to_numpy(x), referee.to_numpy(x * i))[0]
        if not np.array_equal(got, referee.to_numpy(x + x * i)):
            errors.append(f"libnrt, round {i}")
    thread.join()
    assert not errors
    # a buffer of one is no device memory of the other
    y = x.to("neuron")
    status = nrt_host.library().nrt_memcpy_to_device(nrt_host.ctypes.c_void_p(y.data_ptr()), nrt_host.ctypes.c_void_p(x.data_ptr()), nrt_host.ctypes.c_size_t(24))
    assert status == 2 and torch.equal(y.cpu(), x)


def sum_text() -> str:
    import torch_neuronx._C as _C

    builder = _C.GraphBuilder("sum")
    x, y = (builder.input(torch.float32, [2, 3], [3, 1], False) for _ in range(2))
    builder.output(builder.call("add.Tensor", (x, y), {}, None)[0], None, None)
    return builder.text("stablehlo")


def test_compilers_of_one_output(tmp_path):
    """Several compilers write one file while it is read: it is whole whenever it is there, and nothing else stays."""
    source, result = tmp_path / "m.mlir", tmp_path / "m.neff"
    source.write_text(sum_text())
    command = [nrt_host.COMPILER, "compile", source, "--framework", "XLA", "--target", "trn2", "--output", result]
    running = [subprocess.Popen(command) for _ in range(8)]
    sizes = set()
    while any(p.poll() is None for p in running):
        if result.exists():
            sizes.add(len(result.read_bytes()))
    assert all(p.returncode == 0 for p in running)
    sizes.add(len(result.read_bytes()))
    assert len(sizes) == 1
    assert sorted(p.name for p in tmp_path.iterdir()) == ["m.mlir", "m.neff"]


def test_messages(tmp_path):
    text = sum_text()
    with pytest.raises(RuntimeError, match=r"nxcc gave 3: .*module.mlir:3:\d+: .*operand 0 has another type"):
        nrt_host.compile_text(text.replace("(%1: tensor<2x3xf32>", "(%1: tensor<3x2xf32>"))
    with pytest.raises(RuntimeError, match=r"nxcc gave 4: .*module.mlir:3:\d+: stablehlo.sum: an operation that has no form here"):
        nrt_host.compile_text(text.replace("stablehlo.add", "stablehlo.sum"))
    with pytest.raises(RuntimeError, match=r"nxcc gave 2: .*--optlevel: '7' is not one of its values"):
        nrt_host.compile_text(text, "--optlevel", "7")
    listed = subprocess.run([nrt_host.COMPILER, "list-operators", "--framework", "XLA"], capture_output=True, text=True, check=True).stdout.split()
    assert "stablehlo.while" in listed and "chlo.erf" in listed and len(set(listed)) == len(listed)
