"""PEFT's methods as its users call them, each against the same calls on the CPU: training, merging, saving and loading, several adapters at a time.

(Transformers' own add_adapter is not among them: Transformers 5.24 asks for a PEFT of 0.22, which is newer than the newest, on every device.)
"""

from __future__ import annotations

import copy

import peft
import pytest
import torch
import transformers
from peft import AutoPeftModelForCausalLM, LoraConfig, PeftModel, TaskType, get_peft_model

VOCABULARY = 64
LINEAR = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
CLOSE = dict(rtol=1e-3, atol=1e-4)


def llama():
    transformers.set_seed(0)
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(
        vocab_size=VOCABULARY, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=4,
        max_position_embeddings=64, initializer_range=0.1, pad_token_id=0, bos_token_id=1, eos_token_id=2))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("base")
    llama().save_pretrained(folder)
    return str(folder)


def batch(device, rows=4, length=12):
    return torch.randint(3, VOCABULARY, (rows, length), generator=torch.Generator().manual_seed(1)).to(device)


def train(model, steps=4, learning_rate=1e-2):
    """Losses and the first gradients. SGD, as Adam's first steps are the gradients' signs, rounding included."""
    device, losses, gradients = model.device, [], None
    model.train()
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=learning_rate, momentum=0.9)
    for step in range(steps):
        optimizer.zero_grad()
        loss = model(input_ids=batch(device), labels=batch(device)).loss
        loss.backward()
        gradients = gradients or {name: p.grad.cpu().clone() for name, p in model.named_parameters() if p.grad is not None}
        optimizer.step()
        if hasattr(model.base_model, "update_and_allocate"):  # AdaLoRA: as its documentation asks, after the optimizer
            model.base_model.update_and_allocate(step)
        losses.append(loss.item())
    return losses, gradients


@torch.no_grad()
def logits(model, **options):
    model.eval()
    return model(input_ids=batch(model.device), **options).logits.cpu()


def devices(model):
    return {p.device.type for p in model.parameters()}


def lora(**options):
    return LoraConfig(r=4, lora_alpha=8, target_modules=LINEAR, init_lora_weights=False, task_type="CAUSAL_LM", **options)


def on_linear(name, **options):
    return getattr(peft, name)(target_modules=LINEAR, task_type="CAUSAL_LM", **options)


