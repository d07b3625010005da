"""`transformers serve --device neuron` and its clients: OpenAI's, `transformers chat`, plain HTTP. The same server on the CPU gives the answers to compare with."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import socket
import subprocess
import sys
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor

import openai
import pytest
import torch
import transformers
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

COMMAND = pathlib.Path(sys.executable).with_name("transformers")
TEMPLATE = "{% for m in messages %}<s>{{ m['role'] }}\n{{ m['content'] }}</s>{% endfor %}{% if add_generation_prompt %}<s>assistant\n{% endif %}"
CHAT = [dict(role="system", content="Be brief."), dict(role="user", content="Why are birds real?")]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A chat model of two layers with random weights. Its tokens are the ASCII characters, so that whatever it says is text, in pieces too."""
    folder = tmp_path_factory.mktemp("model")
    characters = [chr(c) for c in range(33, 127)] + ["Ġ", "Ċ"]
    tokens = Tokenizer(models.BPE({c: i for i, c in enumerate(characters)}, []))
    tokens.pre_tokenizer, tokens.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=tokens, pad_token="<pad>", bos_token="<s>", eos_token="</s>", padding_side="left")
    fast.chat_template = TEMPLATE
    fast.save_pretrained(folder)
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=len(fast), hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=512,
        initializer_range=0.4, bos_token_id=fast.bos_token_id, eos_token_id=fast.eos_token_id, pad_token_id=fast.pad_token_id)
    transformers.LlamaForCausalLM(config).save_pretrained(folder)
    return str(folder)


@contextlib.contextmanager
def serving(*words, log, **env):
    """The server's address. What it logs is there to look at afterwards."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    with open(log, "w") as out:
        server = subprocess.Popen([COMMAND, "serve", *words, "--dtype", "float32", "--host", "127.0.0.1", "--port", str(port)], stdout=out, stderr=out,
                                  env={**os.environ, **env})
    url = f"http://127.0.0.1:{port}"
    try:
        for _ in range(600):
            assert server.poll() is None, log.read_text()
            with contextlib.suppress(OSError):
                if json.load(urllib.request.urlopen(f"{url}/health", timeout=5))["status"] == "ok":
                    break
            time.sleep(0.2)
        else:
            raise TimeoutError(log.read_text())
        yield url
    finally:
        server.terminate()
        try:
            server.wait(60)
        except subprocess.TimeoutExpired:
            server.kill()
            raise
    assert "Traceback" not in log.read_text(), log.read_text()


@pytest.fixture(scope="module")
def cpu(folder, tmp_path_factory):
    with serving(folder, "--device", "cpu", log=tmp_path_factory.mktemp("cpu") / "log") as url:
        yield openai.OpenAI(base_url=f"{url}/v1", api_key="none", timeout=120, max_retries=0)


WAYS = {
    "by name": ["--device", "neuron"],
    "by number": ["--device", "0"],
    "compiled": ["--device", "neuron", "--compile"],
    "continuous batching": ["--device", "neuron", "--continuous-batching", "--cb-num-blocks", "64", "--cb-block-size", "16", "--cb-max-batch-tokens", "64"],
}


@pytest.fixture(scope="module", params=WAYS.values(), ids=WAYS)
def neuron(request, folder, tmp_path_factory):
    log = tmp_path_factory.mktemp("neuron") / "log"
    with serving(folder, *request.param, log=log, TNX_LOG="plan") as url:
        yield openai.OpenAI(base_url=f"{url}/v1", api_key="none", timeout=300, max_retries=0)
    assert "tnx" in log.read_text()  # it planned: the device has been at work


GREEDY = dict(max_tokens=24, temperature=0)


def answer(client, folder, **options):
    return client.chat.completions.create(model=folder, messages=CHAT, **{**GREEDY, **options})


def test_chat_completion(cpu, neuron, folder):
    want, got = answer(cpu, folder), answer(neuron, folder)
    assert got.choices[0].message.content == want.choices[0].message.content != ""
    assert got.usage.completion_tokens == want.usage.completion_tokens > 0
    assert got.choices[0].finish_reason == want.choices[0].finish_reason


def test_chat_completion_streamed(cpu, neuron, folder):
    def streamed(client):
        pieces = [c.choices[0].delta.content or "" for c in answer(client, folder, stream=True) if c.choices]
        assert len(pieces) > 4
        return "".join(pieces)

    assert streamed(neuron) == streamed(cpu) == answer(cpu, folder).choices[0].message.content


def test_completion(cpu, neuron, folder):
    def complete(client, **options):
        return client.completions.create(model=folder, prompt="Once upon a time", max_tokens=16, temperature=0, **options)

    want = complete(cpu).choices[0].text
    assert complete(neuron).choices[0].text == want
    assert "".join(c.choices[0].text for c in complete(neuron, stream=True) if c.choices) == want


def test_responses(cpu, neuron, folder):
    options = dict(model=folder, instructions="Be brief.", input="Why?", max_output_tokens=16, temperature=0)
    want = cpu.responses.create(**options, stream=False).output_text
    assert neuron.responses.create(**options, stream=False).output_text == want != ""
    assert "".join(e.delta for e in neuron.responses.create(**options, stream=True) if e.type == "response.output_text.delta") == want


def test_models(cpu, neuron):
    assert [m.id for m in neuron.models.list()] == [m.id for m in cpu.models.list()]


def test_several_at_a_time(cpu, neuron, folder):
    """Each answer is its question's."""
    def ask(client, i):
        return client.completions.create(model=folder, prompt="?" * (3 * i + 1), max_tokens=12, temperature=0).choices[0].text

    with ThreadPoolExecutor(4) as pool:
        got = list(pool.map(lambda i: ask(neuron, i), range(6)))
    assert got == [ask(cpu, i) for i in range(6)]


@pytest.mark.parametrize("way", ["by name", "continuous batching"])
def test_sampling(folder, tmp_path, way):
    """A seed means the same answer, unless batches are on their way already; another seed another. (A server of its own: with continuous batching the first request
    says for all whether they sample.)"""
    sampled = dict(generation_config=json.dumps(dict(do_sample=True, max_new_tokens=24, eos_token_id=None)))
    with serving(folder, *WAYS[way], log=tmp_path / "log") as url:
        client = openai.OpenAI(base_url=f"{url}/v1", api_key="none", timeout=300, max_retries=0)
        a, b, c = (answer(client, folder, temperature=1.0, seed=seed, extra_body=sampled).choices[0].message.content for seed in (1, 1, 2))
    assert b != c and (a == b or way == "continuous batching")


def test_command_line_chat(cpu, neuron, folder, tmp_path):
    """`transformers chat`, typed to through a pipe: an answer (not continued past its limit), and a second one that knows of the first. Told to be offline, it would
    refuse its own machine too."""
    said = []
    env = {k: v for k, v in os.environ.items() if k != "HF_HUB_OFFLINE"} | {"COLUMNS": "400"}
    for client in (cpu, neuron):
        done = subprocess.run([COMMAND, "chat", folder, str(client.base_url), "max_new_tokens=12", "do_sample=False", "--user", "me", "--save-folder", tmp_path],
                              input="Hello\nn\nAnd again\nn\n!exit\n", capture_output=True, text=True, timeout=300, cwd=tmp_path, env=env)
        assert done.returncode == 0, done.stdout + done.stderr
        said.append([line for line in done.stdout.splitlines() if "tok/s" not in line])
    assert said[0] == said[1] and sum(f"<{folder}>:" in line for line in said[0]) == 2
