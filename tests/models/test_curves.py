"""A hundred steps of supervised fine-tuning: the loss's whole course, not its first steps, follows the CPU's."""

from __future__ import annotations

import pytest
import torch
import transformers
from datasets import Dataset
from trl import SFTConfig, SFTTrainer

VOCABULARY, LENGTH, STEPS = 64, 24, 100


def sequences(n=256):
    """Counting in steps of one to seven: what comes next is known from the second token on, so the loss has far to fall."""
    generator = torch.Generator().manual_seed(0)
    start, step = torch.randint(3, VOCABULARY, (n, 1), generator=generator), torch.randint(1, 8, (n, 1), generator=generator)
    ids = 3 + (start + step * torch.arange(LENGTH)) % (VOCABULARY - 3)
    return Dataset.from_dict({"input_ids": ids.tolist()})


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    from tokenizers import Tokenizer, models

    folder = tmp_path_factory.mktemp("model")
    words = {"<pad>": 0, "<s>": 1, "</s>": 2, **{str(i): i for i in range(3, VOCABULARY)}}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="<pad>"))
    transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="<pad>", bos_token="<s>", eos_token="</s>").save_pretrained(folder)
    transformers.set_seed(0)
    transformers.LlamaForCausalLM(transformers.LlamaConfig(
        vocab_size=VOCABULARY, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        max_position_embeddings=64, pad_token_id=0, bos_token_id=1, eos_token_id=2)).save_pretrained(folder)
    return str(folder)


def curve(folder, out, **options):
    trainer = SFTTrainer(model=folder, train_dataset=sequences(), args=SFTConfig(
        output_dir=str(out), max_steps=STEPS, per_device_train_batch_size=8, learning_rate=3e-3, warmup_steps=10, lr_scheduler_type="cosine", logging_steps=1,
        activation_checkpointing=False, pad_to_multiple_of=8, save_strategy="no", report_to=[], disable_tqdm=True, seed=5, **options))
    trainer.train()
    losses = torch.tensor([entry["loss"] for entry in trainer.state.log_history if "loss" in entry])
    assert len(losses) == STEPS
    return losses


# Each step's difference, and that of the last ten steps' mean, relative to the CPU's loss. (Bfloat16 rounds each product to three digits.)
@pytest.mark.parametrize("options, each, end", [(dict(bf16=False), 1e-4, 1e-5), (dict(bf16=True), 2e-2, 1e-2)], ids=["float32", "bfloat16"])
def test_a_hundred_steps(folder, tmp_path, options, each, end):
    device, cpu = curve(folder, tmp_path, **options), curve(folder, tmp_path, use_cpu=True, **options)
    apart = (device - cpu).abs() / cpu
    print(f"largest difference {apart.max():.1e} at step {int(apart.argmax())}; loss {cpu[0]:.3f} -> {cpu[-1]:.3f} (CPU), {device[-1]:.3f} (device)")
    assert apart.max() < each
    assert abs(device[-10:].mean() / cpu[-10:].mean() - 1) < end
    assert device[-10:].mean() < 0.5 * device[0]
