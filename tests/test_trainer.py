"""Transformers' Trainer as its users call it: no setting names the device, and the same run on the CPU differs from it by `use_cpu=True` alone."""

from __future__ import annotations

import copy
import os
import warnings

import pytest
import torch


os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
transformers = pytest.importorskip("transformers")
pytest.importorskip("accelerate")
VOCABULARY, LENGTH = 48, 16
# Float32 follows the CPU to rounding; bfloat16 rounds each product, elsewhere than the CPU does.
LOSS = {torch.float32: dict(rtol=1e-4, atol=1e-4), torch.bfloat16: dict(rtol=1e-2, atol=1e-2)}
WEIGHTS = dict(rtol=1e-3, atol=1e-4)


pytestmark = pytest.mark.usefixtures("strict")


def llama(**options):
    transformers.set_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=VOCABULARY, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        max_position_embeddings=64, pad_token_id=0, bos_token_id=1, eos_token_id=2, **options)
    return transformers.LlamaForCausalLM(config)


def sentences(n=64):
    """Counting in steps: something a model can learn in few steps."""
    generator = torch.Generator().manual_seed(0)
    start, step = (torch.randint(low, high, (n, 1), generator=generator) for low, high in ((3, VOCABULARY), (1, 4)))
    ids = 3 + (start + step * torch.arange(LENGTH)) % (VOCABULARY - 3)
    return [{"input_ids": row, "labels": row.clone(), "attention_mask": torch.ones_like(row)} for row in ids]


def train(folder, model, *, resume=None, trainer=transformers.Trainer, arguments=transformers.TrainingArguments, **options):
    settings = dict(
        max_steps=8, per_device_train_batch_size=8, learning_rate=1e-2, logging_steps=1, save_strategy="no", report_to=[], disable_tqdm=True, seed=3)
    data, metrics = options.pop("data", None) or sentences(), options.pop("compute_metrics", None)
    arguments = arguments(str(folder), **{**settings, **options})
    t = trainer(copy.deepcopy(model), arguments, train_dataset=data, eval_dataset=data[:8], compute_metrics=metrics)
    t.train(resume_from_checkpoint=resume)
    return t


def logged(trainer, name):
    return torch.tensor([entry[name] for entry in trainer.state.log_history if name in entry])


def on_both(folder, model, dtype=torch.float32, **options):
    """The trainers of a run on the device and of one on the CPU, after the comparison of their curves."""
    device, cpu = train(folder, model, **options), train(folder, model, use_cpu=True, **options)
    assert device.model.device.type == "neuron" and cpu.model.device.type == "cpu"
    torch.testing.assert_close(logged(device, "loss"), logged(cpu, "loss"), **LOSS[dtype])
    assert logged(device, "loss")[-1] < 0.96 * logged(device, "loss")[0]
    return device, cpu


def same_weights(a, b, **tolerance):
    state = a.model.state_dict()
    for name, want in b.model.state_dict().items():
        torch.testing.assert_close(state[name].cpu(), want.cpu(), **tolerance, msg=lambda m, name=name: f"{name}: {m}")


