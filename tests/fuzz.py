"""Random programs on the device against PyTorch's CPU kernels: operators, dtypes, strides, views and writes through them.

A program is Python text, grown step by step while it runs on the CPU, so that every step is a valid call. Beside it runs a copy in which every float
is float64: where both agree bit by bit a value is exact, the device has to give the same bits, and any operator may use it; other values are compared
with the error that the CPU kernels make, and do not reach operators that jump (comparisons, rounding, sorting). Each program runs eagerly, as a graph
(traced, functionalised, compiled by the core) and, now and then, under torch.compile.

    python tests/fuzz.py --seconds 3600         # until a program fails: prints it, made smaller, as a program that runs alone
    python tests/fuzz.py --seed 17 --show       # one program
"""

from __future__ import annotations

import argparse
import random
import sys
import time
import warnings

import torch

DEVICE = "neuron"
DTYPES = {
    "F32": torch.float32,
    "BF16": torch.bfloat16,
    "F16": torch.float16,
    "F64": torch.float64,
    "I64": torch.int64,
    "I32": torch.int32,
    "U8": torch.uint8,
    "B": torch.bool,
}
WEIGHTS = {"F32": 8, "BF16": 3, "F16": 1, "F64": 1, "I64": 4, "I32": 1, "U8": 1, "B": 1}
LARGEST = 1 << 16  # of values; beyond it steps are not taken
NAMES = {"torch": torch, "F": torch.nn.functional, **DTYPES}
WIDE = {**NAMES, **{k: torch.float64 for k in ("F32", "BF16", "F16")}}


def is_exact(x, wide):
    """Whether x is what exact arithmetic gives, with bits to spare: then any order of computation gives it."""
    if not x.dtype.is_floating_point:
        return torch.equal(x, wide)
    return torch.equal(x.double(), wide) and torch.equal((wide * 1024).round(), wide * 1024)


