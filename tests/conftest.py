"""What the tests share."""

import os
import subprocess
import sys

import pytest
import torch


@pytest.fixture(autouse=True)
def _clean_state():
    """Each test starts with the first device, the default stream and zero operator counts."""
    if hasattr(torch, "neuron"):
        torch.neuron.set_device(0)
        torch.neuron.set_stream(torch.neuron.default_stream())
        torch.neuron.clear_op_tracking()
    yield


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
