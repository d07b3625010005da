"""Writes docs/operators.md: each aten overload, how it runs on device neuron, in which dtypes, and as which StableHLO operations.

Everything is asked of the library as it runs: the dispatcher, the operator table, calls recorded from PyTorch's operator database (row_calls.py) that are
run on the device and compared with the CPU, and those calls' StableHLO, run by XLA where it is installed (requirements/test.txt).

    python tests/operators_page.py            # writes the page (ten minutes or more); --check: compares its overloads and states only
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections import Counter, defaultdict
from pathlib import Path

import torch

from torch_neuronx import _C

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "operators.md"
DTYPES = (
    torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.complex64, torch.complex128,
    torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool,
)  # fmt: skip
SHORT = dict(zip(DTYPES, ("f32", "f64", "bf16", "f16", "c64", "c128", "i64", "i32", "i16", "i8", "u8", "bool")))
# Runs of dtypes that mostly come together, so that the column stays narrow.
GROUPS = (("floats", ("f32", "f64", "bf16", "f16")), ("complex", ("c64", "c128")), ("ints", ("i64", "i32", "i16", "i8", "u8")))
COMMON = {"constant", "broadcast_in_dim", "reshape", "convert", "return"}  # part of nearly every lowering: not listed

# Overloads that end in a tensor of a kind that device neuron does not have (test_operators_page.py calls some of them).
RAISES = r"^quantize_per_|^_make_per_|^_empty_\w*quantized$|^to_mkldnn|^sspaddmm"
# Why an overload has no row, by the first pattern that its name matches.
REASONS = (
    (r"^_test_|^_foobar|functorch", "a test of PyTorch's own dispatcher"),
    (r"sparse|_csr|_coo|sspaddmm|spdiags", "about sparse tensors: their kernels are not in this table"),
    (r"nested|jagged|padded_dense", "about nested tensors: no rows"),
    (r"quant|_fq_|affine|int4pack|4bit|scaled_mm", "about quantised numbers: no rows"),
    (r"mkldnn", "another library's tensor layout"),
    (r"_conv2d|_conv3d|slow_conv", "what `convolution` calls on the CPU; on the device `convolution` is one operator"),
    (r"for_cpu", "what attention calls on the CPU; on the device attention is one operator"),
    (r"ctc_loss", "lengths in tensors, or cuDNN's form: no row"),
    (r"binomial|_dirichlet_grad", "a sampler or its derivative: no row yet"),
    (r"helper|_impl|_forward\.output|linear_combination|_stack|_logcumsumexp|_aminmax|_powsum", "an inner part of an operator that has a row"),
    (r"from_file|_assert|dep_token|debug|storage|has_compatible|copy_from", "no computation: files, checks or bookkeeping of PyTorch"),
    (r"jvp", "forward-mode derivatives: no row yet"),
    (r"multi_head_attention|encoder_layer|rescale_qkv|masked_softmax|fused_sdp|scaled_dot_product", "PyTorch's fused inference paths: no row yet"),
)


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def has_kernel(name: str, *keys: str) -> bool:
    return any(torch._C._dispatch_has_kernel_for_dispatch_key(f"aten::{name}", k) for k in keys)


def families() -> dict[str, str]:
    """Family of each overload of the table: the heading in aten.def above its row."""
    family, out = "", {}
    for line in (ROOT / "core" / "aten" / "aten.def").read_text().splitlines():
        if heading := re.match(r"/\* ([^:*]+)", line):
            family = heading[1].strip()
        if each := re.match(r"EACH(_ONE)?\((\w+)(?:, (\w+))?", line):
            out[f"_foreach_{each[2]}" + ("" if each[1] else f".{each[3]}")] = family
        elif row := re.match(r'\w+\("([^"]*)", "([^"]*)", "([^"]*)"', line):
            out.update((name, family) for name in row.groups() if name)
    return out


def states() -> dict[str, str]:
    """State of each overload with a kernel for the CPU other than one that is wholly made of others (CompositeImplicit), and of those the device registers."""
    support = dict(_C.operator_support())
    views = {r["functional"] for r in _C.rows() if r["view"]}
    whole = {name for r in _C.rows() if r["composite"] for name in (r["functional"], r["inplace"], r["out"]) if name}
    out = {}
    for name, kind in support.items():
        if not (kind in ("table", "glue") or name in views or name in whole):
            if not has_kernel(name, "CPU", "CompositeExplicitAutograd", "CompositeExplicitAutogradNonFunctional"):
                continue
        if kind == "table":
            out[name] = "native"
        elif name in views:
            out[name] = "view"
        elif kind == "glue":
            out[name] = "native"
        elif kind == "composite":
            out[name] = "composite"
        else:
            out[name] = "raises" if re.search(RAISES, name) else "fallback"
    return out


def reason(name: str) -> str:
    return next((why for pattern, why in REASONS if re.search(pattern, name)), "no row yet")


# ---- measured ----


def dtype_of(call) -> torch.dtype | None:
    if call.tensors:
        return call.tensors[0].dtype
    return next((x.dtype for x in call.want if isinstance(x, torch.Tensor)), None)


def measure_dtypes(calls) -> dict[str, set[str]]:
    """Dtypes of each row in which a call ran on the device as one graph and gave the CPU's result."""
    from test_rows import run_call

    out = defaultdict(set)
    for number, (name, some) in enumerate(sorted(calls.by_row.items())):
        if number % 100 == 0:
            say(f"dtypes: {number} of {len(calls.by_row)} rows")
        for call in some:
            short = SHORT.get(dtype_of(call))
            if short is None or short in out[name]:
                continue
            try:
                call.check(run_call(call))
            except (NotImplementedError, AssertionError, RuntimeError, TypeError, IndexError, ValueError):
                continue
            out[name].add(short)
    return out


