"""`generate` as users call it, on small random models: the device's tokens are the CPU's, without fallbacks."""

import copy
import os
import threading

import pytest
import torch

from torch_neuronx.compile import get_dynamo_metrics, reset_dynamo_metrics

os.environ.setdefault("HF_HUB_OFFLINE", "1")
transformers = pytest.importorskip("transformers")
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForSeq2SeqLM  # noqa: E402

SIZES = dict(vocab_size=260, hidden_size=32, num_attention_heads=4, num_key_value_heads=2, intermediate_size=64, num_hidden_layers=2, head_dim=8, pad_token_id=256,
             bos_token_id=257, eos_token_id=258, max_position_embeddings=256, initializer_range=0.4)
T5 = dict(vocab_size=260, d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4, pad_token_id=256, eos_token_id=258, decoder_start_token_id=256,
          initializer_factor=2.0)


pytestmark = pytest.mark.usefixtures("strict")


def build(kind: str, seed=0, auto=AutoModelForCausalLM, **changes):
    torch.manual_seed(seed)
    sizes = T5 if kind == "t5" else SIZES
    return auto.from_config(AutoConfig.for_model(kind, **{**sizes, **changes})).eval()


def both(model):
    """The model on the CPU and its copy on the device."""
    return model, copy.deepcopy(model).to("neuron")


@pytest.fixture(scope="module")
def llama():
    return both(build("llama"))


@pytest.fixture(scope="module")
def tokenizer():
    """Bytes are tokens: text of any kind, no vocabulary to download."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokens = Tokenizer(models.BPE({c: i for i, c in enumerate(alphabet)}, []))
    tokens.pre_tokenizer, tokens.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    return transformers.PreTrainedTokenizerFast(tokenizer_object=tokens, pad_token="<pad>", bos_token="<s>", eos_token="</s>", padding_side="left")


PROMPT = torch.arange(3, 80, 7)[None]  # one row of eleven tokens


def padded():
    """Three prompts of different lengths, padded on the left."""
    ids = torch.randint(0, 256, (3, 9), generator=torch.Generator().manual_seed(1))
    mask = torch.ones_like(ids)
    for row, padding in enumerate((0, 3, 6)):
        ids[row, :padding], mask[row, :padding] = 256, 0
    return dict(input_ids=ids, attention_mask=mask)


def on_device(inputs):
    return {k: v.to("neuron") for k, v in inputs.items()}


def same_tokens(pair, inputs, **options):
    cpu, device = pair
    options = dict(max_new_tokens=10, do_sample=False) | options
    want = cpu.generate(**inputs, **options)
    got = device.generate(**on_device(inputs), **options)
    assert got.device.type == "neuron"
    assert got.tolist() == want.tolist()
    return want


VARIANTS = {
    "greedy": dict(),
    "no cache": dict(use_cache=False),
    "beams": dict(num_beams=3, num_return_sequences=2, length_penalty=0.7),
    "beams, early stop": dict(num_beams=4, early_stopping=True, no_repeat_ngram_size=2),
    "repetition penalty": dict(repetition_penalty=1.7),
    "no repeated n-grams": dict(no_repeat_ngram_size=2),
    "bad words": dict(bad_words_ids=[[5], [17, 40]]),
    "suppressed": dict(suppress_tokens=[1, 2, 3, 99], begin_suppress_tokens=[7]),
    "biased": dict(sequence_bias=[[[9], 3.0], [[10, 11], -2.0]]),
    "forced ends": dict(forced_bos_token_id=4, forced_eos_token_id=258),
    "at least": dict(min_new_tokens=8, eos_token_id=[258, 1]),
    "exponential decay": dict(exponential_decay_length_penalty=(3, 1.3)),
    "clean": dict(remove_invalid_values=True, renormalize_logits=True),
    "guided": dict(guidance_scale=1.5),
    "prefix function": dict(prefix_allowed_tokens_fn=lambda batch, ids: [int(ids[-1]) // 2, 30, 31, 32]),
}


@pytest.mark.parametrize("options", VARIANTS.values(), ids=VARIANTS)
@pytest.mark.parametrize("batch", ["one", "padded"])
def test_deterministic(llama, options, batch):
    same_tokens(llama, dict(input_ids=PROMPT, attention_mask=torch.ones_like(PROMPT)) if batch == "one" else padded(), **options)


@pytest.mark.parametrize("kind", ["mistral", "gemma3_text", "qwen3", "gpt2", "mamba"])
def test_architectures(kind):
    changes = {"mistral": dict(sliding_window=6), "gemma3_text": dict(sliding_window=6), "gpt2": dict(n_embd=32, n_layer=2, n_head=4), "mamba": dict(state_size=8)}
    pair = both(build(kind, **changes.get(kind, {})))
    same_tokens(pair, padded(), max_new_tokens=12)
    if kind != "mamba":
        same_tokens(pair, padded(), max_new_tokens=12, cache_implementation="static")


@pytest.mark.parametrize("options", [dict(), dict(num_beams=3), dict(encoder_repetition_penalty=1.4, encoder_no_repeat_ngram_size=2)], ids=str)
def test_encoder_decoder(options):
    same_tokens(both(build("t5", auto=AutoModelForSeq2SeqLM)), padded(), **options)


SAMPLERS = [dict(top_k=5), dict(top_k=0, top_p=0.7), dict(top_k=0, min_p=0.05), dict(top_k=0, typical_p=0.5),
            dict(top_k=0, epsilon_cutoff=0.01), dict(top_k=0, eta_cutoff=0.01), dict(top_k=0, temperature=0.3), dict(top_k=0, top_h=0.6),
            dict(top_k=9, top_p=0.9, temperature=2.0, repetition_penalty=1.3)]


@pytest.mark.parametrize("options", SAMPLERS, ids=str)
def test_sampling(llama, options):
    """The same distribution as on the CPU, tokens from its support, and a seed means the same tokens."""
    cpu, device = llama
    inputs = padded()
    first = dict(max_new_tokens=1, do_sample=True, output_scores=True, return_dict_in_generate=True, **options)
    want, got = cpu.generate(**inputs, **first), device.generate(**on_device(inputs), **first)
    torch.testing.assert_close(got.scores[0].cpu(), want.scores[0], rtol=1e-4, atol=1e-4)
    assert want.scores[0].gather(1, got.sequences[:, -1:].cpu()).isfinite().all()

    def draw(seed):
        torch.manual_seed(seed)
        return device.generate(**on_device(inputs), max_new_tokens=10, do_sample=True, num_return_sequences=2, **options).tolist()

    assert draw(3) == draw(3)
    assert "temperature" in options and options["temperature"] < 1 or draw(3) != draw(4)


def test_watermark(llama):
    """The green list is drawn by the device's own generator, as on every accelerator: its detector must run there too."""
    _, device = llama
    config = transformers.WatermarkingConfig(bias=20.0, seeding_scheme="lefthash")
    out = device.generate(**on_device(padded()), max_new_tokens=24, do_sample=False, eos_token_id=None, watermarking_config=config)
    detector = transformers.WatermarkDetector(model_config=device.config, device="neuron", watermarking_config=config, ignore_repeated_ngrams=True)
    assert detector(out[:, 9:], return_dict=True).prediction.all()


