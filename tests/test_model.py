"""The real model: SmolLM2-135M-Instruct on the device against the CPU, strictly without fallbacks."""

import os
import pathlib

import pytest
import torch

from torch_neuronx.compile import get_dynamo_metrics

os.environ.setdefault("HF_HUB_OFFLINE", "1")
transformers = pytest.importorskip("transformers")

FOLDER = pathlib.Path(__file__).parent.parent / "build/models/SmolLM2-135M-Instruct"
PROMPT = "The capital of France is"
pytestmark = [pytest.mark.usefixtures("strict"), pytest.mark.skipif(not (FOLDER / "config.json").exists(), reason="the model is not set up: make setup")]


@pytest.fixture(scope="module")
def pair():
    """(tokenizer, CPU model, device model), float32, in evaluation mode."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(FOLDER)
    cpu = transformers.AutoModelForCausalLM.from_pretrained(FOLDER, dtype=torch.float32)
    device = transformers.AutoModelForCausalLM.from_pretrained(FOLDER, dtype=torch.float32, device_map="neuron")
    return tokenizer, cpu, device


@pytest.fixture(scope="module")
def want(pair):
    tokenizer, cpu, _ = pair
    return cpu.generate(**tokenizer(PROMPT, return_tensors="pt"), max_new_tokens=64, min_new_tokens=64, do_sample=False)


def test_tied_weights_stay_tied(pair):
    _, _, device = pair
    assert device.lm_head.weight.data_ptr() == device.model.embed_tokens.weight.data_ptr()
    assert next(device.parameters()).device.type == "neuron"


def test_logits(pair):
    tokenizer, cpu, device = pair
    ids = tokenizer("A device computes what the processor computes, to the last digits that matter.", return_tensors="pt")
    with torch.no_grad():
        expected = cpu(**ids).logits
        got = device(**ids.to("neuron")).logits.cpu()
    torch.testing.assert_close(got, expected, rtol=1e-3, atol=2e-3)


def test_eager_greedy_tokens(pair, want):
    tokenizer, _, device = pair
    got = device.generate(**tokenizer(PROMPT, return_tensors="pt").to("neuron"), max_new_tokens=64, min_new_tokens=64, do_sample=False)
    assert got.tolist() == want.tolist()


def test_bfloat16_logits_are_as_good_as_the_cpus(pair):
    tokenizer, cpu, _ = pair
    ids = tokenizer("Numbers with few digits still have to add up.", return_tensors="pt")
    low = transformers.AutoModelForCausalLM.from_pretrained(FOLDER, dtype=torch.bfloat16)
    with torch.no_grad():
        exact = cpu(**ids).logits
        theirs = low(**ids).logits.float()
        ours = low.to("neuron")(**ids.to("neuron")).logits.cpu().float()
    assert (ours - exact).abs().mean() <= 1.1 * (theirs - exact).abs().mean()


def test_compiled_greedy_tokens_and_no_recompilation(pair, want):
    tokenizer, cpu, device = pair
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    options = dict(do_sample=False, cache_implementation="static")
    compiled_before = len(get_dynamo_metrics())

    def generate(text, n):
        ids = tokenizer(text, return_tensors="pt")
        return ids, device.generate(**ids.to("neuron"), max_new_tokens=n, min_new_tokens=n, **options)

    def compilations():
        return torch._dynamo.utils.counters["frames"]["ok"]

    _, got = generate(PROMPT, 64)
    assert got.tolist() == want.tolist()
    assert compilations() == 1
    # another prompt, same cache length
    length = want.shape[1]
    other = tokenizer("Rivers run", return_tensors="pt")["input_ids"].shape[1]
    generate("Rivers run", length - other)
    assert compilations() == 1
    # longer ones (Transformers keeps a cache that is long enough): one more graph, with a symbolic cache length, and it serves them all
    for text, n in (("The sea is", 70), ("Once upon a time there was a", 75), ("Two", 90)):
        ids, got = generate(text, n)
        expected = cpu.generate(**tokenizer(text, return_tensors="pt"), max_new_tokens=n, min_new_tokens=n, do_sample=False)
        assert got.tolist() == expected.tolist()
    assert compilations() == 2
    assert len(get_dynamo_metrics()) - compiled_before == 2