METHODS = {
    "LoRA": lora,
    "LoRA, defaults": lambda: LoraConfig(task_type="CAUSAL_LM"),
    "LoRA, PiSSA": lambda: LoraConfig(r=4, target_modules=LINEAR, init_lora_weights="pissa", task_type="CAUSAL_LM"),
    "LoRA, OLoRA": lambda: LoraConfig(r=4, target_modules=LINEAR, init_lora_weights="olora", task_type="CAUSAL_LM"),
    "LoRA, embeddings and head": lambda: LoraConfig(r=4, target_modules=["embed_tokens", "q_proj"], modules_to_save=["lm_head"], task_type="CAUSAL_LM"),
    "LoRA, parameters": lambda: LoraConfig(r=4, target_modules=[], target_parameters=["q_proj.weight"], init_lora_weights=False, task_type="CAUSAL_LM"),
    "LoRA, trainable tokens": lambda: lora(trainable_token_indices={"embed_tokens": [5, 7]}),
    "rsLoRA": lambda: lora(use_rslora=True),
    "DoRA": lambda: lora(use_dora=True),
    "AdaLoRA": lambda: on_linear("AdaLoraConfig", init_r=6, target_r=3, tinit=1, tfinal=1, total_step=4, init_lora_weights=False),
    "IA3": lambda: peft.IA3Config(target_modules=["k_proj", "down_proj"], feedforward_modules=["down_proj"], init_ia3_weights=False, task_type="CAUSAL_LM"),
    "LoHa": lambda: on_linear("LoHaConfig", r=4, init_weights=False),
    "LoKr": lambda: on_linear("LoKrConfig", r=4, init_weights=False),
    "OFT": lambda: on_linear("OFTConfig", r=0, oft_block_size=8, init_weights=False),
    "OFT, Cayley-Neumann off": lambda: on_linear("OFTConfig", r=0, oft_block_size=8, use_cayley_neumann=False, init_weights=False),
    "BOFT": lambda: on_linear("BOFTConfig", boft_block_size=8, init_weights=False),
    "HRA": lambda: on_linear("HRAConfig", r=4, init_weights=False),
    "VeRA": lambda: on_linear("VeraConfig", r=8, d_initial=0.5),
    "VB-LoRA": lambda: on_linear("VBLoRAConfig", r=4, num_vectors=8, vector_length=8, topk=2),
    "RandLoRA": lambda: on_linear("RandLoraConfig", r=4),
    "FourierFT": lambda: on_linear("FourierFTConfig", n_frequency=20, init_weights=True),
    "WaveFT": lambda: on_linear("WaveFTConfig", n_frequency=20),
    "C3A": lambda: on_linear("C3AConfig", block_size=8, init_weights=False),
    "MiSS": lambda: on_linear("MissConfig", r=4, init_weights=False),
    "RoAd": lambda: on_linear("RoadConfig", variant="road_1", group_size=8, init_weights=False),
    "SHiRA": lambda: on_linear("ShiraConfig", r=2, mask_type="random", random_seed=1, init_weights=False),
    "FRoD": lambda: on_linear("FrodConfig", sparse_rate=0.1),
    "layer norms": lambda: peft.LNTuningConfig(target_modules=["input_layernorm", "post_attention_layernorm", "norm"], task_type="CAUSAL_LM"),
    "prompt tuning": lambda: peft.PromptTuningConfig(num_virtual_tokens=4, task_type="CAUSAL_LM"),
    "prefix tuning": lambda: peft.PrefixTuningConfig(num_virtual_tokens=4, task_type="CAUSAL_LM"),
    "prefix tuning, projected": lambda: peft.PrefixTuningConfig(num_virtual_tokens=4, prefix_projection=True, encoder_hidden_size=16, task_type="CAUSAL_LM"),
    "p-tuning": lambda: peft.PromptEncoderConfig(num_virtual_tokens=4, encoder_hidden_size=16, task_type="CAUSAL_LM"),
    "p-tuning, LSTM": lambda: peft.PromptEncoderConfig(
        num_virtual_tokens=4, encoder_hidden_size=16, encoder_reparameterization_type="LSTM", encoder_dropout=0.0, task_type="CAUSAL_LM"),
}
UNMERGED = ("prompt", "prefix", "p-tuning")  # what they learn is tokens, not weights
STEEP = ("RandLoRA", "AdaLoRA")  # with steps of the usual size, float32 and float64 part on the CPU too
UNLEAN = ("LoRA, PiSSA", "LoRA, OLoRA", "AdaLoRA")  # what they are made from is not there on the meta device, wherever the model is


@pytest.mark.parametrize("config", METHODS.values(), ids=METHODS)
def test_method(folder, tmp_path, config, request):
    transformers.set_seed(1)
    cpu = get_peft_model(llama(), config())
    device = copy.deepcopy(cpu).to("neuron")
    assert devices(device) == {"neuron"}
    torch.testing.assert_close(logits(device), logits(cpu), **CLOSE)

    name = request.node.callspec.id
    rate = 1e-4 if name in STEEP else 1e-2
    (losses, gradients), (wanted, wanted_gradients) = train(device, learning_rate=rate), train(cpu, learning_rate=rate)
    assert losses == pytest.approx(wanted, rel=1e-3)
    assert losses[-1] < losses[0] or name == "AdaLoRA"  # which drops ranks while it learns
    torch.testing.assert_close(gradients, wanted_gradients, **CLOSE)
    trained = logits(device)
    torch.testing.assert_close(trained, logits(cpu), **CLOSE)
    prompt = dict(max_new_tokens=5, do_sample=False)
    tokens = device.generate(input_ids=batch("neuron", 2, 6), attention_mask=torch.ones(2, 6, dtype=torch.long, device="neuron"), **prompt)
    assert torch.equal(tokens.cpu(), cpu.generate(input_ids=batch("cpu", 2, 6), attention_mask=torch.ones(2, 6, dtype=torch.long), **prompt))

    device.save_pretrained(tmp_path)
    ways = {
        "found": {},
        "by number": dict(torch_device=0),  # safetensors 0.8 takes a fixed list of names, and numbers
        "lean": dict(torch_device=0, low_cpu_mem_usage=True),
        "on the cpu": dict(torch_device="cpu"),
    }
    for how, options in ways.items():
        if how == "lean" and name in UNLEAN:
            continue
        place = "cpu" if how == "on the cpu" else "neuron"
        model = PeftModel.from_pretrained(llama().to(place), tmp_path, **options)
        assert devices(model) == {place}, how
        torch.testing.assert_close(logits(model), trained, **CLOSE, msg=lambda m, how=how: f"{how}: {m}")

    if not name.startswith(UNMERGED):
        with device.disable_adapter():
            plain = logits(device)
        with cpu.disable_adapter():
            torch.testing.assert_close(plain, logits(cpu), **CLOSE)
        merged = device.merge_and_unload(safe_merge=True)
        assert devices(merged) == {"neuron"} and not any("lora_" in name for name, _ in merged.named_parameters())
        torch.testing.assert_close(logits(merged), logits(cpu.merge_and_unload(safe_merge=True)), rtol=1e-3, atol=1e-3)