def test_beam_sampling_is_reproducible(llama):
    _, device = llama

    def draw():
        transformers.set_seed(5)
        return device.generate(**on_device(padded()), max_new_tokens=6, do_sample=True, num_beams=2).tolist()

    assert draw() == draw()


def test_prompt_lookup(llama):
    same_tokens(llama, dict(input_ids=PROMPT), prompt_lookup_num_tokens=3)  # one sequence only, as all assisted decoding


@pytest.mark.parametrize("assistant", ["same", "other"])
def test_assisted(llama, assistant):
    cpu, device = llama
    assistants = both(build("llama", seed=0 if assistant == "same" else 9, num_hidden_layers=2 if assistant == "same" else 1))
    want = cpu.generate(PROMPT, max_new_tokens=12, do_sample=False)
    got = device.generate(PROMPT.to("neuron"), max_new_tokens=12, do_sample=False, assistant_model=assistants[1])
    assert got.tolist() == want.tolist()
    torch.manual_seed(0)
    assert device.generate(PROMPT.to("neuron"), max_new_tokens=6, do_sample=True, assistant_model=assistants[1]).shape[1] <= 17


def test_streamers_and_stop_strings(llama, tokenizer, capsys):
    cpu, device = llama
    ids = tokenizer("Rivers run", return_tensors="pt")
    options = dict(max_new_tokens=20, do_sample=False)
    tokens = cpu.generate(**ids, **options)[0]
    text = tokenizer.decode(tokens[ids["input_ids"].shape[1]:], skip_special_tokens=True)
    device.generate(**ids.to("neuron"), **options, streamer=transformers.TextStreamer(tokenizer, skip_prompt=True, skip_special_tokens=True))
    assert capsys.readouterr().out.rstrip("\n") == text
    stream = transformers.TextIteratorStreamer(tokenizer, skip_prompt=True, skip_special_tokens=True, timeout=120)
    worker = threading.Thread(target=device.generate, kwargs=dict(**ids, **options, streamer=stream))
    worker.start()
    assert "".join(stream) == text
    worker.join()
    stop = next(c for c in text[2:] if c.isascii() and c.isprintable())
    want = same_tokens(llama, dict(ids.to("cpu")), max_new_tokens=20, stop_strings=[stop], tokenizer=tokenizer)
    assert tokenizer.decode(want[0])[len("Rivers run"):].count(stop) == 1


def test_users_own_processor_and_criterion(llama):
    class Odd(transformers.LogitsProcessor):
        def __call__(self, ids, scores):
            scores = scores.clone()
            scores[:, ::2] = -float("inf")
            return scores

    class Until(transformers.StoppingCriteria):
        def __call__(self, ids, scores, **_):
            return ids[:, -1] > 200

    want = same_tokens(llama, padded(), logits_processor=transformers.LogitsProcessorList([Odd()]), stopping_criteria=transformers.StoppingCriteriaList([Until()]))
    assert (want[:, 9:] % 2).any()


