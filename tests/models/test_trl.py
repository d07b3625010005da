"""TRL's trainers and its command line, as its documentation calls them; the run on the CPU differs by `use_cpu=True` alone."""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys

import pytest
import torch
import transformers
from datasets import Dataset
from peft import LoraConfig
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from trl import DPOConfig, DPOTrainer, GRPOConfig, GRPOTrainer, KTOConfig, KTOTrainer, RewardConfig, RewardTrainer, RLOOConfig, RLOOTrainer, SFTConfig, SFTTrainer

ROOT = pathlib.Path(__file__).resolve().parents[2]
TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{% if m['role'] == 'assistant' %}{% generation %}{{ m['content'] }}<|im_end|>{% endgeneration %}"
    "{% else %}{{ m['content'] }}<|im_end|>{% endif %}\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}")
SUMS = [(f"{a}+{b}=", str(a + b), str(a + b + 1)) for a in range(6) for b in range(4)]


def chat(*turns):
    return [{"role": role, "content": text} for role, text in zip(("user", "assistant"), turns)]


DATA = {
    "text": [{"text": q + a} for q, a, _ in SUMS],
    "messages": [{"messages": chat(q, a)} for q, a, _ in SUMS],
    "completion": [{"prompt": q, "completion": a} for q, a, _ in SUMS],
    "preference": [{"prompt": chat(q), "chosen": [{"role": "assistant", "content": a}], "rejected": [{"role": "assistant", "content": w}]} for q, a, w in SUMS],
    "unpaired": [{"prompt": q, "completion": t, "label": i == 0} for q, *answers in SUMS for i, t in enumerate(answers)],
    "prompt": [{"prompt": q} for q, *_ in SUMS],
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A chat model of two layers with random weights, on bytes, where a GPU user's script has a name of the Hub."""
    folder = tmp_path_factory.mktemp("model")
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({c: i for i, c in enumerate(alphabet)}, []))
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<|im_start|>", eos_token="<|im_end|>", pad_token="<|pad|>")
    fast.chat_template = TEMPLATE
    fast.save_pretrained(folder)
    transformers.set_seed(0)
    transformers.LlamaForCausalLM(transformers.LlamaConfig(
        vocab_size=len(fast), hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        max_position_embeddings=256, initializer_range=0.1,
        bos_token_id=fast.bos_token_id, eos_token_id=fast.eos_token_id, pad_token_id=fast.pad_token_id)).save_pretrained(folder)
    return str(folder)


def places(completions, **_):
    """A reward by the completion's place in its group: advantages are there also when all of a group are equal."""
    return [0.1 * len(c) + i % 2 for i, c in enumerate(completions)]


def run(trainer, config, folder, out, data, *, lora=None, where, **options):
    settings = dict(
        max_steps=6, per_device_train_batch_size=4, learning_rate=5e-3, logging_steps=1, save_strategy="no", report_to=[], disable_tqdm=True, seed=1)
    arguments = config(output_dir=str(out), **{**settings, **options, **where})
    peft = lora and LoraConfig(r=4, lora_alpha=16, target_modules="all-linear", task_type="SEQ_CLS" if trainer is RewardTrainer else "CAUSAL_LM",
                               modules_to_save=["score"] if trainer is RewardTrainer else None)
    named = {"reward_funcs": places} if trainer in (GRPOTrainer, RLOOTrainer) else {}
    transformers.set_seed(1)  # reward heads and adapters are initialised by the trainer
    t = trainer(model=folder, args=arguments, train_dataset=Dataset.from_list(DATA[data]), peft_config=peft or None, **named)
    t.train()
    return t


def curve(trainer, name="loss"):
    return torch.tensor([e[name] for e in trainer.state.log_history if name in e])


def compare(trainer, config, folder, out, data, tolerance=1e-3, metrics=(), **options):
    device = run(trainer, config, folder, out, data, where={}, **options)
    cpu = run(trainer, config, folder, out, data, where={"use_cpu": True}, **options)
    assert {p.device.type for p in device.model.parameters()} == {"neuron"} and {p.device.type for p in cpu.model.parameters()} == {"cpu"}
    for name in ("loss", "grad_norm", *metrics):
        assert len(curve(device, name)) == 6
        torch.testing.assert_close(curve(device, name), curve(cpu, name), rtol=tolerance, atol=tolerance, msg=lambda m, name=name: f"{name}: {m}")
    assert curve(device, "grad_norm").min() > 0
    return device, cpu


SFT = {
    "text": ("text", dict()),
    "messages, assistant only": ("messages", dict(assistant_only_loss=True)),
    "prompt and completion": ("completion", dict()),
    "packing": ("messages", dict(packing=True, max_length=64)),
    "checkpointing off": ("messages", dict(gradient_checkpointing=False)),
    "accumulation": ("messages", dict(gradient_accumulation_steps=2)),
    "dynamic fine-tuning": ("completion", dict(loss_type="dft")),
}


