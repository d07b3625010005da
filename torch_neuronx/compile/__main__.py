"""``python -m torch_neuronx.compile <model>``: a language model's programs for Trainium, compiled ahead of time, on any machine.

Runs a first static ``generate`` with nothing executed, so that every program it needs is written as StableHLO and, where neuronx-cc is installed,
compiled. The folder is a cache: ``TORCH_NEURONX_NEFF_CACHE_DIR=<folder>`` on the instance finds the NEFFs there. Prints each program and what the
hardware's compiler is known to refuse or to change in it.
"""

from __future__ import annotations

import argparse
import os
import pathlib
import re
import sys

# What stands in a program's text -> what the compiler's documentation says of it.
_KNOWN = {
    r"x?f64>": "float64: no such arithmetic, computed as float32",
    r"complex<": "complex numbers: few operators take them",
    r"f8E4M3FN|f8E5M2FNUZ|f8E4M3FNUZ": "float8 of this kind: not before trn3, FNUZ nowhere",
    r'"stablehlo.sort"': "sort: limited sizes",
    r'"stablehlo.while"': "a loop: depends on the compiler's version",
    r'"stablehlo.(?:cholesky|triangular_solve|fft)"': "dense factorisations, solvers, transforms: not supported",
    r"tensor<[^>]*\?": "a dynamic size: not supported",
    r'"stablehlo.dot_general"[^\n]*xi64>': "a product of int64: computed in float32, exact up to 2^24",
}


def remarks(text: str) -> list[str]:
    """What the hardware's compiler is known to refuse or to change in a program."""
    return [remark for pattern, remark in _KNOWN.items() if re.search(pattern, text)]


def report(folder: pathlib.Path) -> tuple[int, int]:
    """Prints a line for each program in the folder; how many there are, and how many have no NEFF."""
    programs = sorted(folder.glob("*/*.mlir"), key=lambda p: p.stat().st_mtime)
    missing = 0
    for program in programs:
        text = program.read_text()
        name = re.match(r"module @(?:tnx_)?(\w+)", text)
        neff, refused = program.with_suffix(".neff"), program.with_suffix(".txt")
        state = f"NEFF of {neff.stat().st_size:,} bytes" if neff.exists() else "no NEFF"
        missing += not neff.exists()
        print(f"{program.relative_to(folder)}  {name[1] if name else ''}  {len(text):,} characters, {state}")
        for remark in remarks(text):
            print(f"    {remark}")
        if refused.exists():
            print("    " + refused.read_text().replace("\n", "\n    "))
    print(f"{len(programs)} programs in {folder}" + (f", {missing} without a NEFF" if missing else ""))
    return len(programs), missing


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m torch_neuronx.compile", description="Compiles a causal language model's programs for Trainium; nothing is executed."
    )
    parser.add_argument("model", help="a folder or a name on the Hugging Face Hub")
    parser.add_argument("--output", type=pathlib.Path, help="folder for StableHLO and NEFFs (default: the cache)")
    parser.add_argument("--prompt-tokens", type=int, default=32, help="length of the prompt that the prefill is compiled for (%(default)s)")
    parser.add_argument("--max-new-tokens", type=int, default=32, help="how many tokens the static cache leaves room for (%(default)s)")
    parser.add_argument("--dtype", default="bfloat16", help="of the weights (%(default)s)")
    arguments = parser.parse_args(argv)
    cache = os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache"
    folder = (arguments.output or pathlib.Path(os.environ.get("TORCH_NEURONX_NEFF_CACHE_DIR") or pathlib.Path(cache) / "torch_neuronx" / "neff")).absolute()
    os.environ["TORCH_NEURONX_COMPILE_ONLY"] = "1"
    os.environ["TORCH_NEURONX_NEFF_CACHE_DIR"] = str(folder)

    import torch
    import transformers

    if torch.neuron.is_initialized():
        print("the device is in use already: this has to run in a process of its own", file=sys.stderr)
        return 2
    model = transformers.AutoModelForCausalLM.from_pretrained(arguments.model, dtype=getattr(torch, arguments.dtype)).eval().to("neuron")
    ids = torch.zeros(1, arguments.prompt_tokens, dtype=torch.int64)
    # Two tokens are one prefill and one step; every later step is the same program. The cache's size is what max_new_tokens says.
    steps = transformers.StoppingCriteriaList([lambda ids, scores, **_: torch.full((ids.shape[0],), ids.shape[1] >= arguments.prompt_tokens + 2)])
    with torch.no_grad():
        model.generate(
            ids, attention_mask=torch.ones_like(ids), max_new_tokens=arguments.max_new_tokens, do_sample=False, eos_token_id=None, pad_token_id=0,
            cache_implementation="static", stopping_criteria=steps,
        )
    torch.neuron.synchronize()
    _, missing = report(folder)
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