@pytest.fixture
def two(tmp_path):
    """The same two adapters on the CPU and on the device."""
    transformers.set_seed(2)
    cpu = get_peft_model(llama(), lora(), adapter_name="a")
    cpu.add_adapter("b", lora())
    return copy.deepcopy(cpu).to("neuron"), cpu


def test_adapters_are_made_where_the_model_is():
    model = get_peft_model(llama().to("neuron"), lora())
    model.add_adapter("b", lora(use_dora=True))
    assert devices(model) == {"neuron"}
    losses, _ = train(model)
    assert losses[-1] < losses[0]


def test_chosen_and_disabled(two):
    outputs = []
    for model in two:
        kept = [logits(model)]
        model.set_adapter("b")
        kept.append(logits(model))
        with model.disable_adapter():
            kept.append(logits(model))
        model.base_model.set_adapter(["a", "b"])
        kept.append(logits(model))
        model.delete_adapter("a")
        model.set_adapter("b")
        kept.append(logits(model))
        outputs.append(kept)
    for device, cpu in zip(*outputs):
        torch.testing.assert_close(device, cpu, **CLOSE)
    assert torch.equal(outputs[0][1], outputs[0][4]) and not torch.allclose(outputs[0][0], outputs[0][1])


def test_mixed_batches(two):
    """Each row of a batch through its own adapter equals the rows by themselves."""
    names = ["a", "b", "__base__", "a"]
    device, cpu = (logits(model, adapter_names=names) for model in two)
    torch.testing.assert_close(device, cpu, **CLOSE)
    two[0].set_adapter("b")
    torch.testing.assert_close(device[1], logits(two[0])[1], **CLOSE)
    prompt = dict(max_new_tokens=5, do_sample=False, adapter_names=names)
    tokens = [m.generate(input_ids=batch(m.device, 4, 6), attention_mask=torch.ones(4, 6, dtype=torch.long, device=m.device), **prompt).cpu() for m in two]
    assert torch.equal(*tokens)


@pytest.mark.parametrize("kind", ["linear", "cat", "svd", "ties", "dare_linear", "dare_ties", "magnitude_prune"])
def test_weighted_combination(two, kind):
    # Which weights DARE drops is drawn, on the device from its own generator: of density 1 it drops none.
    options = {} if kind in ("linear", "cat", "svd") else {"density": 1.0 if kind.startswith("dare") else 0.5}
    for model in two:
        model.add_weighted_adapter(["a", "b"], [0.7, 0.4], "sum", combination_type=kind, **options)
        model.set_adapter("sum")
    assert devices(two[0]) == {"neuron"}
    torch.testing.assert_close(*map(logits, two), rtol=1e-3, atol=1e-3)


def test_merged_for_a_while(two):
    for model in two:
        model.merge_adapter(["a", "b"])
    torch.testing.assert_close(*map(logits, two), **CLOSE)
    for model in two:
        model.unmerge_adapter()
    torch.testing.assert_close(*map(logits, two), **CLOSE)