@pytest.mark.parametrize("lora", [False, True], ids=["full", "lora"])
@pytest.mark.parametrize("data, options", SFT.values(), ids=SFT)
def test_sft(folder, tmp_path, data, options, lora):
    device, _ = compare(SFTTrainer, SFTConfig, folder, tmp_path, data, bf16=False, lora=lora, **options)
    assert curve(device)[-1] < curve(device)[0] or "loss_type" in options


@pytest.mark.parametrize("lora", [False, True], ids=["full", "lora"])
def test_sft_as_it_comes(folder, tmp_path, lora):
    """TRL's own defaults: bfloat16 autocast and gradient checkpointing."""
    compare(SFTTrainer, SFTConfig, folder, tmp_path, "messages", tolerance=2e-2, lora=lora)


PREFERENCES = {
    "dpo": (DPOTrainer, DPOConfig, "preference", ("rewards/margins",)),
    "reward": (RewardTrainer, RewardConfig, "preference", ("margin",)),
    "kto": (KTOTrainer, KTOConfig, "unpaired", ()),
}


@pytest.mark.parametrize("lora", [False, True], ids=["full", "lora"])
@pytest.mark.parametrize("trainer, config, data, metrics", PREFERENCES.values(), ids=PREFERENCES)
def test_preferences(folder, tmp_path, trainer, config, data, metrics, lora):
    compare(trainer, config, folder, tmp_path, data, bf16=False, lora=lora, metrics=metrics)


@pytest.mark.parametrize("trainer, config", [(GRPOTrainer, GRPOConfig), (RLOOTrainer, RLOOConfig)], ids=["grpo", "rloo"])
def test_online(folder, tmp_path, trainer, config):
    """Completions are sampled, each device from its own generator: the likeliest token alone (top_k=1) makes both draw the same. (Adam's first steps are the
    gradients' signs, rounding included: with it, weights drift apart until another token is the likeliest.)"""
    compare(trainer, config, folder, tmp_path, "prompt", bf16=False, top_k=1, num_generations=2, max_completion_length=8, beta=0.1, optim="sgd", learning_rate=0.05,
            metrics=("reward", "entropy"))


def test_online_samples(folder, tmp_path):
    """Sampling as it comes: completions differ within a group, and the same seed repeats them."""
    options = dict(num_generations=4, max_completion_length=8, where={})
    a, b = (run(GRPOTrainer, GRPOConfig, folder, tmp_path, "prompt", **options) for _ in range(2))
    assert curve(a, "reward_std").max() > 0
    assert torch.equal(curve(a, "reward"), curve(b, "reward")) and torch.equal(curve(a), curve(b))


def test_command_line(folder, tmp_path):
    """`trl sft` on a file of the user's."""
    data = tmp_path / "data"
    data.mkdir()
    (data / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in DATA["messages"]))
    losses = []
    for where in ([], ["--use_cpu", "true"]):
        out = tmp_path / f"out{len(where)}"
        words = f"""--model_name_or_path {folder} --dataset_name {data} --output_dir {out} --max_steps 3 --learning_rate 5e-3 --report_to none
            --per_device_train_batch_size 4 --logging_steps 1 --use_peft --lora_r 4 --bf16 false --save_steps 3""".split()
        done = subprocess.run([pathlib.Path(sys.executable).with_name("trl"), "sft", *words, *where], capture_output=True, text=True, cwd=tmp_path, timeout=600)
        assert done.returncode == 0, done.stdout + done.stderr
        assert (out / "adapter_model.safetensors").exists()
        state = json.loads((out / "checkpoint-3/trainer_state.json").read_text())
        losses.append([e["loss"] for e in state["log_history"] if "loss" in e])
    assert losses[0] == pytest.approx(losses[1], rel=1e-3)


def test_the_example(folder, tmp_path):
    """examples/finetune.py, which `make finetune` runs: the CPU's losses to the digits it prints, and no fallback."""
    rows = []
    for where in ([], ["--cpu"]):
        words = ["--model", folder, "--output", str(tmp_path / "adapter"), "--max-steps", "8", "--float32", *where]
        done = subprocess.run([sys.executable, str(ROOT / "examples/finetune.py"), *words], capture_output=True, text=True, timeout=600)
        assert done.returncode == 0, done.stdout + done.stderr
        assert (tmp_path / "adapter/adapter_model.safetensors").exists()
        rows.append(dict(line.strip().split("  ", 1) for line in done.stdout.splitlines() if "  " in line.strip()))
    losses = [[float(loss) for loss in row["loss"].split(" -> ")] for row in rows]
    assert losses[0] == pytest.approx(losses[1], abs=2e-3) and losses[0][-1] < losses[0][0]
    assert rows[0]["CPU fallbacks"] == "0" and rows[0]["device"].startswith("neuron") and rows[1]["device"].startswith("cpu")
