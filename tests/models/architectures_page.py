"""Writes docs/architectures.md: each causal language model of Transformers, in each mode, on device neuron compared with the CPU.

    python tests/models/architectures_page.py                  # all modes: an hour on two busy cores
    python tests/models/architectures_page.py --modes static   # these columns anew, the others as the page has them
    python tests/models/architectures_page.py --missing        # what the page does not have yet

The page is written after each case, so a run that is stopped leaves what it measured.
"""

import argparse
import os
import re
import sys
from collections import Counter
from pathlib import Path

import torch
import transformers
from architectures import CANNOT, MODES, NAMES, Examiner
from tqdm import tqdm

PAGE = Path(__file__).resolve().parents[2] / "docs" / "architectures.md"
MEANING = {
    "forward": "float32 logits, within 1e-3 of their largest",
    "bfloat16": "bfloat16 logits, at most twice as far from the CPU's float32 as the CPU's own bfloat16 is",
    "backward": "float32 loss and the gradient of every parameter, within 1e-3 of its largest (or 1e-5 of the model's)",
    "generate": "greedy, 8 new tokens, dynamic cache, two prompts, one padded on the left where the model takes that: the CPU's tokens, or a tie of its logits",
    "static": '`cache_implementation="static"` and `CompileConfig(backend="neuron")`: the CPU\'s tokens in two calls, the second of which compiles nothing',
}
MISSING = ("not run", "")


def read(text):
    """{(model type, mode): (verdict, reason)} of a page."""
    rows = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in text.splitlines() if line.startswith("| ")]
    table = [row for row in rows if row[0].startswith("`")]
    modes = next((row[1:] for row in rows if row[0] == "architecture"), [])
    found = {(row[0].strip("`"), mode): (verdict, "") for row in table if row[1] not in MODES for mode, verdict in zip(modes, row[1:])}
    reasons = {(row[0].strip("`"), row[1]): (row[2], row[3]) for row in table if len(row) == 4 and row[1] in MODES}
    return {**found, **reasons}


def write(results):
    modes = [mode for mode in MEANING if any(key[1] == mode for key in results)]
    counts = {mode: Counter(results.get((name, mode), MISSING)[0] for name in NAMES) for mode in modes}
    out = [
        "# Architectures",
        "",
        "Written by `make architectures-page` from what ran: not edited by hand.",
        "",
        f"Transformers {transformers.__version__} knows {len(NAMES)} types of causal language models. Each ran here as a small one with random weights, on device",
        f"`neuron` and on the CPU (PyTorch {torch.__version__.split('+')[0]}), the device's name the only difference, and no operator fell back to the CPU:",
        "",
        "| mode | pass | fail | CPU cannot | what is compared |",
        "| --- | --- | --- | --- | --- |",
        *(f"| {mode} | {counts[mode]['pass']} | {counts[mode]['fail']} | {counts[mode][CANNOT]} | {MEANING[mode]} |" for mode in modes),
        "",
        "*CPU cannot*: PyTorch's CPU has nothing to compare with either. It raises, gives NaN, has no static cache, or compiles again. Gemma 3n is without its",
        "image tower (of timm), which text does not run; Reformer's random hash functions are drawn on the CPU for both, as two generators draw different ones.",
        "",
        f"| architecture | {' | '.join(modes)} |",
        f"| --- |{' --- |' * len(modes)}",
    ]
    out += [f"| `{name}` | {' | '.join(results.get((name, mode), MISSING)[0] for mode in modes)} |" for name in NAMES]
    for verdict, title in (("fail", "What fails"), (CANNOT, "What the CPU cannot"), ("pass", "What passes, with a remark")):
        rows = [(name, mode, results[name, mode][1]) for name in NAMES for mode in modes if results.get((name, mode), MISSING)[0] == verdict]
        rows = [row for row in rows if row[2]]
        if rows:
            out += ["", f"## {title}", "", "| architecture | mode | verdict | why |", "| --- | --- | --- | --- |"]
            out += [f"| `{name}` | {mode} | {verdict} | {why.replace('|', '/')} |" for name, mode, why in rows]
    return "\n".join(out) + "\n"


def on_page():
    results = read(PAGE.read_text()) if PAGE.exists() else {}
    return {key: result for key, result in results.items() if result != MISSING}


def main():
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--modes", default=",".join(MEANING), help="columns to measure, the others stay")
    options.add_argument("--types", default="", help="a regular expression: model types to measure")
    options.add_argument("--missing", action="store_true", help="measure only what the page does not have")
    options = options.parse_args()
    examiner, found = Examiner(), {}
    names = [name for name in NAMES if re.match(options.types, name)]
    known = on_page() if options.missing else {}
    cases = tqdm([(name, mode) for mode in options.modes.split(",") for name in names if (name, mode) not in known])
    for case in cases:
        cases.set_description(" ".join(case))
        found[case] = examiner(*case)
        draft = PAGE.with_suffix(f".{os.getpid()}")
        draft.write_text(write(on_page() | found))  # another run may have other columns
        draft.replace(PAGE)
    examiner.close()
    print(f"{PAGE}: {sum(verdict == 'fail' for verdict, _ in found.values())} of {len(found)} fail", file=sys.stderr)


if __name__ == "__main__":
    main()