def test_the_device_is_found(tmp_path):
    """PartialState.default_device decides (accelerate/state.py), and TrainingArguments._setup_devices sets the index: both ask torch.neuron.is_available()."""
    arguments = transformers.TrainingArguments(str(tmp_path))
    assert arguments.device == torch.device("neuron:0") and arguments.n_gpu == 1
    assert transformers.Trainer(llama(), arguments).accelerator.device == torch.device("neuron")
    assert torch.accelerator.current_accelerator().type == "neuron"


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_plain_loop(dtype):
    """What a script without Trainer does, mixed precision included."""
    model, curves = llama(), []
    for where in ("cpu", "neuron"):
        m = copy.deepcopy(model).to(where).train()
        optimizer = torch.optim.AdamW(m.parameters(), lr=1e-2)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 8)
        losses = []
        for batch in torch.utils.data.DataLoader(sentences(), batch_size=8):
            with torch.autocast(where, dtype=torch.bfloat16, enabled=dtype == torch.bfloat16):
                loss = m(**{k: v.to(where, non_blocking=True) for k, v in batch.items()}).loss
            loss.backward()
            torch.nn.utils.clip_grad_norm_(m.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad(set_to_none=True)
            losses.append(loss.item())
        curves.append(torch.tensor(losses))
    torch.testing.assert_close(curves[1], curves[0], **LOSS[dtype])
    assert curves[1][-1] < 0.95 * curves[1][0]


OPTIONS = {
    "plain": {},
    "accumulation, clipping": dict(gradient_accumulation_steps=2, max_grad_norm=0.5, max_steps=6),
    "checkpointing": dict(gradient_checkpointing=True),
    "checkpointing, reentrant": dict(gradient_checkpointing=True, gradient_checkpointing_kwargs={"use_reentrant": True}),
    "evaluation": dict(eval_strategy="steps", eval_steps=4, lr_scheduler_type="cosine", warmup_steps=2),
    "fused optimizer": dict(optim="adamw_torch_fused", weight_decay=0.1),
    "adafactor": dict(optim="adafactor"),
    "label smoothing": dict(label_smoothing_factor=0.1),
    "workers": dict(dataloader_num_workers=1, dataloader_pin_memory=True),
}


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_float32(tmp_path, options):
    device, cpu = on_both(tmp_path, llama(), **options)
    torch.testing.assert_close(logged(device, "grad_norm"), logged(cpu, "grad_norm"), rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(logged(device, "eval_loss"), logged(cpu, "eval_loss"), **LOSS[torch.float32])
    assert device.evaluate()["eval_loss"] == pytest.approx(cpu.evaluate()["eval_loss"], rel=1e-4)
    torch.testing.assert_close(device.predict(sentences(4)).predictions, cpu.predict(sentences(4)).predictions, rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize("options", [{}, dict(gradient_checkpointing=True), dict(bf16_full_eval=True)], ids=str)
def test_bfloat16(tmp_path, options):
    device, cpu = on_both(tmp_path, llama(), torch.bfloat16, bf16=True, **options)
    assert device.evaluate()["eval_loss"] == pytest.approx(cpu.evaluate()["eval_loss"], rel=2e-2)


@pytest.mark.parametrize("options", [{}, dict(bf16=True)], ids=str)
def test_compiled(tmp_path, options):
    """torch_compile=True finds the backend by itself (TrainingArguments: "neuron" where torch.neuron is). The reference is not compiled: that would test
    PyTorch's compiler for the CPU."""
    torch._dynamo.reset()
    dtype = torch.bfloat16 if options else torch.float32
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message="backend 'neuron'")  # nothing runs operator by operator
        device = train(tmp_path, llama(), torch_compile=True, **options)
    cpu = train(tmp_path, llama(), use_cpu=True, **options)
    assert device.args.torch_compile_backend == "neuron"
    torch.testing.assert_close(logged(device, "loss"), logged(cpu, "loss"), **LOSS[dtype])


@pytest.mark.parametrize("options", [{}, dict(bf16=True)], ids=str)
def test_resumed_is_uninterrupted(tmp_path, options):
    """Bit for bit. (No dropout: Trainer stores the generators of a fixed list of devices, Trainer._save_rng_state, which neuron is not on.)"""
    saving = dict(save_strategy="steps", save_steps=4, **options)
    whole = train(tmp_path / "a", llama(), **saving)
    train(tmp_path / "b", llama(), **saving)
    (tmp_path / "b/checkpoint-8").rename(tmp_path / "unused")
    resumed = train(tmp_path / "b", llama(), resume=True, **saving)
    assert resumed.state.global_step == 8
    same_weights(resumed, whole, rtol=0, atol=0)
    assert torch.equal(logged(resumed, "loss"), logged(whole, "loss"))


def test_a_checkpoint_of_the_device_goes_on_on_the_cpu(tmp_path):
    saving = dict(save_strategy="steps", save_steps=4)
    train(tmp_path, llama(), **saving)
    (tmp_path / "checkpoint-8").rename(tmp_path / "unused")
    resumed = train(tmp_path, llama(), resume=True, use_cpu=True)
    same_weights(resumed, train(tmp_path / "cpu", llama(), use_cpu=True), **WEIGHTS)


def test_dropout_repeats_with_the_seed(tmp_path):
    a, b = (train(tmp_path, llama(attention_dropout=0.2), gradient_checkpointing=True) for _ in range(2))
    assert torch.equal(logged(a, "loss"), logged(b, "loss"))
    same_weights(a, b, rtol=0, atol=0)


def test_classifier_with_metrics(tmp_path):
    transformers.set_seed(0)
    config = transformers.BertConfig(vocab_size=VOCABULARY, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64,
                                     hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, num_labels=2)
    data = [{"input_ids": s["input_ids"], "labels": int(s["input_ids"][0] > VOCABULARY // 2)} for s in sentences()]
    def accuracy(prediction):
        return {"accuracy": float((prediction.predictions.argmax(-1) == prediction.label_ids).mean())}

    model = transformers.BertForSequenceClassification(config)
    device, cpu = on_both(tmp_path, model, data=data, max_steps=16, learning_rate=3e-3, logging_steps=4, compute_metrics=accuracy)
    assert device.evaluate()["eval_accuracy"] == cpu.evaluate()["eval_accuracy"]


def test_seq2seq(tmp_path):
    transformers.set_seed(0)
    config = transformers.T5Config(vocab_size=VOCABULARY, d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4, dropout_rate=0.0, decoder_start_token_id=0)
    data = [{"input_ids": s["input_ids"], "labels": s["input_ids"].flip(0)} for s in sentences()]
    device, cpu = on_both(tmp_path, transformers.T5ForConditionalGeneration(config), data=data, trainer=transformers.Seq2SeqTrainer,
                          arguments=transformers.Seq2SeqTrainingArguments, predict_with_generate=True, generation_max_length=12)
    assert device.predict(data[:4]).predictions.tolist() == cpu.predict(data[:4]).predictions.tolist()