def test_saved_together(two, tmp_path):
    device, cpu = two
    device.save_pretrained(tmp_path)
    loaded = PeftModel.from_pretrained(llama().to("neuron"), tmp_path / "a", adapter_name="a")
    loaded.load_adapter(tmp_path / "b", adapter_name="b")
    for name in "ab":
        loaded.set_adapter(name), cpu.set_adapter(name)
        torch.testing.assert_close(logits(loaded), logits(cpu), **CLOSE)
    assert devices(loaded) == {"neuron"}


def test_found_with_its_base(folder, tmp_path):
    """AutoPeftModel: one path, one device map."""
    transformers.set_seed(2)
    get_peft_model(transformers.AutoModelForCausalLM.from_pretrained(folder, dtype="float32"), lora()).save_pretrained(tmp_path)
    device, cpu = (AutoPeftModelForCausalLM.from_pretrained(tmp_path, device_map=place) for place in ("neuron", "cpu"))
    assert devices(device) == {"neuron"}
    torch.testing.assert_close(logits(device), logits(cpu), **CLOSE)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_bases(dtype):
    """The base in half precision, the adapter in float32, as PEFT makes it."""
    transformers.set_seed(2)
    cpu = get_peft_model(llama().to(dtype), lora(), autocast_adapter_dtype=True)
    device = copy.deepcopy(cpu).to("neuron")
    assert {p.dtype for n, p in device.named_parameters() if "lora_" in n} == {torch.float32}
    (losses, _), (wanted, _) = train(device), train(cpu)
    assert losses == pytest.approx(wanted, rel=2e-2) and losses[-1] < losses[0]


def test_hot_swap(two, tmp_path):
    """A compiled model takes another adapter's weights without being compiled again."""
    from peft.utils.hotswap import hotswap_adapter

    device, cpu = two
    device.save_pretrained(tmp_path)
    model = PeftModel.from_pretrained(llama().to("neuron"), tmp_path / "a")
    torch._dynamo.reset()
    with torch._dynamo.config.patch(error_on_recompile=True):
        compiled = torch.compile(model, backend="neuron")
        torch.testing.assert_close(logits(compiled), logits(cpu), **CLOSE)
        hotswap_adapter(model, tmp_path / "b", adapter_name="default", torch_device=0)
        cpu.set_adapter("b")
        torch.testing.assert_close(logits(compiled), logits(cpu), **CLOSE)


@pytest.mark.parametrize("kind", [TaskType.SEQ_CLS, TaskType.TOKEN_CLS, TaskType.SEQ_2_SEQ_LM, TaskType.FEATURE_EXTRACTION])
def test_other_tasks(kind):
    transformers.set_seed(2)
    bert = transformers.BertConfig(vocab_size=VOCABULARY, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64, num_labels=3,
                                   hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    t5 = transformers.T5Config(vocab_size=VOCABULARY, d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4, dropout_rate=0.0, decoder_start_token_id=0)
    base = {TaskType.SEQ_CLS: lambda: transformers.BertForSequenceClassification(bert), TaskType.TOKEN_CLS: lambda: transformers.BertForTokenClassification(bert),
            TaskType.SEQ_2_SEQ_LM: lambda: transformers.T5ForConditionalGeneration(t5), TaskType.FEATURE_EXTRACTION: lambda: transformers.BertModel(bert)}[kind]()
    targets = ["q", "v"] if kind == TaskType.SEQ_2_SEQ_LM else ["query", "value"]
    cpu = get_peft_model(base, LoraConfig(task_type=kind, r=4, target_modules=targets, init_lora_weights=False))
    device = copy.deepcopy(cpu).to("neuron")
    results = []
    for model in (device, cpu):
        ids = batch(model.device)
        labels = {TaskType.SEQ_CLS: ids[:, 0] % 3, TaskType.TOKEN_CLS: ids % 3, TaskType.SEQ_2_SEQ_LM: ids}
        named = {"labels": labels[kind]} if kind in labels else {}
        output = model(input_ids=ids, **named)
        loss = output.loss if named else output.last_hidden_state.square().mean()
        loss.backward()
        results.append((loss.detach().cpu(), {n: p.grad.cpu() for n, p in model.named_parameters() if p.grad is not None}))
    torch.testing.assert_close(*results, **CLOSE)