def measure_random() -> dict[str, set[str]]:
    """The same for operators that draw numbers: they run in eager mode, with no fallback allowed."""
    from test_stablehlo import RANDOM

    from torch_neuronx import ops

    out, before = defaultdict(set), ops.fallback_mode()
    ops.set_fallback_mode("error")
    for name, args, *_ in RANDOM:
        packet, _, overload = name.partition(".")
        f = getattr(getattr(torch.ops.aten, packet), overload or "default")
        factory = not any(isinstance(x, torch.Tensor) for x in args)
        for dtype in DTYPES:
            given = [x.to("neuron", dtype) if isinstance(x, torch.Tensor) else x for x in args]
            try:
                result = f(*given, **({"dtype": dtype, "device": "neuron"} if factory else {}))
                (result[0] if isinstance(result, tuple) else result).cpu()
                out[name].add(SHORT[dtype])
            except (RuntimeError, NotImplementedError, TypeError, ValueError):
                continue
    ops.set_fallback_mode(before)
    return out


def operations_of(builder) -> set[str]:
    """The StableHLO operations of a graph."""
    return set(re.findall(r'"(?:stablehlo|chlo)\.(\w+)"', builder.text("stablehlo")))


def plain(error: str) -> str:
    """A reason without what differs from call to call."""
    error = re.sub(r"^StableHLO: node \d+ \((\w+)\): ", r"\1: ", error.splitlines()[0])
    return re.sub(r"^(\S+): aten::\S+ ", "", error).strip()


def measure_stablehlo(calls) -> tuple[dict[str, list[str]], dict[str, list[str]], set[str], bool]:
    """For each row: its operations, why not (empty: all of its calls equal), and the rows that XLA ran; whether XLA was there."""
    import referee

    operations, why, ran = {}, defaultdict(list), set()
    for name, some in sorted(calls.by_row.items()):
        found = set()
        for call in some:
            builder = _C.GraphBuilder("row")
            try:
                for r in call.build(builder, []):
                    if r is not None:
                        builder.output(r, None, None)
                found.update(operations_of(builder))
            except (RuntimeError, TypeError, IndexError, ValueError) as error:
                why[name].append(plain(str(error)))
        operations[name] = sorted(found)
    if not referee.available():
        return operations, why, ran, False
    import test_stablehlo

    names = sorted(calls.by_row)
    for start in range(0, len(names), 40):
        say(f"XLA: {start} of {len(names)} rows")
        outcome, _ = test_stablehlo.run_all([c for n in names[start : start + 40] for c in calls.by_row[n]])
        for call, error in outcome:
            ran.add(call.name)
            if error:
                why[call.name].append("differs on a sample" if "not close" in error else error.splitlines()[0][:120])
    return operations, why, ran, True