def holds_an_element_twice(x):
    places = torch.arange(x.untyped_storage().nbytes() // x.itemsize).as_strided(x.shape, x.stride(), x.storage_offset())
    return places.unique().numel() < x.numel()


def apart(x, y):
    return x.untyped_storage().data_ptr() != y.untyped_storage().data_ptr()


class Program:
    """Inputs and steps as text. Step k assigns variable v<k> or writes to an earlier one."""

    def __init__(self, seed):
        self.seed, self.inputs, self.steps = seed, [], []

    def make(self, names):
        env = dict(names)
        env["g"] = torch.Generator().manual_seed(self.seed)
        for line in self.inputs:
            exec(line, env)
        return {k: v for k, v in env.items() if k[0] == "v" and k[1:].isdigit()}

    def source(self, clone=False):
        given = [line.split(" = ")[0] for line in self.inputs]
        made = [s.split(" = ")[0] for s in self.steps if s[0] == "v" and s.split(" = ")[0][1:].isdigit()]
        body = [f"{v} = {v}.clone()" for v in given] if clone else []
        body += [*self.steps, f"return {', '.join(dict.fromkeys(given + made))},"]
        return f"def program({', '.join(given)}):\n" + "".join(f"    {line}\n" for line in body)

    def function(self, names=NAMES, clone=False):
        env = dict(names)
        exec(self.source(clone), env)
        return env["program"]

    def results(self, names=NAMES, device="cpu"):
        inputs = [x.to(device) for x in self.make(names).values()]
        return self.function(names)(*inputs)

    def snippet(self):
        names = ", ".join(k for k in DTYPES)
        values = ", ".join(str(v) for v in DTYPES.values())
        given = ", ".join(line.split(" = ")[0] for line in self.inputs)
        return (
            f"import torch\nF = torch.nn.functional\n{names} = {values}\ng = torch.Generator().manual_seed({self.seed})\n"
            + "\n".join(self.inputs)
            + f"\n\n{self.source()}\n"
            + f'for device in ("cpu", "{DEVICE}"):\n    print(*program(*[x.to(device) for x in ({given},)]), sep="\\n")\n'
        )


class Grower:
    def __init__(self, seed):
        self.r = random.Random(seed)
        self.p = Program(seed)
        self.next = 0

    # ---- choosing ----

    def shape(self):
        rank = self.r.choice([0, 1, 2, 2, 3, 3, 4])
        return tuple(self.r.choice([0, 1, 1, 2, 3, 4, 5, 7, 16, 33] if self.r.random() < 0.05 else [1, 2, 3, 4, 5, 7, 16]) for _ in range(rank))

    def new_input(self):
        kind = self.r.choices(list(WEIGHTS), WEIGHTS.values())[0]
        low, high = (0, 2) if kind == "B" else (0, 9) if kind == "U8" else (-4, 5)
        self.p.inputs.append(f"v{self.next} = torch.randint({low}, {high}, {self.shape()}, generator=g).to({kind})")
        self.next += 1

    def pick(self, want):
        names = [n for n, x in self.env.items() if want(x)]
        return self.r.choice(names) if names else None

    def dim(self, x):
        return self.r.randrange(-x.dim(), x.dim())

    def partner(self, a, same=True):
        """A variable that broadcasts with a (of its dtype, or of any)."""

        def fits(y):
            if same and y.dtype != a.dtype:
                return False
            try:
                return torch.broadcast_shapes(a.shape, y.shape).numel() < 20000
            except RuntimeError:
                return False

        return self.pick(fits)

    def number(self, x):
        return self.r.choice([1, 2, 3, -1, -2] if not x.dtype.is_floating_point else [0.5, 2, -1, 1.5, 3, 0])

    # ---- steps: expressions over a variable `a` whose CPU value is x ----

    def smooth(self, a, x):
        if not x.dtype.is_floating_point:
            return None
        op = self.r.choice("exp sin cos tanh sigmoid erf sqrt rsqrt log1p expm1 atan reciprocal log".split())
        domain = {
            "sqrt": ".abs()",
            "rsqrt": ".abs().add(1)",
            "log1p": ".abs()",
            "log": ".abs().add(0.5)",
            "reciprocal": ".abs().add(1)",
            "exp": ".clamp(-4, 4)",
            "expm1": ".clamp(-4, 4)",
        }
        nn = self.r.choice(["gelu", "silu", "softplus", "mish", "logsigmoid", "elu", "hardswish", "selu", "celu"])
        return self.r.choice([f"torch.{op}({a}{domain.get(op, '')})", f"F.{nn}({a})"])

    def row(self, a, x):
        if not x.dtype.is_floating_point or x.dim() == 0 or x.numel() == 0:
            return None
        d = self.dim(x)
        return self.r.choice(
            [
                f"torch.softmax({a}, {d})",
                f"torch.log_softmax({a}, {d})",
                f"{a}.logsumexp({d})",
                f"{a}.mean({d}, keepdim={self.r.random() < 0.5})",
                f"{a}.var({d}, correction=0)",
                f"F.layer_norm({a}, ({x.shape[-1]},))",
                f"F.normalize({a}, dim={d})",
                f"{a}.norm(dim={d})",
                f"F.rms_norm({a}, ({x.shape[-1]},))",
                f"torch.cumsum({a}, {d})",
            ]
        )

    def unary(self, a, x):
        return self.r.choice(
            [
                f"-{a}" if x.dtype != torch.bool else f"~{a}",
                f"torch.relu({a})",
                f"{a}.abs()",
                f"torch.square({a})",
                f"{a}.clone()",
                f"{a}.contiguous()",
                f"{a} * {self.number(x)}",
                f"{a} + {self.number(x)}",
                f"{self.number(x)} - {a}",
                f"{a}.clamp(-2, 3)",
                f"torch.nan_to_num({a})",
                f"{a}.clamp_min({self.number(x)})",
            ]
        )

    def jump(self, a, x):
        op = self.r.choice(["sign", "floor", "ceil", "trunc", "round", "frac", "logical_not", "isnan", "isfinite", "signbit"])
        compare = self.r.choice(["<", "<=", ">", ">=", "==", "!="])
        choices = [f"torch.{op}({a})", f"{a} {compare} {self.number(x)}", f"F.hardshrink({a}, 1)", f"F.threshold({a}, 1, 2)", f"torch.heaviside({a}, {a})"]
        if x.dim():
            d = self.dim(x)
            choices += [
                f"{a}.sort({d}, stable=True)[0]",
                f"{a}.sort({d}, descending=True, stable=True)[1]",
                f"{a}.argmax({d})",
                f"{a}.topk(1, {d})[0]",
                f"torch.cummax({a}, {d})[0]",
                f"{a}.count_nonzero({d})",
                f"torch.any({a}, {d})",
                f"torch.all({a}, {d})",
                f"{a}.median({d})[0]",
                f"{a}.argmin()",
                f"{a}.kthvalue(1, {d})[0]",
            ]
        return self.r.choice(choices)

    def binary(self, a, x):
        b = self.partner(x, self.r.random() < 0.7)
        if b is None:
            return None
        if not x.dtype.is_floating_point and self.r.random() < 0.4:
            shifts = [] if torch.bool in (x.dtype, self.env[b].dtype) else [f"({a} << ({b} & 3))", f"({a} >> ({b} & 3))"]
            return self.r.choice(
                shifts
                + [
                    f"{a} & {b}",
                    f"{a} | {b}",
                    f"{a} ^ {b}",
                    f"{a} // ({b}.abs() + 1)",
                    f"{a} % ({b}.abs() + 2)",
                    f"torch.fmod({a}, {b}.abs() + 1)",
                    f"torch.div({a}, {b}.abs() + 1, rounding_mode='trunc')",
                ]
            )
        return self.r.choice(
            [
                f"{a} + {b}",
                f"{a} - {b}",
                f"{a} * {b}",
                f"torch.add({a}, {b}, alpha=2)",
                f"torch.maximum({a}, {b})",
                f"torch.minimum({a}, {b})",
                f"torch.lerp({a}, {b}, 0.5)",
                f"torch.addcmul({a}, {b}, {b}, value=2)",
                f"torch.logical_and({a}, {b})",
                f"{a} / ({b}.abs() + 1)",
                f"torch.sub({a}, {b}, alpha=2)",  # an exact product: whether it is rounded before the difference is up to each kernel
                f"torch.hypot({a}, {b})",
                f"torch.copysign({a}, {b})",
                f"torch.rsub({a}, {b})",
            ]
        )

    def compare(self, a, x):
        b = self.partner(x)
        return b and self.r.choice(
            [
                f"{a} < {b}",
                f"{a} >= {b}",
                f"{a} == {b}",
                f"torch.where({a} > {b}, {a}, {b})",
                f"torch.fmax({a}, {b})",
                f"torch.where({a} != 0, {b}, {self.number(x)})",
            ]
        )

    def view(self, a, x):
        if x.dim() == 0:
            return self.r.choice([f"{a}.unsqueeze(0)", f"{a}.expand(3)", f"{a}.view(1, 1)"])
        d, e = self.dim(x), self.dim(x)
        n = x.shape[d]
        order = list(range(x.dim()))
        self.r.shuffle(order)
        start, step = self.r.randrange(0, max(n, 1)), self.r.randrange(1, 3)
        at = ", ".join([":"] * (d % x.dim()))
        at = at + ", " if at else ""
        choices = [
            f"{a}.transpose({d}, {e})",
            f"{a}.permute({order})",
            f"{a}.unsqueeze({d})",
            f"{a}.squeeze()",
            f"{a}[{at}{start}::{step}]",
            f"{a}.flip({d})",
            f"{a}.reshape(-1)",
            f"{a}.narrow({d}, {start}, {max(n - start, 0) // 2})",
            f"{a}.movedim({d}, {e})",
            f"{a}.unflatten({d}, ({n}, 1))",
            f"{a}[..., :{max(x.shape[-1] - 1, 1)}]",
            f"{a}.flatten()",
        ]
        if n:
            choices += [
                f"{a}.select({d}, {self.r.randrange(n)})",
                f"{a}.unfold({d}, {self.r.randrange(1, n + 1)}, {step})",
                f"{a}.chunk(2, {d})[0]",
                f"{a}.unbind({d})[-1]",
            ]
        if x.dim() > 1 and d % x.dim() != e % x.dim():
            choices.append(f"{a}.diagonal({self.r.randrange(-1, 2)}, {d}, {e})")
        choices.append(f"{a}.unsqueeze(0).expand(2, {', '.join(['-1'] * x.dim())})")
        return self.r.choice(choices)

    def reduce(self, a, x):
        if x.dim() == 0:
            return f"{a}.sum()"
        d, keep = self.dim(x), self.r.random() < 0.5
        e = self.dim(x)
        choices = [
            f"{a}.sum({d}, keepdim={keep})",
            f"{a}.sum()",
            f"{a}.amax({d}, keepdim={keep})",
            f"{a}.amin({d})",
            f"torch.cumsum({a}, {d})",
            f"{a}.max({d})[0]",
            f"{a}.prod({d})",
            f"{a}.max()",
        ]
        if d % x.dim() != e % x.dim():
            choices += [f"{a}.sum(({d}, {e}))", f"{a}.amax(({d}, {e}), keepdim={keep})"]
        return self.r.choice(choices)

    def move(self, a, x):
        if x.dim() == 0:
            return f"torch.stack([{a}, {a}])"
        d = self.dim(x)
        pad = [self.r.randrange(0, 3) for _ in range(2)]
        choices = [
            f"torch.roll({a}, {self.r.randrange(-3, 4)}, {d})",
            f"torch.cat([{a}, {a}.flip({d})], {d})",
            f"F.pad({a}, {pad}, value={self.number(x)})",
            f"{a}.repeat({', '.join(['2'] + ['1'] * (x.dim() - 1))})",
            f"torch.stack([{a}, {a}], {d})",
            f"{a}.repeat_interleave(2, {d})",
            f"F.pad({a}, [-1, 1])",
        ]
        b = self.pick(lambda y: y.dim() == x.dim() and y.dtype == x.dtype and all(i == d % x.dim() or m == n for i, (m, n) in enumerate(zip(x.shape, y.shape))))
        if b:
            choices += [f"torch.cat([{a}, {b}], {d})"] * 2
        if x.dim() > 1:
            choices += [f"{a}.tril({self.r.randrange(-1, 2)})", f"{a}.triu({self.r.randrange(-1, 2)})", f"torch.rot90({a})"]
        return self.r.choice(choices)

    def index(self, a, x):
        i = self.pick(lambda y: y.dtype == torch.int64 and 0 < y.numel() < 64)
        if i is None or x.dim() == 0 or x.numel() == 0:
            return None
        d = self.dim(x)
        n = x.shape[d]
        at = ", ".join([":"] * (d % x.dim()) + [f"{i} % {n}"])
        flat = f"{i}.reshape(-1) % {n}"
        mask = self.pick(lambda y: y.dtype == torch.bool and y.shape == x.shape)
        count = self.env[i].numel()
        sizes = [count if k == d % x.dim() else m for k, m in enumerate(x.shape)]
        choices = [
            f"{a}.index_select({d}, {flat})",
            f"{a}[{at}]",
            f"{a}.take({i} % {a}.numel())",
            f"torch.take_along_dim({a}, ({a} != 0).long() % {n}, {d})",
            f"{a}.index_add({d}, {flat}, torch.ones({sizes}, dtype={a}.dtype, device={a}.device))",
            f"{a}.index_fill({d}, {flat}, {self.number(x)})",
            f"{a}.scatter_add({d}, torch.zeros_like({a}, dtype=I64), {a})",
            f"{a}.scatter({d}, ({a} > 0).long() % {n}, {self.number(x)})",
            f"{a}[{self.r.randrange(x.shape[0])}]",
        ]
        if x.dim() == 2:
            choices += [f"F.embedding({i} % {x.shape[0]}, {a})", f"{a}[{i} % {x.shape[0]}, {i} % {x.shape[1]}]"]
        if mask:
            choices += [f"{a}.masked_fill({mask}, {self.number(x)})", f"torch.where({mask}, {a}, -{a})"]
        return self.r.choice(choices)

    def product(self, a, x):
        if x.dim() < 1 or x.dtype in (torch.bool, torch.uint8):
            return None
        b = self.pick(lambda y: y.dtype == x.dtype and y.dim() >= 1 and y.shape[-1] == x.shape[-1])
        choices = [f"torch.matmul({a}, {a}.transpose(-1, -2))" if x.dim() > 1 else f"torch.dot({a}, {a})"]
        if b and self.env[b].dim() == 2:
            choices += [f"F.linear({a}, {b})", f"torch.matmul({a}, {b}.t())"] * 2
        if x.dim() == 2:
            choices += [
                f"torch.addmm({a}, {a}, torch.ones(({x.shape[1]}, {x.shape[1]}), dtype={a}.dtype, device={a}.device), beta=2)",
                f"torch.outer({a}[0], {a}[-1])" if x.shape[0] else f"{a}",
            ]
        if x.dim() == 3:
            choices += [f"torch.bmm({a}, {a}.transpose(1, 2))", f"torch.baddbmm({a} @ {a}.mT, {a}, {a}.mT, alpha=0.5)"] * 2
        return self.r.choice(choices)

    def window(self, a, x):
        if x.dim() not in (3, 4) or not x.dtype.is_floating_point or min(x.shape) < 1:
            return None
        n, c = x.dim() - 2, x.shape[1]
        k, s, p = self.r.randrange(1, 4), self.r.randrange(1, 3), self.r.randrange(0, 2)
        weight = f"torch.ones({(2, c, *[k] * n)}, dtype={a}.dtype, device={a}.device)"
        each = f"torch.ones({(c, 1, *[k] * n)}, dtype={a}.dtype, device={a}.device)"
        back = f"torch.ones({(c, 2, *[k] * n)}, dtype={a}.dtype, device={a}.device)"
        return self.r.choice(
            [
                f"F.conv{n}d({a}, {weight}, stride={s}, padding={p})",
                f"F.conv{n}d({a}, {each}, padding={p}, groups={c})",
                f"F.conv_transpose{n}d({a}, {back}, stride={s}, padding={p})",
                f"F.max_pool{n}d({a}, {k}, {s})",
                f"F.avg_pool{n}d({a}, {k}, {s})",
                f"F.interpolate({a}, scale_factor=2)",
                f"F.pad({a}, [1, 1], mode='replicate')",
                f"F.adaptive_avg_pool{n}d({a}, 1)",
            ]
        )

    def cast(self, a, x):
        return f"{a}.to({self.r.choice(list(DTYPES))})"

    def write(self, a, x):
        """A statement that writes to a, or to a view of it."""
        target, y = a, x
        if self.r.random() < 0.6 and x.dim():
            v = self.view(a, x)
            if "flip" in v or "expand" in v or "unfold" in v or "reshape" in v or "flatten" in v:
                return None
            target = v
            try:
                y = eval(v, {**NAMES, **self.env})
            except (RuntimeError, IndexError):
                return None
        if holds_an_element_twice(y):
            return None  # the result would depend on the order of the writes
        b = self.pick(lambda z: z.dtype == y.dtype and z.dim() <= y.dim() and apart(z, y) and all(m == n or m == 1 for m, n in zip(z.shape[::-1], y.shape[::-1])))
        c = self.number(x)
        choices = [
            f"{target}.add_({c})",
            f"{target}.mul_({c})",
            f"{target}.fill_({c})",
            f"{target}.zero_()",
            f"{target}.clamp_(-2, 2)",
            f"{target}.neg_()",
            f"{target}.relu_()",
        ]
        if b:
            choices += [
                f"{target}.add_({b})",
                f"{target}.copy_({b})",
                f"{target}.sub_({b}, alpha=2)",
                f"{target}.mul_({b})",
                f"{target}.masked_fill_({b} != 0, {c})",
                f"{target}[...] = {b}",
                f"torch.add({b}, {c}, out={target})" if self.env[b].shape == y.shape else f"{target}.copy_({b})",
            ] * 2
        if y.dim() and y.shape[0]:
            i = self.pick(lambda z: z.dtype == torch.int64 and 0 < z.numel() < 64)
            choices += [f"{target}[{self.r.randrange(y.shape[0])}] = {c}", f"{target}.cumsum_(0)", f"{target}[{target} != 0] = {c}"]
            if i:
                choices += [
                    f"{target}[{i} % {y.shape[0]}] = {c}",
                    f"{target}.index_fill_(0, {i}.reshape(-1) % {y.shape[0]}, {c})",
                    f"{target}.index_put_(({i} % {y.shape[0]},), torch.ones((), dtype={a}.dtype, device={a}.device), accumulate=True)",
                ]
        return self.r.choice(choices)

    KINDS = {
        "smooth": 2,
        "row": 2,
        "unary": 3,
        "jump": 2,
        "binary": 6,
        "compare": 2,
        "view": 7,
        "reduce": 3,
        "move": 3,
        "index": 4,
        "product": 2,
        "window": 2,
        "cast": 2,
        "write": 6,
    }
    # Only exact values reach these: a last bit would decide between very different results.
    NEED_EXACT = {"jump", "compare", "cast", "index", "reduce"}

    # ---- growing ----

    def replay(self):
        self.env, self.wide = self.p.make(NAMES), self.p.make(WIDE)
        for step in self.p.steps:
            self.run(step)

    def run(self, step):
        a, b = {**NAMES, **self.env}, {**WIDE, **self.wide}
        exec(step, a)
        exec(step, b)
        self.env = {k: v for k, v in a.items() if k[0] == "v" and k[1:].isdigit()}
        self.wide = {k: v for k, v in b.items() if k[0] == "v" and k[1:].isdigit()}

    def exact(self, name):
        return is_exact(self.env[name], self.wide[name])

    def sound(self):
        """Values stay small, and what is not exact is close to it."""
        for name, x in self.env.items():
            y = self.wide[name]
            if x.shape != y.shape or (x.dtype != y.dtype and not x.dtype.is_floating_point) or x.dtype.is_complex or x.numel() > 20000:
                return False
            if x.numel() and x.dtype != torch.bool:
                if not x.isfinite().all() or x.double().abs().max() > LARGEST:
                    return False
                if x.dtype.is_floating_point:
                    scale = y.abs().max() + 1e-3
                    if (x.double() - y).abs().max() > 0.05 * scale:
                        return False
                elif not torch.equal(x, y):
                    return False
        return True

    def grow(self, steps):
        for _ in range(self.r.randrange(1, 4)):
            self.new_input()
        self.replay()
        tries = 0
        while len(self.p.steps) < steps and tries < 8 * steps:
            tries += 1
            kind = self.r.choices(list(self.KINDS), self.KINDS.values())[0]
            a = self.r.choice(list(self.env))
            text = getattr(self, kind)(a, self.env[a])
            if not text:
                continue
            used = [n for n in self.env if any(word == n for word in "".join(c if c.isalnum() else " " for c in text).split())]
            jumps = (
                kind in self.NEED_EXACT
                or (kind == "write" and ("!= 0" in text or "clamp" in text))
                or any(word in text for word in ("copysign", "maximum", "minimum", "logical"))
            )
            if jumps and not all(self.exact(n) for n in used):
                continue
            step = text if kind == "write" else f"v{self.next} = {text}"
            self.p.steps.append(step)
            try:
                self.run(step)
                good = self.sound()
            except (RuntimeError, IndexError, TypeError, ValueError, NotImplementedError):
                good = False
            if not good:
                self.p.steps.pop()
                self.replay()
                continue
            if kind != "write":
                self.next += 1
        return self.p


# ---- running ----


def as_graph(program):
    """The program traced to operators without writes, built and compiled by the core. NotImplementedError: an operator is not covered, or there is no
    trace that gives what the program gives (reshape is a view or a copy by strides, which traces do not have)."""
    from torch.fx.experimental.proxy_tensor import make_fx

    from torch_neuronx import _C

    inputs = list(program.make(NAMES).values())
    try:
        traced = make_fx(torch.func.functionalize(program.function(clone=True), remove="mutations_and_views"))(*inputs)
    except RuntimeError as e:  # a size that depends on data
        raise NotImplementedError from e
    pairs = zip(traced(*program.make(NAMES).values()), program.results())
    if not all(x.shape == y.shape and torch.allclose(x.double(), y.double(), 1e-2, 1e-2) for x, y in pairs):
        raise NotImplementedError("the trace differs")
    builder, env, given, constants = _C.GraphBuilder("fuzz"), {}, iter(inputs), []

    def add(x):
        constants.append(x)
        return builder.input(x.dtype, list(x.shape), list(x.stride()), False)

    for node in traced.graph.nodes:
        if node.op == "placeholder":
            env[node] = add(next(given))
        elif node.op == "get_attr":
            env[node] = add(getattr(traced, node.target))
        elif node.op == "call_function" and node.target.__name__ == "getitem":
            env[node] = env[node.args[0]][node.args[1]]
        elif node.op == "call_function":
            name = node.target._schema.name.removeprefix("aten::")
            if node.target._schema.overload_name:
                name += f".{node.target._schema.overload_name}"
            args, kwargs = torch.fx.node.map_arg((node.args, node.kwargs), lambda n: env[n])
            try:
                results = builder.call(name, tuple(args), dict(kwargs), None)
            except (KeyError, ValueError, TypeError) as e:  # no such row
                raise NotImplementedError(name) from e
            several = len(node.target._schema.returns) > 1 or isinstance(node.target._schema.returns[0].type, torch.ListType)
            env[node] = results if several else results[0]
        elif node.op == "output":
            for v in node.args[0]:
                builder.output(env[v], None, None)
    return builder.compile().run([x.to(DEVICE) for x in constants], [])


def first_difference(g, c, where):
    at = tuple(where.nonzero()[0].tolist()) if where.any() else ()
    return f"({g.dtype} {list(g.shape)}) at {list(at)} is {g[at].item()}, expected {c[at].item()}; {int(where.sum())} of {g.numel()} places"


def check(got, program):
    """What is wrong with the results, or None."""
    cpu, wide = program.results(), program.results(WIDE)
    names = [line.split(" = ")[0] for line in program.source().split("return ")[-1].replace(",", " ").split()]
    for name, g, c, w in zip(names, got, cpu, wide, strict=True):
        g = g.cpu()
        if g.dtype != c.dtype or g.shape != c.shape:
            return f"{name} is {g.dtype} {list(g.shape)}, expected {c.dtype} {list(c.shape)}"
        if not c.dtype.is_floating_point or is_exact(c, w):
            if not torch.equal(g, c):
                return f"{name} {first_difference(g, c, g != c)}"
            continue
        eps = torch.finfo(c.dtype).eps if c.dtype != torch.float64 else 1e-14
        scale = w.abs().max() + 1e-3
        error, usual = (g.double() - w).abs().max(), (c.double() - w).abs().max()
        if not error <= 8 * usual + 64 * eps * scale:  # NaN too
            return f"{name} is {error:.3g} from exact, PyTorch's CPU kernels {usual:.3g}, of {scale:.3g}; {first_difference(g, w, (g.double() - w).abs() == error)}"
    return None


def modes(program, compiled):
    yield "eager", lambda: program.results(device=DEVICE)
    yield "graph", lambda: as_graph(program)
    if compiled:

        def run():
            torch._dynamo.reset()
            return torch.compile(program.function(), backend="neuron")(*[x.to(DEVICE) for x in program.make(NAMES).values()])

        yield "torch.compile", run


def failure(program, compiled=False, only=None):
    """(mode, message) of the first mode that goes wrong, or None."""
    for mode, run in modes(program, compiled):
        if only and mode != only:
            continue
        try:
            got = run()
            torch.neuron.synchronize()
        except NotImplementedError:
            continue
        except Exception as e:
            if "being mutated that has internal overlap" in str(e):  # torch.compile refuses to write through unfold, whether places overlap or not
                continue
            return mode, f"{type(e).__name__}: {e}"
        wrong = check(got, program)
        if wrong:
            return mode, wrong
    return None


def smaller(program, mode):
    """The program without steps that the failure does not need."""
    steps = list(program.steps)
    for i in reversed(range(len(steps))):
        trial = Program(program.seed)
        trial.inputs, trial.steps = program.inputs, [s for k, s in enumerate(program.steps) if k != i]
        try:
            trial.results()
            trial.results(WIDE)
            if failure(trial, mode == "torch.compile", mode):
                program = trial
        except Exception:
            continue
    return program


def program_of(seed, steps=12):
    return Grower(seed).grow(steps)


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--seconds", type=float, default=60)
    p.add_argument("--seed", type=int, default=None, help="the first seed (default: from the clock)")
    p.add_argument("--steps", type=int, default=12)
    p.add_argument("--compile-every", type=int, default=25, help="every so many programs also run under torch.compile (0: none)")
    p.add_argument("--keep-going", action="store_true")
    p.add_argument("--show", action="store_true", help="print one program and what it gives")
    args = p.parse_args()
    warnings.simplefilter("ignore")
    first = args.seed if args.seed is not None else int(time.time())
    if args.show:
        program = program_of(first, args.steps)
        print(program.snippet(), failure(program, args.compile_every == 1) or "agrees", sep="\n")
        return 0
    print(f"seeds from {first}", flush=True)
    end, seed, failed = time.monotonic() + args.seconds, first, 0
    while time.monotonic() < end:
        program = program_of(seed, args.steps)
        wrong = failure(program, args.compile_every and seed % args.compile_every == 0)
        if wrong:
            failed += 1
            program = smaller(program, wrong[0])
            print(f"---- seed {seed}, {wrong[0]}: {(failure(program, wrong[0] == 'torch.compile', wrong[0]) or wrong)[1]}\n\n{program.snippet()}", flush=True)
            if not args.keep_going:
                return 1
        seed += 1
    print(f"{seed - first} programs, {failed} failed; fallbacks: {torch.neuron.fallback_counts()}")
    return failed != 0


if __name__ == "__main__":
    sys.exit(main())
