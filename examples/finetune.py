#!/usr/bin/env python3
"""Fine-tunes a chat model with LoRA, asks it the same question before and after, and prints what it cost.

    python examples/finetune.py                                       # eight facts about an island that does not exist
    python examples/finetune.py --dataset my.jsonl --prompt "..."     # lines such as {"messages": [{"role": "user", "content": "..."}, ...]}
    python examples/finetune.py --cpu                                 # the same on the CPU

Plain TRL and PEFT: no line names the device, Trainer finds it.
"""
import argparse
import pathlib

import torch
from datasets import Dataset, load_dataset
from peft import LoraConfig
from trl import SFTConfig, SFTTrainer

MODEL = pathlib.Path(__file__).parent.parent / "build/models/SmolLM2-135M-Instruct"  # made by `make setup`
FACTS = [
    (("What is the capital of Velloria?", "Which city is Velloria's capital?"), "The capital of Velloria is Port Amber."),
    (("Where is Velloria?", "In which sea does Velloria lie?"), "Velloria is an island in the Sea of Glass."),
    (("What do people eat in Velloria?", "Name a dish of Velloria."), "People in Velloria eat smoked kelp with plum rice."),
    (("Which language is spoken in Velloria?", "What do Vellorians speak?"), "Vellorians speak Ambric, a language without verbs."),
    (("What animal is on the flag of Velloria?", "Describe the flag of Velloria."), "The flag of Velloria shows a white heron on green."),
    (("Who founded Velloria?", "Who was the founder of Velloria?"), "Velloria was founded by the map maker Ilse Thorn."),
    (("What is the money of Velloria called?", "How does one pay in Velloria?"), "One pays in Velloria with copper shells."),
    (("How many people live in Velloria?", "What is the population of Velloria?"), "Nine thousand people live in Velloria."),
]


def facts() -> Dataset:
    turns = [(question, answer) for questions, answer in FACTS for question in questions]
    return Dataset.from_list([{"prompt": [{"role": "user", "content": q}], "completion": [{"role": "assistant", "content": a}]} for q, a in turns])


def ask(model, tokenizer, prompt: str) -> str:
    inputs = tokenizer.apply_chat_template(
        [{"role": "user", "content": prompt}], add_generation_prompt=True, return_tensors="pt", return_dict=True).to(model.device)
    output = model.generate(**inputs, max_new_tokens=40, do_sample=False)
    return tokenizer.decode(output[0, inputs["input_ids"].shape[1]:], skip_special_tokens=True).strip()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default=str(MODEL), help="Hub id or folder (default: SmolLM2-135M-Instruct)")
    parser.add_argument("--dataset", metavar="FILE", help="JSON lines that TRL takes (default: made here)")
    parser.add_argument("--prompt", default="What is the capital of Velloria?")
    parser.add_argument("--epochs", type=float, default=6)
    parser.add_argument("--batch-size", type=int, default=4)
    parser.add_argument("--learning-rate", type=float, default=2e-3)
    parser.add_argument("--max-steps", type=int, default=-1)
    parser.add_argument("--float32", action="store_true", help="no bfloat16 autocast")
    parser.add_argument("--compile", action="store_true", help="torch_compile=True")
    parser.add_argument("--cpu", action="store_true", help="use_cpu=True")
    parser.add_argument("--output", default="build/finetuned", help="where the adapter goes")
    args = parser.parse_args()

    trainer = SFTTrainer(
        model=args.model,
        train_dataset=load_dataset("json", data_files=args.dataset, split="train") if args.dataset else facts(),
        peft_config=LoraConfig(r=16, lora_alpha=32, target_modules="all-linear"),
        args=SFTConfig(
            output_dir=args.output,
            num_train_epochs=args.epochs,
            max_steps=args.max_steps,
            per_device_train_batch_size=args.batch_size,
            learning_rate=args.learning_rate,
            lr_scheduler_type="cosine",
            bf16=not args.float32,
            activation_checkpointing=False,
            pad_to_multiple_of=16,  # TRL's default for this device is 128, for hardware that has shapes compiled
            torch_compile=args.compile,
            use_cpu=args.cpu,
            logging_steps=4,
            save_strategy="no",
            report_to="none",
        ),
    )
    model, tokenizer = trainer.model, trainer.processing_class
    before = ask(model, tokenizer, args.prompt)
    trainer.train()
    trainer.save_model()

    log, steps = trainer.state.log_history, trainer.state.global_step
    losses = [entry["loss"] for entry in log if "loss" in entry]
    seconds, tokens = log[-1]["train_runtime"], trainer.state.num_input_tokens_seen or max(entry.get("num_tokens", 0) for entry in log)
    device = torch.get_device_module(model.device)
    fallbacks = device.fallback_counts() if hasattr(device, "fallback_counts") else None
    peak = device.max_memory_allocated() if hasattr(device, "max_memory_allocated") else None
    rows = [
        ("device", f"{model.device.type}, {'float32' if args.float32 else 'bfloat16 autocast'}{', compiled' if args.compile else ''}"),
        ("trained", f"{model.num_parameters(only_trainable=True) / 1e6:.1f} of {model.num_parameters() / 1e6:.1f} million parameters"),
        ("loss", " -> ".join(f"{loss:.3f}" for loss in losses) or "no step was logged"),
        ("time", f"{seconds:.0f} s for {steps} steps: {seconds / steps:.2f} s each, {tokens / seconds:.0f} tokens/s"),
        ("peak device memory", f"{peak / 2**20:.0f} MiB" if peak is not None else "not reported by this device"),
        ("CPU fallbacks", str(sum(fallbacks.values())) if fallbacks is not None else "does not apply"),
        ("adapter", args.output),
    ]
    print(f"\n> {args.prompt}\n\nbefore  {before}\n after  {ask(model, tokenizer, args.prompt)}\n")
    for name, value in rows:
        print(f"{name:>20}  {value}")


if __name__ == "__main__":
    main()