# ---- the page ----


def code(names) -> str:
    return " ".join(f"`{n}`" for n in names)


def dtypes_cell(found: set[str]) -> str:
    left, cell = set(found), []
    for name, group in GROUPS:
        if set(group) <= left:
            cell.append(name)
            left -= set(group)
        else:
            cell += [g for g in group if g in left]
            left -= set(group)
    cell += sorted(left)
    return "all" if len(found) == len(DTYPES) else ", ".join(cell)


def operations_cell(operations: list[str]) -> str:
    shown = [o for o in operations if o not in COMMON] or operations
    return ", ".join(shown[:6]) + (f" and {len(shown) - 6} more" if len(shown) > 6 else "")


def share(part: int, all_: int) -> str:
    return f"{part} of {all_} ({100 * part / all_:.1f} %)" if all_ else "none"


def write(state, dtypes, operations, why, ran, referee_there, random) -> str:
    rows = [[n for n in (r["functional"], r["inplace"], r["out"]) if n] for r in _C.rows()]
    family, named = families(), {n for row in rows for n in row}
    recorded = set(operations)
    equal = {n for n in recorded & ran if not why.get(n)} | set(random)
    some = {n for n in recorded & ran if n not in equal and not any("differs" in w or "XLA" in w for w in why[n])}
    count = Counter(state.values())
    out = [
        "# Operators",
        "",
        "Written by `make operators-page` from the library as it runs: not edited by hand.",
        "",
        f"PyTorch {torch.__version__.split('+')[0]} has {len(state)} aten overloads that are not merely made of others or that the device registers itself:",
        "",
        "| state | overloads | what it means |",
        "| --- | --- | --- |",
        f"| native | {count['native']} | runs on the device: a row of the operator table, or a kernel of the extension where sizes depend on data |",
        f"| view | {count['view']} | no computation: another look at the same memory; in graphs a row of the table |",
        f"| composite | {count['composite']} | PyTorch takes it apart into others of this page; in graphs some have a row of their own |",
        f"| fallback | {count['fallback']} | no row: PyTorch's CPU kernel, counted; `TORCH_NEURONX_FALLBACK=error` makes it raise |",
        f"| raises | {count['raises']} | makes or takes tensors of a kind the device does not have |",
        "",
        "**Dtypes** are those of the first tensor for which a call recorded from PyTorch's operator database ran on the device and agreed with the CPU: "
        "floats is f32 f64 bf16 f16, complex c64 c128, ints i64 i32 i16 i8 u8, all these and bool. A case inside a dtype may still fall back; it is counted.",
        "",
        f"**StableHLO**: of the rows that samples reach, {share(len(equal), len(recorded | set(random)))} are accepted by XLA's CPU client and equal on "
        f"all of their samples, {len(some)} more on some. The others say why. Constants, conversions, broadcasts and reshapes are not listed."
        if referee_there
        else "**StableHLO**: XLA was not installed when this page was written; the operations are listed, not checked.",
        "",
    ]
    sections = defaultdict(list)
    for row in rows:
        names = [n for n in row if n in state]
        if not names:
            continue
        key = row[0]
        kind = ", ".join(sorted({state[n] for n in names}, key=("native", "view", "composite", "fallback", "raises").index))
        if key in random:
            hlo = operations_cell(random[key]) + "; checked by distribution"
        elif key in operations:
            hlo = operations_cell(operations[key])
            if why.get(key):
                most = Counter(why[key]).most_common(1)[0][0]
                hlo = (f"{hlo}; not all: {most}" if key in some else f"not: {most}") if referee_there else f"{hlo}; {most}"
        else:
            hlo = "no sample reaches it"
        sections[family.get(key, "other")].append(f"| {code(names)} | {kind} | {dtypes_cell(dtypes.get(key, set()))} | {hlo} |")
    for title, lines in sections.items():
        out += [f"## {title[0].upper()}{title[1:]}", "", "| overloads | state | dtypes | StableHLO |", "| --- | --- | --- | --- |", *lines, ""]

    glue = sorted(n for n in state if n not in named and state[n] in ("native", "view"))
    out += ["## Kernels of the extension", ""]
    out += ["Results whose sizes depend on data, storage, and views that PyTorch asks the device for: no StableHLO, whose sizes are static.", ""]
    out += ["| overloads | state |", "| --- | --- |", *(f"| `{n}` | {state[n]} |" for n in glue), ""]

    missing = defaultdict(list)
    for n in sorted(state):
        if state[n] in ("fallback", "raises") and n not in named:
            missing[reason(n), state[n]].append(n)
    out += ["## On the CPU, or not at all", "", "| why | state | overloads |", "| --- | --- | --- |"]
    out += [*(f"| {w} | {kind} | {code(ns)} |" for (w, kind), ns in sorted(missing.items())), ""]

    composite = defaultdict(list)
    for n in sorted(state):
        if state[n] == "composite" and n not in named:
            composite["functions of lists" if n.startswith("_foreach") else n.lstrip("_")[0]].append(n)
    out += ["## Taken apart by PyTorch", "", "In alphabetical order.", "", "| | state | overloads |", "| --- | --- | --- |"]
    out += [f"| {k} | composite | {code(ns)} |" for k, ns in sorted(composite.items())]

    unequal = sorted(n for n in recorded if n not in equal)
    if referee_there:
        out += ["", "## Rows whose StableHLO is not equal on all samples", "", "| row | why |", "| --- | --- |"]
        out += [f"| `{n}` | {'; '.join(sorted(set(why[n]))) or 'XLA did not run it'} |" for n in unequal]
    return "\n".join(out).replace("\n\n\n", "\n\n") + "\n"