# An offloaded static cache needs one layer that does not slide: Transformers looks for it without asking (`Cache.prefetch`).
@pytest.mark.parametrize("kind, cache", [*(("llama", c) for c in ("dynamic", "offloaded", "offloaded_static")), ("mistral", "dynamic"), ("mistral", "offloaded")])
def test_caches(kind, cache, monkeypatch):
    """`Cache.update` asks torch.cuda for the default stream, whatever the device (the CPU fails there as well). With that one name answered by the device, the
    streams and asynchronous copies of offloading keep their order."""
    cpu, device = both(build(kind, **({"sliding_window": 6} if kind == "mistral" else {})))
    want = cpu.generate(**padded(), max_new_tokens=12, do_sample=False)
    monkeypatch.setattr(torch.cuda, "default_stream", torch.neuron.default_stream)
    got = device.generate(**on_device(padded()), max_new_tokens=12, do_sample=False, cache_implementation=cache)
    assert got.tolist() == want.tolist()


def test_static_cache_is_compiled_once(llama):
    cpu, device = llama
    torch._dynamo.reset()
    reset_dynamo_metrics()
    same_tokens(llama, padded(), max_new_tokens=12, cache_implementation="static")
    assert len(get_dynamo_metrics()) == 1
    shorter = {k: v[:, 2:] for k, v in padded().items()}
    same_tokens(llama, shorter, max_new_tokens=12, cache_implementation="static")
    assert len(get_dynamo_metrics()) == 1
    same_tokens(llama, shorter, max_new_tokens=9, cache_implementation="static", repetition_penalty=1.4)
    assert len(get_dynamo_metrics()) == 1


@pytest.mark.parametrize("cache", ["dynamic", "static"])
def test_chunked_prefill(llama, cache):
    torch._dynamo.reset()
    same_tokens(llama, padded(), prefill_chunk_size=4, cache_implementation=cache)


def test_a_cache_kept_between_turns(llama):
    cpu, device = llama
    tokens = []
    for model in llama:
        cache, ids = transformers.DynamicCache(config=model.config), PROMPT.to(model.device)
        for _ in range(3):
            ids = model.generate(ids, max_new_tokens=4, do_sample=False, cache=cache)
            ids = torch.cat([ids, PROMPT[:, :3].to(model.device)], 1)
        tokens.append(ids.tolist())
    assert tokens[0] == tokens[1]


def test_outputs(llama):
    cpu, device = llama
    options = dict(max_new_tokens=4, do_sample=False, output_scores=True, output_logits=True, output_hidden_states=True, return_dict_in_generate=True, num_beams=2)
    want, got = cpu.generate(**padded(), **options), device.generate(**on_device(padded()), **options)
    torch.testing.assert_close(got.sequences_scores.cpu(), want.sequences_scores, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(torch.stack(got.logits).cpu(), torch.stack(want.logits), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(got.hidden_states[-1][-1].cpu(), want.hidden_states[-1][-1], rtol=1e-4, atol=1e-4)
    transitions = [m.compute_transition_scores(o.sequences, o.scores, o.beam_indices).cpu() for m, o in zip(llama[::-1], (got, want))]
    torch.testing.assert_close(*transitions, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_half_types(llama, attention, dtype):
    """Low precision rounds where it likes: the first token's logits are as close to float32's as the CPU's are."""
    cpu, _ = llama
    low = copy.deepcopy(cpu).to(dtype)
    low.set_attn_implementation(attention)
    with torch.no_grad():
        exact, theirs = cpu(**padded()).logits, low(**padded()).logits.float()
        device = low.to("neuron")
        ours = device(**on_device(padded())).logits.cpu().float()
    assert (ours - exact).abs().mean() <= 1.2 * (theirs - exact).abs().mean()
    assert device.generate(**on_device(padded()), max_new_tokens=4).shape == (3, 13)


@pytest.mark.parametrize("options", [dict(), dict(num_return_sequences=2, do_sample=True)], ids=["greedy", "sampled"])
def test_continuous_batching(llama, options):
    cpu, device = llama
    prompts = [PROMPT[0, : 4 + 3 * i].tolist() for i in range(3)]
    config = transformers.GenerationConfig(max_new_tokens=8, eos_token_id=-1, pad_token_id=256, **(dict(do_sample=False) | options))
    pages = transformers.ContinuousBatchingConfig(page_size=16, num_blocks=16, max_batch_tokens=64)  # the default takes nearly all memory there is
    results = device.generate_batch(prompts, generation_config=config, continuous_batching_config=pages)
    answers = [r.generated_tokens for r in results.values()]
    if options:
        assert len(answers) == 6 and all(len(a) == 8 for a in answers)
    else:
        want = [cpu.generate(torch.tensor([p]), max_new_tokens=8, do_sample=False, eos_token_id=None)[0, len(p):].tolist() for p in prompts]
        assert sorted(answers) == sorted(want)
