"""The ``trn`` driver with XLA in the place of the hardware: one batch of operators, compilation ahead of time, what may be missing. More in ``hardware/``."""

import pathlib
import textwrap

import trn_tools


def test_operators_between_two_looks_are_one_program(machine):
    machine.run(trn_tools.PROLOGUE + textwrap.dedent("""
    x, w = torch.randn(8, 16).to("neuron"), torch.randn(16, 16).to("neuron")
    before = programs()
    y, sent = x, []
    for i in range(50):
        sent.append(torch.tensor([float(i)]).to("neuron"))
        y = torch.tanh(y @ w) + i + sent[-1]
    y.cpu()
    assert programs() == before + 1, programs() - before
    z = x.cpu()
    for i in range(50):
        z = torch.tanh(z @ w.cpu()) + i + i
    torch.testing.assert_close(y.cpu(), z)
    before = _C.program_stats()
    y = x.clone(); y.cpu(); y = x.clone(); y.cpu()
    after = _C.program_stats()
    assert after["programs"] == before["programs"] + 1 and after["executed"] == before["executed"] + 2
    """))


def test_what_is_missing(machine, tmp_path):
    script = """if True:
        import torch
        print(torch.neuron.is_available(), torch.neuron.device_count())
        try: torch.ones(1, device='neuron')
        except RuntimeError as error: print(error)
    """
    out = machine.run(script, TORCH_NEURONX_NRT_LIBRARY="")
    assert out.startswith("False 0") and "aws-neuronx-runtime-lib" in out and "TORCH_NEURONX_NRT_LIBRARY" in out
    assert "absolute path" in machine.run(script, TORCH_NEURONX_NRT_LIBRARY="libnrt.so.1")
    assert "does not exist" in machine.run(script, TORCH_NEURONX_NRT_LIBRARY="/nowhere/libnrt.so.1")
    assert "no NeuronCore" in machine.run(script, FAKE_NRT_CORES="0")
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    copy = shared / "libnrt.so.1"
    copy.write_bytes(pathlib.Path(machine.environment["TORCH_NEURONX_NRT_LIBRARY"]).read_bytes())
    assert "everybody may write" in machine.run(script, TORCH_NEURONX_NRT_LIBRARY=str(copy))


def test_compiling_without_a_device(machine, capsys):
    """Everything is compiled, what the compiler refuses is kept with its words, and a device finds the NEFFs."""
    from torch_neuronx.compile.__main__ import report

    machine.write_compiler("#!/bin/sh\n! grep -q sine $2 || { echo refused: sine >&2; exit 70; }\n" + trn_tools.COMPILER)
    script = trn_tools.PROLOGUE + "x = torch.ones(3, device='neuron'); print(torch.neuron.get_device_properties(0).name); (x * 5).cpu(); {}x.exp().cpu()"
    offline = {"TORCH_NEURONX_COMPILE_ONLY": "1", "TORCH_NEURONX_DRIVER": "", "TORCH_NEURONX_NRT_LIBRARY": "", "NEURON_PLATFORM_TARGET_OVERRIDE": "trn2"}
    assert machine.run(script.format("x.double().sin().cpu(); "), **offline) == "trn2\n"
    assert report(machine.folder / "cache") == (3, 1)
    lines = capsys.readouterr().out
    assert "refused: sine" in lines and "float64: no such arithmetic" in lines
    before = machine.compilations()
    machine.run(script.format(""), NEURON_PLATFORM_TARGET_OVERRIDE="trn2")
    assert machine.compilations() == before