def read(text: str) -> dict[str, set[str]]:
    """States that the page gives its overloads."""
    out = defaultdict(set)
    for line in text[text.find("\n## ") :].split("## Rows whose StableHLO")[0].splitlines():
        cells = [c.strip() for c in line.strip("|").split(" | ")]
        if not line.startswith("| ") or len(cells) < 2 or "`" not in line:
            continue
        overloads, kind = (cells[0], cells[1]) if cells[0].startswith("`") else (cells[2], cells[1])
        for n in re.findall(r"`([^`]+)`", overloads):
            out[n] |= set(kind.split(", "))
    return out


def stale(text: str) -> list[str]:
    """What the page gets wrong about overloads and their states."""
    page, now = read(text), states()
    wrong = [f"{n} is not on the page" for n in sorted(set(now) - set(page))] + [f"{n} no longer exists" for n in sorted(set(page) - set(now))]
    return wrong + [f"{n} is {now[n]}, the page says {', '.join(sorted(page[n]))}" for n in sorted(set(now) & set(page)) if now[n] not in page[n]]


def random_operations() -> dict[str, list[str]]:
    from test_stablehlo import RANDOM

    out = defaultdict(set)
    for name, args, *_ in RANDOM:
        builder = _C.GraphBuilder("random")
        rng = tuple(builder.input(torch.int64, [], [], False) for _ in range(2))
        given = [builder.input(x.dtype, list(x.shape), list(x.stride()), False) if isinstance(x, torch.Tensor) else x for x in args]
        builder.output(builder.call(name, tuple(given), {}, rng)[0], None, None)
        out[name].update(operations_of(builder))
    return {n: sorted(o) for n, o in out.items()}


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--check", action="store_true", help="say what is stale, write nothing")
    options.add_argument("--output", type=Path, default=PAGE)
    options = options.parse_args()
    if options.check:
        wrong = stale(PAGE.read_text())
        print("\n".join(wrong) or "up to date")
        return bool(wrong)
    os.environ.setdefault("TORCH_NEURONX_FALLBACK", "silent")
    from row_calls import record

    def progress(done, all_):
        if done % 50 == 0:
            say(f"recording: {done} of {all_} entries of the database")

    dtypes = measure_dtypes(record(DTYPES, progress))
    dtypes.update(measure_random())
    operations, why, ran, there = measure_stablehlo(record(progress=progress))  # XLA's compiler is slow: the dtypes of the tests
    text = write(states(), dtypes, operations, why, ran, there, random_operations())
    options.output.write_text(text)
    say(f"{options.output}: {len(text.splitlines())} lines")
    print(next(line for line in text.splitlines() if line.startswith("**StableHLO**")))
    return 0


if __name__ == "__main__":
    sys.exit(main())
