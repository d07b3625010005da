"""What the tests share."""

import os
import pathlib
import subprocess
import sys
import tempfile

import pytest
import torch


@pytest.fixture(autouse=True)
def _clean_state():
    """Each test starts with the first device, the default stream, zero operator counts, and an Accelerate that has not chosen a device yet."""
    if hasattr(torch, "neuron"):
        torch.neuron.set_device(0)
        torch.neuron.set_stream(torch.neuron.default_stream())
        torch.neuron.clear_op_tracking()
    if accelerate := sys.modules.get("accelerate.state"):
        accelerate.AcceleratorState._reset_state(reset_partial_state=True)
        accelerate.GradientState._reset_state()
    yield


@pytest.fixture
def strict():
    """No operator may fall back to the CPU."""
    import torch_neuronx

    torch_neuronx._C.set_fallback_mode("error")
    yield
    torch_neuronx._C.set_fallback_mode("warn")
    assert torch.neuron.fallback_counts() == {}


@pytest.fixture(scope="module")
def original(request):
    """A Llama of random weights, of the module's SIZES."""
    from transformers import AutoConfig, AutoModelForCausalLM

    torch.manual_seed(0)
    return AutoModelForCausalLM.from_config(AutoConfig.for_model("llama", **request.module.SIZES)).eval()


@pytest.fixture(scope="module")
def folder(original, tmp_path_factory):
    """Where `original` is saved."""
    folder = tmp_path_factory.mktemp("model")
    original.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def trn_library(tmp_path_factory):
    """A libnrt for the `trn` driver whose programs XLA runs."""
    import referee
    import trn_tools

    if not referee.available():
        pytest.skip("needs jaxlib")
    return trn_tools.build_library(tmp_path_factory.mktemp("nrt"))


@pytest.fixture(scope="module")
def trn_server():
    import trn_tools

    with tempfile.TemporaryDirectory(prefix="xla") as folder:  # a socket's path is short
        process, socket = trn_tools.start_server(pathlib.Path(folder))
        yield socket
        process.stdin.close()
        process.wait(30)


@pytest.fixture
def machine(tmp_path, trn_library, trn_server):
    import trn_tools

    return trn_tools.Machine(tmp_path, trn_library, trn_server)


@pytest.fixture
def run_python(tmp_path):
    """Runs a program in a fresh interpreter and returns what it printed."""

    def run(source: str, **env: str) -> str:
        done = subprocess.run(
            [sys.executable, "-c", source], env={**os.environ, **env}, capture_output=True, text=True, timeout=300, cwd=tmp_path
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    return run
