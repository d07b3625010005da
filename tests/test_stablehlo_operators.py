"""Every operator of the graph (core/ops/ops.def), written as StableHLO, run by XLA and compared with PyTorch's CPU operators.

Graphs are written in the core's text form and turned into StableHLO by the C test program (test_ir --stablehlo), so that this needs neither
the device nor the glue. Operators of one kind share one program: XLA's compiler is slow, its programs are not.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
import referee
import torch

ROOT = Path(__file__).resolve().parent.parent
BUILD = Path(os.environ.get("TNX_BUILD_DIR", ROOT / "build"))
WRITER = BUILD / "core" / "test_ir"

pytestmark = [
    pytest.mark.skipif(not referee.available(), reason="the referee is not installed (requirements/test.txt)"),
    pytest.mark.skipif(not WRITER.exists(), reason=f"{WRITER} is not built"),
]

FLOATS = [torch.float32, torch.float64, torch.bfloat16, torch.float16]
INTS = [torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8]
COMPLEX = [torch.complex64, torch.complex128]
TOLERANCE = {
    torch.float64: (1e-11, 1e-12),
    torch.float32: (4e-6, 1e-6),
    torch.bfloat16: (1.6e-2, 1e-3),
    torch.float16: (2e-3, 1e-4),
    torch.complex64: (1e-5, 1e-5),
    torch.complex128: (1e-11, 1e-11),
}
NAN, INF = float("nan"), float("inf")


def name_of(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


class Graph:
    """Builds the text of a graph and what each output should be."""

    def __init__(self):
        self.lines = ['graph "t"']
        self.count = 0
        self.inputs: list[torch.Tensor] = []
        self.outputs: list[str] = []
        self.expected: list[tuple[str, torch.Tensor, tuple[float, float] | None]] = []
        self.symbols: list[int] = []

    def _define(self, types, rest: str):
        names = [f"%{self.count + i + 1}" for i in range(len(types))]
        self.count += len(types)
        defs = ", ".join(f"{n}: {name_of(t)}{list(shape)}" for n, (t, shape) in zip(names, types))
        self.lines.append(f"{defs} = {rest}")
        return names

    def input(self, x: torch.Tensor) -> str:
        x = x.contiguous().clone()
        self.inputs.append(x)
        return self._define([(x.dtype, x.shape)], f"INPUT {{{len(self.inputs) - 1}}} strides {list(x.stride())}")[0]

    def op(self, op: str, operands, types, ints=(), floats=()):
        """types: (dtype, shape) of each result."""
        text = f"{op} {', '.join(operands)}".rstrip()
        if ints or floats:
            text += " {" + ", ".join(str(int(i)) for i in ints) + "}"
        if floats:
            text += " {" + ", ".join(repr(float(f)) for f in floats) + "}"
        return self._define(types, text)

    def output(self, value: str, label: str, expected: torch.Tensor, tolerance=None):
        self.outputs.append(value)
        self.expected.append((label, expected, tolerance))

    def check(self, op: str, operands, expected, ints=(), floats=(), label="", tolerance=None):
        """One operator whose results look like the expected tensors."""
        results = expected if isinstance(expected, (tuple, list)) else [expected]
        names = self.op(op, operands, [(e.dtype, e.shape) for e in results], ints, floats)
        for i, (n, e) in enumerate(zip(names, results)):
            self.output(n, f"{op} {label}" + (f"[{i}]" if len(results) > 1 else ""), e, tolerance)

    def text(self) -> str:
        return "\n".join(self.lines + [f"output {o}" for o in self.outputs]) + "\n"

    def run(self):
        writer = subprocess.run(
            [WRITER, "--stablehlo", *map(str, self.symbols)], input=self.text(), capture_output=True, text=True, check=False
        )
        assert writer.returncode == 0, writer.stderr
        results = referee.run(writer.stdout, *[referee.to_numpy(x) for x in self.inputs])
        assert len(results) == len(self.expected)
        wrong = []
        for got, (label, want, tolerance) in zip(results, self.expected):
            try:
                compare(referee.to_torch(got), want, tolerance)
            except AssertionError as error:
                wrong.append(f"{label} {name_of(want.dtype)}: {error}")
        assert not wrong, "\n".join(wrong)


def compare(got: torch.Tensor, want: torch.Tensor, tolerance=None):
    assert got.dtype == want.dtype, f"dtype {got.dtype}, expected {want.dtype}"
    rtol, atol = tolerance or TOLERANCE.get(want.dtype, (0, 0))
    torch.testing.assert_close(got, want, rtol=rtol, atol=atol, equal_nan=True)


def numbers(dtype: torch.dtype, *shape, seed=0, low=-4.0, high=4.0) -> torch.Tensor:
    g = torch.Generator().manual_seed(seed)
    if dtype == torch.bool:
        return torch.rand(shape, generator=g) < 0.5
    if not dtype.is_floating_point and not dtype.is_complex:
        info = torch.iinfo(dtype)
        return torch.randint(max(int(low * 10), info.min), min(int(high * 10), info.max), shape, generator=g).to(dtype)
    if dtype.is_complex:
        return torch.complex(*[torch.rand(shape, generator=g, dtype=torch.float64) * (high - low) + low for _ in range(2)]).to(dtype)
    return (torch.rand(shape, generator=g, dtype=torch.float64) * (high - low) + low).to(dtype)


# ---- pointwise ----

UNARY = {
    "NEG": (torch.neg, -4, 4), "ABS": (torch.abs, -4, 4), "SIGN": (torch.sign, -4, 4), "CEIL": (torch.ceil, -4, 4),
    "FLOOR": (torch.floor, -4, 4), "TRUNC": (torch.trunc, -4, 4), "ROUND": (torch.round, -4, 4), "SQRT": (torch.sqrt, -1, 9),
    "RSQRT": (torch.rsqrt, -1, 9), "EXP": (torch.exp, -9, 9), "EXP2": (torch.exp2, -9, 9), "EXPM1": (torch.expm1, -4, 4),
    "LOG": (torch.log, -1, 9), "LOG2": (torch.log2, -1, 9), "LOG10": (torch.log10, -1, 9), "LOG1P": (torch.log1p, -2, 9),
    "SIN": (torch.sin, -90, 90), "COS": (torch.cos, -90, 90), "TAN": (torch.tan, -9, 9), "ASIN": (torch.asin, -1.2, 1.2),
    "ACOS": (torch.acos, -1.2, 1.2), "ATAN": (torch.atan, -9, 9), "SINH": (torch.sinh, -9, 9), "COSH": (torch.cosh, -9, 9),
    "TANH": (torch.tanh, -9, 9), "ASINH": (torch.asinh, -9, 9), "ACOSH": (torch.acosh, 0, 9), "ATANH": (torch.atanh, -1.2, 1.2),
    "ERF": (torch.erf, -4, 4), "ERFC": (torch.erfc, -4, 4), "ERFINV": (torch.erfinv, -1.2, 1.2), "LGAMMA": (torch.lgamma, -4, 9),
    "DIGAMMA": (torch.digamma, -4, 9), "SIGMOID": (torch.sigmoid, -9, 9), "ISNAN": (torch.isnan, -4, 4), "ISFINITE": (torch.isfinite, -4, 4),
}  # fmt: skip
# Relative and absolute tolerance where XLA's own approximation is the wider one (float32 and float64).
LOOSE = {"LGAMMA": 2e-5, "DIGAMMA": 2e-5, "ERFINV": 2e-5, "TAN": 2e-5, "ATANH": 1e-5, "SINH": 1e-5, "COSH": 1e-5, "ERFC": 2e-5, "EXP2": 1e-5}


@pytest.mark.parametrize("dtype", FLOATS, ids=name_of)
def test_unary_float(dtype):
    special = torch.tensor([NAN, INF, -INF, 0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 2.5, -2.5, 100.0]).to(dtype)
    g = Graph()
    for i, (op, (fn, low, high)) in enumerate(UNARY.items()):
        x = torch.cat([numbers(dtype, 52, seed=i, low=low, high=high), special])
        if op in ("LGAMMA", "DIGAMMA"):  # the poles are compared as such, their neighbourhood is ill-conditioned
            x = x[~((x < 0) & ((x - x.round()).abs() < 0.05)) & ~x.isinf()]
        loose = LOOSE.get(op, 0)
        tolerance = (max(loose * (1e-4 if dtype == torch.float64 else 1), TOLERANCE[dtype][0]),) * 2 if loose else None
        g.check(op, [g.input(x)], fn(x), tolerance=tolerance)
    g.run()


@pytest.mark.parametrize("dtype", INTS, ids=name_of)
def test_unary_integer(dtype):
    info = torch.iinfo(dtype)
    x = torch.cat([numbers(dtype, 20), torch.tensor([info.min, info.max, 0, 1], dtype=dtype)])
    g = Graph()
    v = g.input(x)
    for op, fn in {"NEG": torch.neg, "ABS": torch.abs, "SIGN": torch.sign, "NOT": torch.bitwise_not}.items():
        g.check(op, [v], fn(x))
    g.run()


@pytest.mark.parametrize("dtype", COMPLEX, ids=name_of)
def test_complex(dtype):
    x, y = numbers(dtype, 40), numbers(dtype, 40, seed=1)
    g = Graph()
    a, b = g.input(x), g.input(y)
    for op in ("NEG", "ABS", "SQRT", "EXP", "LOG", "SIN", "COS", "TANH", "ISNAN", "ISFINITE"):
        g.check(op, [a], UNARY[op][0](x))
    for op, fn in {"REAL": torch.real, "IMAG": torch.imag, "CONJ": torch.conj}.items():
        g.check(op, [a], fn(x).resolve_conj())
    for op in ("ADD", "SUB", "MUL", "DIV", "POW", "EQ", "NE"):
        g.check(op, [a, b], BINARY[op](x, y), tolerance=(1e-4, 1e-4) if dtype == torch.complex64 else None)
    g.check("COMPLEX", [g.input(x.real), g.input(x.imag)], x)
    g.check("REDUCE_SUM", [a], x.sum(0, keepdim=True), [0])
    g.check("REDUCE_PROD", [a], x.prod(0, keepdim=True), [0], tolerance=(1e-4, 1e-4))
    g.check("CUMSUM", [a], x.cumsum(0), [0])
    p = numbers(torch.bool, 40)
    g.check("SELECT", [g.input(p), a, b], torch.where(p, x, y))
    g.run()


def divide(x, y):
    if x.dtype.is_floating_point or x.dtype.is_complex:
        return x / y
    return torch.div(x, y, rounding_mode="trunc")


BINARY = {
    "ADD": torch.add, "SUB": torch.sub, "MUL": torch.mul, "DIV": divide, "FMOD": torch.fmod, "REMAINDER": torch.remainder,
    "FLOORDIV": torch.floor_divide, "POW": torch.pow, "ATAN2": torch.atan2, "HYPOT": torch.hypot, "NEXTAFTER": torch.nextafter,
    "COPYSIGN": torch.copysign, "MAX": torch.maximum, "MIN": torch.minimum, "FMAX": torch.fmax, "FMIN": torch.fmin,
    "AND": torch.bitwise_and, "OR": torch.bitwise_or, "XOR": torch.bitwise_xor, "SHL": torch.bitwise_left_shift,
    "SHR": torch.bitwise_right_shift, "EQ": torch.eq, "NE": torch.ne, "LT": torch.lt, "LE": torch.le, "GT": torch.gt, "GE": torch.ge,
}  # fmt: skip
COMPARISONS = ["EQ", "NE", "LT", "LE", "GT", "GE"]


@pytest.mark.parametrize("dtype", FLOATS, ids=name_of)
def test_binary_float(dtype):
    special = torch.tensor([NAN, INF, -INF, 0.0, -0.0, 1.0, -2.5]).to(dtype)
    x = torch.cat([numbers(dtype, 40), special.repeat_interleave(7)])
    y = torch.cat([numbers(dtype, 40, seed=1), special.repeat(7)])
    g = Graph()
    a, b = g.input(x), g.input(y)
    for op in list(BINARY)[:16] + COMPARISONS:
        if op == "NEXTAFTER" and dtype == torch.float16:
            continue  # PyTorch has none
        if op == "FLOORDIV" and dtype in (torch.float16, torch.bfloat16):
            continue  # PyTorch rounds inside; compared below
        g.check(op, [a, b], BINARY[op](x, y), tolerance=(2e-5, 2e-5) if op == "POW" and dtype == torch.float32 else None)
    if dtype in (torch.float16, torch.bfloat16):
        g.check("FLOORDIV", [a, b], torch.floor_divide(x.float(), y.float()).to(dtype))
    p = numbers(torch.bool, x.numel())
    g.check("SELECT", [g.input(p), a, b], torch.where(p, x, y))
    g.run()


@pytest.mark.parametrize("dtype", INTS, ids=name_of)
def test_binary_integer(dtype):
    info = torch.iinfo(dtype)
    edge = torch.tensor([info.min, info.max, 0, 1, 3], dtype=dtype)
    x = torch.cat([numbers(dtype, 40), edge.repeat_interleave(5)])
    y = torch.cat([numbers(dtype, 40, seed=1), edge.repeat(5)])
    g = Graph()
    a, b = g.input(x), g.input(y)
    for op in ["ADD", "SUB", "MUL", "MAX", "MIN", "AND", "OR", "XOR", *COMPARISONS]:
        g.check(op, [a, b], BINARY[op](x, y))
    d = torch.where((y == 0) | ((x == info.min) & (y == -1)), torch.ones_like(y), y)  # PyTorch traps or leaves these undefined
    dv = g.input(d)
    for op in ["DIV", "FMOD", "REMAINDER", "FLOORDIV"]:
        g.check(op, [a, dv], BINARY[op](x, d))
    z = torch.zeros_like(y)
    for op in ["DIV", "FMOD", "REMAINDER", "FLOORDIV"]:
        g.check(op, [a, g.input(z)], z, label="by zero")
    s = numbers(dtype, x.numel(), seed=2, low=0, high=info.bits / 10)
    sv = g.input(s)
    for op in ["SHL", "SHR"]:
        g.check(op, [a, sv], BINARY[op](x, s))
    e = numbers(dtype, x.numel(), seed=3, low=0, high=0.5)
    g.check("POW", [a, g.input(e)], x.pow(e))
    if info.min < 0:
        n = numbers(dtype, 30, seed=4, low=-0.5, high=0.5)
        base = torch.tensor([-1, 1, 2, -3, -1], dtype=dtype).repeat(6)
        g.check("POW", [g.input(base), g.input(n)], base.pow(n), label="negative")
    g.run()


def test_bool():
    x, y = numbers(torch.bool, 4, 8), numbers(torch.bool, 4, 8, seed=1)
    g = Graph()
    a, b = g.input(x), g.input(y)
    g.check("NOT", [a], ~x)
    for op in ["AND", "OR", "XOR", *COMPARISONS]:
        g.check(op, [a, b], BINARY[op](x, y))
    g.check("MAX", [a, b], x | y)
    g.check("MIN", [a, b], x & y)
    g.check("SELECT", [a, b, a], torch.where(x, y, x))
    g.check("REDUCE_MAX", [a], x.any(1, keepdim=True), [1])
    g.check("REDUCE_MIN", [a], x.all(0, keepdim=True), [0])
    g.check("ARGMAX", [a], x.to(torch.uint8).argmax(1, keepdim=True), [1])
    g.check("CUMMAX", [a], x.cummax(1), [1])
    g.check("TOPK", [a], x.sort(dim=1, descending=True, stable=True), [1, 1, 1])
    e = g.input(torch.zeros(0, 3, dtype=torch.bool))
    g.check("REDUCE_MAX", [e], torch.zeros(1, 3, dtype=torch.bool), [0], label="empty")
    g.check("REDUCE_MIN", [e], torch.ones(1, 3, dtype=torch.bool), [0], label="empty")
    g.run()


@pytest.mark.parametrize("source", [torch.bool, *INTS, *FLOATS, *COMPLEX, torch.float8_e4m3fn, torch.float8_e5m2], ids=name_of)
def test_convert(source):
    if source in (torch.float8_e4m3fn, torch.float8_e5m2):
        x = numbers(torch.float32, 60, low=-60, high=60).to(source)
    elif source.is_floating_point:
        x = torch.cat([numbers(source, 60, low=-100, high=100), torch.tensor([0.0, -0.0, 0.99, -0.99, 1e4, -1e4]).to(source)])
    else:
        x = numbers(source, 60)
    g = Graph()
    v = g.input(x)
    for target in [torch.bool, *INTS, *FLOATS, *COMPLEX, torch.float8_e4m3fn, torch.float8_e5m2]:
        if target == source:
            continue
        if target == torch.uint8 and source != torch.bool and not source.is_complex:
            want = x.to(torch.int64).to(target)  # negative floats to uint8 are undefined in C; the core wraps
        else:
            want = x.to(target)
        g.check("CONVERT", [v], want, label=f"from {name_of(source)}", tolerance=(0, 0))
    if source in (torch.float32, torch.float64, torch.bfloat16):
        special = torch.tensor([NAN, INF, -INF, 3e9, -3e9]).to(source)
        s = g.input(special)
        g.check("CONVERT", [s], special.bool(), label="special")
        lowest = torch.iinfo(torch.int64).min
        g.check("CONVERT", [s], torch.tensor([lowest] * 3 + special[3:].long().tolist()), label="special")
    g.run()


def philox(seed: int, offset: int, index: int) -> int:
    """Philox4x32-10 of Random123, in Python's integers."""
    mask = 0xFFFFFFFF
    counter = (offset + (index >> 2)) & 0xFFFFFFFFFFFFFFFF
    c = [counter & mask, counter >> 32, 0, 0]
    k = [seed & mask, (seed >> 32) & mask]
    for i in range(10):
        if i:
            k = [(k[0] + 0x9E3779B9) & mask, (k[1] + 0xBB67AE85) & mask]
        p0, p1 = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(p1 >> 32) ^ c[1] ^ k[0], p1 & mask, (p0 >> 32) ^ c[3] ^ k[1], p0 & mask]
    return c[index & 3]


def test_philox():
    assert [philox(0, 0, i) for i in range(4)] == [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]  # Random123's known answers
    index = torch.arange(32)
    seed, offset = torch.full((32,), 0x123456789ABCDEF), torch.full((32,), 0xFFFFFFFE)
    g = Graph()
    want = torch.tensor([philox(int(s), int(o), int(i)) for s, o, i in zip(seed, offset, index)])
    g.check("PHILOX", [g.input(seed), g.input(offset), g.input(index)], want)
    g.run()


# ---- special functions ----

# Ranges in which PyTorch's own kernels are exact enough to compare with.
SPECIAL_UNARY = {
    "BESSEL_I0": (torch.special.i0, -30, 30), "BESSEL_I0E": (torch.special.i0e, -60, 60), "BESSEL_I1": (torch.special.i1, -30, 30),
    "BESSEL_I1E": (torch.special.i1e, -60, 60), "BESSEL_K0": (torch.special.modified_bessel_k0, -1, 30),
    "BESSEL_K0E": (torch.special.scaled_modified_bessel_k0, -1, 60), "BESSEL_K1": (torch.special.modified_bessel_k1, -1, 30),
    "BESSEL_K1E": (torch.special.scaled_modified_bessel_k1, -1, 60), "BESSEL_J0": (torch.special.bessel_j0, -60, 60),
    "BESSEL_J1": (torch.special.bessel_j1, -60, 60), "BESSEL_Y0": (torch.special.bessel_y0, -1, 60), "BESSEL_Y1": (torch.special.bessel_y1, -1, 60),
    "AIRY_AI": (torch.special.airy_ai, -40, 8), "ERFCX": (torch.special.erfcx, -4, 30), "NDTRI": (torch.special.ndtri, -0.1, 1.1),
    "LOG_NDTR": (torch.special.log_ndtr, -30, 9), "MANTISSA": (lambda x: torch.frexp(x)[0], -9, 9), "EXPONENT": (lambda x: torch.frexp(x)[1].to(x.dtype), -9, 9),
}  # fmt: skip
INEXACT = {"BESSEL_J0", "BESSEL_J1", "BESSEL_Y0", "BESSEL_Y1", "AIRY_AI"}  # PyTorch's own are wrong from the seventh digit on between 5 and 6
SPECIAL_BINARY = {
    "ZETA": (torch.special.zeta, (0.5, 9), (-9, 20)), "IGAMMA": (torch.special.gammainc, (0, 30), (0, 40)), "IGAMMAC": (torch.special.gammaincc, (0, 30), (0, 40)),
}  # fmt: skip
POLYNOMIALS = {
    "CHEBYSHEV_T": "chebyshev_polynomial_t", "CHEBYSHEV_U": "chebyshev_polynomial_u", "CHEBYSHEV_V": "chebyshev_polynomial_v",
    "CHEBYSHEV_W": "chebyshev_polynomial_w", "HERMITE_H": "hermite_polynomial_h", "HERMITE_HE": "hermite_polynomial_he",
    "LAGUERRE": "laguerre_polynomial_l", "LEGENDRE": "legendre_polynomial_p",
}  # fmt: skip


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=name_of)
def test_special_unary(dtype):
    special = torch.tensor([NAN, 0.0, -0.0, 1.0, -1.0, 0.5, 2.0, 2.5, 20.0, 25.0]).to(dtype)  # at infinities several of PyTorch's have NaN where there is a limit
    g = Graph()
    for i, (op, (fn, low, high)) in enumerate(SPECIAL_UNARY.items()):
        x = torch.cat([numbers(dtype, 52, seed=i, low=low, high=high), special])
        want = fn(x.double()).to(dtype)
        loose = dtype == torch.float32 or op in INEXACT
        g.check(op, [g.input(x)], want, tolerance=(1e-5, 1e-6) if loose else (1e-10, 1e-11))
    g.run()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=name_of)
def test_special_binary(dtype):
    g = Graph()
    tolerance = (2e-5, 2e-5) if dtype == torch.float32 else (1e-9, 1e-10)
    for i, (op, (fn, first, second)) in enumerate(SPECIAL_BINARY.items()):
        x, y = numbers(dtype, 60, seed=i, low=first[0], high=first[1]), numbers(dtype, 60, seed=i + 9, low=second[0], high=second[1])
        x[:5], y[:5] = torch.tensor([1.0, 0.5, 2.0, 0.0, NAN]), torch.tensor([0.5, 0.25, 3.0, 1.0, 1.0])
        x[5:9], y[5:9] = torch.tensor([2.0, 3.0, 4.0, 0.9]), torch.tensor([0.0, -2.0, INF, 1.05])
        g.check(op, [g.input(x), g.input(y)], fn(x.double(), y.double()).to(dtype), tolerance=tolerance)
    for op, name in POLYNOMIALS.items():
        x = torch.linspace(-1.5, 1.5, 61, dtype=dtype)
        n = torch.arange(61, dtype=dtype) % 13 - 1
        g.check(op, [g.input(x), g.input(n)], getattr(torch.special, name)(x, n), tolerance=(1e-4, 1e-4) if dtype == torch.float32 else tolerance)
    g.run()


def test_divisors():
    x, y = torch.tensor([12, -12, 0, 0, 7, 2**62, -(2**63)]), torch.tensor([18, 8, 0, 5, 13, 6, 3])
    g = Graph()
    a, b = g.input(x), g.input(y)
    g.check("GCD", [a, b], torch.gcd(x, y))
    g.check("LCM", [a, b], torch.lcm(x, y))
    g.run()


# ---- leaves, views, data movement ----


def test_leaves():
    g = Graph()
    g.check("IOTA", [], torch.arange(4).expand(3, 4).contiguous(), [1])
    for dtype, values in {
        torch.float32: [0.1, -0.0, INF, -INF, NAN, 1e30, 0.5, 3.0],
        torch.float64: [0.1, 1e300, NAN],
        torch.bfloat16: [0.1, -2.0, INF],
        torch.float16: [0.1, 65504.0],
    }.items():
        for v in values:
            g.check("CONST", [], torch.tensor(v, dtype=dtype), floats=[v, 0], tolerance=(0, 0))
    g.check("CONST", [], torch.tensor(0.25 - 0.1j), floats=[0.25, -0.1])
    for dtype, v in {torch.int64: -(2**63), torch.int8: -128, torch.uint8: 255, torch.bool: 1, torch.int32: 7}.items():
        g.check("CONST", [], torch.tensor(v, dtype=dtype), [v])
    g.run()


def test_symbolic_sizes():
    x = numbers(torch.float32, 5, 6)
    g = Graph()
    g.lines += ['$1 = symbol "s0" min 2', "$2 = add $1, 1", "$3 = mul $1, $2"]
    g.symbols = [5]
    g.inputs.append(x)
    g.lines += ["%1: float32[$1, $2] = INPUT {0} strides [$2, 1]", "%2: float32[$1, $2] = NEG %1", "%3: float32[$3] = RESHAPE %2", "%4: int64[] = DIMVAL {$3}"]
    g.output("%3", "RESHAPE", -x.flatten())
    g.output("%4", "DIMVAL", torch.tensor(30))
    g.run()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.bool, torch.complex64], ids=name_of)
def test_movement(dtype):
    x, u = numbers(dtype, 3, 4, 5), numbers(dtype, 3, 4, 5, seed=1)
    g = Graph()
    a = g.input(x)
    g.check("BROADCAST", [g.input(x[0, :, :1].contiguous())], x[0, :, :1].expand(3, 4, 5).contiguous(), [1, 2])
    g.check("RESHAPE", [a], x.reshape(6, 10))
    g.check("TRANSPOSE", [a], x.permute(2, 0, 1).contiguous(), [2, 0, 1])
    g.check("SLICE", [a], x[:, :, 1:5:3].contiguous(), [2, 1, 3])
    g.check("SLICE", [a], x[:, 2:2].contiguous(), [1, 2, 1], label="empty")
    g.check("REVERSE", [a], x.flip(0, 2), [0, 2])
    for offset, d1, d2 in [(0, 0, 1), (1, 1, 2), (-2, 2, 1), (9, 0, 1)]:
        d = x.diagonal(offset, d1, d2)
        g.check("DIAGONAL", [a], d.contiguous(), [offset, d1, d2])
        y = x.clone()
        y.diagonal(offset, d1, d2).copy_(u.diagonal(offset, d1, d2))
        g.check("UPDATE_DIAGONAL", [a, g.input(u.diagonal(offset, d1, d2))], y, [offset, d1, d2])
    g.check("STRIDED", [a], x.as_strided((4, 3, 2), (1, 7, 20), 3).contiguous(), [3, 1, 7, 20])
    g.check("STRIDED", [a], x.as_strided((), (), 7).contiguous(), [7], label="0-dim")
    y = x.clone()
    y.as_strided((4, 3), (1, 7), 3).copy_(u[0, :, :3])
    g.check("UPDATE_STRIDED", [a, g.input(u[0, :, :3])], y, [3, 1, 7])
    g.check("UNFOLD", [a], x.unfold(2, 3, 2).contiguous(), [2, 3, 2])
    g.check("UNFOLD", [a], x.unfold(0, 2, 1).contiguous(), [0, 2, 1])
    g.check("CONCAT", [a, g.input(u), g.input(x[:0])], torch.cat([x, u]), [0])
    zero = g.op("CONST", [], [(dtype, ())], *(([1],) if dtype in (torch.int64, torch.bool) else ((), [1, 0])))[0]
    g.check("PAD", [a, zero], torch.nn.functional.pad(x[:, 1:], (1, 0, 0, 2, 2, -1), value=1), [2, -1, 1])
    y = x.clone()
    y[:, 1:3] = u[:, :2]
    g.check("UPDATE_SLICE", [a, g.input(u[:, :2])], y, [1, 1, 1])
    y = x.clone()
    y[:, :, 1::3] = u[:, :, :2]
    g.check("UPDATE_SLICE", [a, g.input(u[:, :, :2])], y, [2, 1, 3])
    g.run()


# ---- reductions and scans ----


@pytest.mark.parametrize("dtype", [*FLOATS, *INTS], ids=name_of)
def test_reductions(dtype):
    x = numbers(dtype, 4, 6, 5, low=-3, high=3)
    g = Graph()
    a = g.input(x)
    for dims in ([1], [0, 2], [0, 1, 2], []):
        keep = tuple(dims)
        if dims:
            g.check("REDUCE_SUM", [a], x.sum(keep, keepdim=True, dtype=dtype), dims)
            wide = x.double() if dtype.is_floating_point else x
            prod = wide
            for d in dims:
                prod = prod.prod(d, keepdim=True, dtype=wide.dtype)
            g.check("REDUCE_PROD", [a], prod.to(dtype), dims)
            g.check("REDUCE_MAX", [a], x.amax(keep, keepdim=True), dims)
            g.check("REDUCE_MIN", [a], x.amin(keep, keepdim=True), dims)
        else:
            g.check("REDUCE_SUM", [a], x, dims)
    # the first of equal ones, and NaN before everything
    y = x.clone()
    if dtype.is_floating_point:
        y[1, 2, 3] = y[1, 4, 1] = NAN
        y[2] = -INF
    b = g.input(y)
    first = y.permute(0, 2, 1).reshape(20, 6)
    for op, fn in {"ARGMAX": torch.argmax, "ARGMIN": torch.argmin}.items():
        g.check(op, [b], fn(first, 1).reshape(4, 5).unsqueeze(1), [1])
        g.check(op, [b], fn(y.reshape(4, 30), 1).reshape(4, 1, 1), [1, 2])
        g.check(op, [b], fn(y).reshape(1, 1, 1), [0, 1, 2])
        g.check(op, [b], torch.zeros(4, 6, 5, dtype=torch.int64), [], label="of nothing")
    g.check("REDUCE_MAX", [b], y.amax(1, keepdim=True), [1], label="nan")
    g.check("REDUCE_MIN", [b], y.amin(1, keepdim=True), [1], label="nan")
    e = g.input(torch.zeros(0, 3, dtype=dtype))
    g.check("REDUCE_SUM", [e], torch.zeros(1, 3, dtype=dtype), [0], label="empty")
    g.check("REDUCE_PROD", [e], torch.ones(1, 3, dtype=dtype), [0], label="empty")
    g.run()


@pytest.mark.parametrize("dtype", [*FLOATS, torch.int64, torch.int32, torch.uint8], ids=name_of)
def test_scans(dtype):
    x = numbers(dtype, 3, 7, 2, low=-1.5, high=1.5)
    g = Graph()
    a = g.input(x)
    half = dtype in (torch.bfloat16, torch.float16)
    wide = x.float() if half else x  # the core accumulates in float32
    g.check("CUMSUM", [a], wide.cumsum(1, dtype=wide.dtype).to(dtype), [1])
    g.check("CUMPROD", [a], wide.cumprod(1, dtype=wide.dtype).to(dtype), [1])
    if dtype.is_floating_point:
        y = x.clone()
        y[0, 0, 0], y[1, 0, 1] = -INF, INF
        wide = y.float() if half else y
        g.check("LOGCUMSUMEXP", [g.input(y)], wide.logcumsumexp(1).to(dtype), [1])
        y[1, 3, 1], y[2, 5, 0] = NAN, NAN
    else:
        y = x
    y = torch.cat([y, y[:, 2:4]], 1)  # equal elements
    b = g.input(y)
    g.check("CUMMAX", [b], y.cummax(1), [1])
    g.check("CUMMIN", [b], y.cummin(1), [1])
    for down in (0, 1):
        values, index = y.sort(dim=1, descending=bool(down), stable=True)
        g.check("TOPK", [b], (values, index), [1, down, 1])
        g.check("TOPK", [b], (values[:, :3], index[:, :3]), [1, down, 1])
    g.run()


# ---- indexed access ----


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.bool], ids=name_of)
def test_indexed(dtype):
    x = numbers(dtype, 4, 5, 6)
    index = torch.tensor([[0, -1, 2], [3, 3, -4]])
    g = Graph()
    a, i = g.input(x), g.input(index)
    wrap = index % 5
    g.check("TAKE", [a, i], x.index_select(1, wrap.flatten()).reshape(4, 2, 3, 6), [1])
    g.check("TAKE", [a, g.input(torch.tensor(2))], x[:, :, 2].contiguous(), [2], label="0-dim")
    g.check("TAKE", [a, g.input(index[:, :0])], torch.zeros(4, 2, 0, 6, dtype=dtype), [1], label="empty")
    g.check("TAKE", [a, g.input(index.int())], x.index_select(1, wrap.flatten()).reshape(4, 2, 3, 6), [1], label="int32")
    many = numbers(torch.int64, 3, 5, 2, low=-0.6, high=0.6)
    m = g.input(many)
    g.check("GATHER", [a, m], x[:3].gather(2, many % 6), [2])
    chosen = x > x.flatten().float().median().to(dtype) if dtype != torch.bool else x
    mask = g.input(chosen)
    for size in (0, 7, 400):
        g.check("NONZERO", [mask], torch.nonzero_static(chosen, size=size, fill_value=-3), [-3], label=str(size))
    first, second = torch.tensor([0, -1, 2]), torch.tensor([1, 4, -5])
    f, s = g.input(first), g.input(second)
    g.check("INDEX", [a, f, s], x[first, second], [0, 1])
    g.check("INDEX", [a, s, f], x[:, second, first], [1, 2])
    src = numbers(dtype, 3, 5, 2, seed=3)
    u = g.input(src)
    modes = {0: None, 1: "sum", 2: "prod", 3: "amin", 4: "amax"}
    narrow = TOLERANCE.get(dtype)
    if dtype == torch.bfloat16:
        narrow = (4e-2, 1e-1)  # each addition rounds, in any order

    def scattered(dim, at, values, how):
        if dtype != torch.bool:
            return x.scatter_reduce(dim, at, values, how)
        return x.long().scatter_reduce(dim, at, values.long(), how).bool()  # sum is "or", product is "and"

    for mode, reduce in modes.items():
        pos = many % 6
        if mode == 0:  # distinct places: the order of equal ones is not defined in StableHLO
            pos = torch.stack([torch.arange(5) % 6, (torch.arange(5) + 1) % 6], 1).expand(3, 5, 2).contiguous()
            want = x.scatter(2, pos, src)
        else:
            want = scattered(2, pos, src, reduce)
        g.check("SCATTER", [a, g.input(pos), u], want, [2, mode], label=str(mode), tolerance=narrow)
        line = torch.tensor([1, -2, 0]) if mode == 0 else torch.tensor([1, -2, 1])
        rows = numbers(dtype, 4, 3, 6, seed=4)
        full = (line % 5)[None, :, None].expand(4, 3, 6)
        want = x.scatter(1, full, rows) if mode == 0 else scattered(1, full, rows, reduce)
        g.check("PUT", [a, g.input(line), g.input(rows)], want, [1, mode], label=str(mode), tolerance=narrow)
        if mode <= 1:
            pair = (first, second) if mode == 0 else (torch.tensor([0, -1, 0]), torch.tensor([1, 4, 1]))
            vals = numbers(dtype, 3, 6, seed=5)
            want = x.index_put(pair, vals, accumulate=mode == 1)
            g.check("INDEX_PUT", [a, g.input(vals), g.input(pair[0]), g.input(pair[1])], want, [mode, 0, 1], label=str(mode), tolerance=narrow)
    g.run()


# ---- products ----


@pytest.mark.parametrize("dtype", [*FLOATS, torch.int64, torch.complex64], ids=name_of)
def test_products(dtype):
    x, y, w, bias = numbers(dtype, 2, 3, 4), numbers(dtype, 2, 4, 5, seed=1), numbers(dtype, 5, 4, seed=2), numbers(dtype, 5, seed=3)
    g = Graph()
    a, b, wv, bv = (g.input(t) for t in (x, y, w, bias))
    half = dtype in (torch.bfloat16, torch.float16)
    up = (lambda t: t.float()) if half else (lambda t: t)
    g.check("MATMUL", [a, b], (up(x) @ up(y)).to(dtype))
    if half:
        g.check("MATMUL", [a, b], up(x) @ up(y), label="to float32")
    product = up(x) @ up(w).T
    g.check("LINEAR", [a, wv], product.to(dtype), [0])
    g.check("LINEAR", [a, wv, bv], (product + up(bias)).to(dtype), [0])
    if dtype.is_floating_point:
        f = torch.nn.functional
        acts = [f.relu, f.silu, f.gelu, lambda t: f.gelu(t, approximate="tanh")]
        for i, act in enumerate(acts):
            g.check("LINEAR", [a, wv, bv], act(product + up(bias)).to(dtype), [i + 1])
    c = numbers(dtype, 2, 3, 5, seed=4)
    g.check("ADDMM", [g.input(c), a, b], (2 * up(c) + 3 * (up(x) @ up(y))).to(dtype), floats=[2, 3])
    if dtype.is_floating_point:
        g.check("ADDMM", [g.input(torch.full_like(c, NAN)), a, b], (up(x) @ up(y)).to(dtype), floats=[0, 1])
    g.check("MATMUL", [g.input(x[:, :, :0]), g.input(y[:, :0])], torch.zeros(2, 3, 5, dtype=dtype), label="k = 0")
    g.run()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=name_of)
@pytest.mark.parametrize("case", ["plain", "causal", "bool mask", "float mask"])
def test_attention(dtype, case):
    b, h, groups, rows, keys, d, e = 2, 4, 2, 5, 7, 8, 6
    q, k, v = numbers(dtype, b, h, rows, d), numbers(dtype, b, groups, keys, d, seed=1), numbers(dtype, b, groups, keys, e, seed=2)
    dout = numbers(dtype, b, h, rows, e, seed=3)
    scale, mask = 0.3, None
    if case == "bool mask":
        mask = numbers(torch.bool, b, h, rows, keys, seed=4)
        mask[0, 1, 2] = False  # a row that sees nothing gives 0
    elif case == "float mask":
        mask = numbers(dtype, b, h, rows, keys, seed=4)
    causal = case == "causal"
    qd, kd, vd = (t.double().requires_grad_() for t in (q, k, v))
    s = qd @ kd.repeat_interleave(h // groups, 1).transpose(-1, -2) * scale
    if mask is not None:
        s = s.masked_fill(~mask, -INF) if mask.dtype == torch.bool else s + mask.double()
    if causal:
        s = s.masked_fill(~torch.ones(rows, keys, dtype=torch.bool).tril(), -INF)
    p = torch.softmax(s, -1).masked_fill((s == -INF).all(-1, keepdim=True), 0)
    out = p @ vd.repeat_interleave(h // groups, 1)
    lse = torch.logsumexp(s, -1).float().detach()
    grads = [t.nan_to_num(0.0) for t in torch.autograd.grad(out, (qd, kd, vd), dout.double())]
    g = Graph()
    operands = [g.input(t) for t in (q, k, v)] + ([g.input(mask)] if mask is not None else [])
    ints = [int(causal), int(mask is not None)]
    loose = {torch.float32: (2e-5, 2e-5), torch.float64: (1e-6, 1e-6), torch.bfloat16: (3e-2, 3e-2)}[dtype]
    want = out.detach().to(dtype)
    g.check("ATTENTION", operands, (want, lse), ints, [scale], tolerance=loose)
    back = [g.input(dout), *operands[:3], g.input(want), g.input(lse), *operands[3:]]
    g.check("ATTENTION_BACKWARD", back, tuple(t.to(dtype) for t in grads), ints, [scale], tolerance=tuple(4 * t for t in loose))
    g.run()


# ---- factorisations ----


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, *COMPLEX], ids=name_of)
def test_factors(dtype):
    g = Graph()
    loose = (1e-4, 1e-4) if dtype in (torch.float32, torch.complex64) else (1e-10, 1e-10)
    for rows, columns in ((4, 3), (3, 5), (1, 1)):
        x = numbers(dtype, 2, rows, columns, seed=rows)
        factor, pivots, info = torch.linalg.lu_factor_ex(x)
        g.check("LU", [g.input(x)], (factor, pivots, info), [0, 0, 0], tolerance=loose)
        order = torch.lu_unpack(factor, pivots, unpack_data=False)[0].real.argmax(-2).unsqueeze(-1)
        g.check("LU_PERMUTATION", [g.input(pivots.unsqueeze(-1))], order, [0, 0, 0])
        reflectors, tau = torch.geqrf(x)
        g.check("QR", [g.input(x)], (reflectors, tau), [0, 0, 0], tolerance=loose)
    singular = torch.zeros(3, 3, dtype=dtype)
    singular[0, 0], singular[2, 2] = 2, 1
    g.check("LU", [g.input(singular)], torch.linalg.lu_factor_ex(singular), [0, 0, 0], label="singular")
    x, b = numbers(dtype, 2, 4, 4, seed=5), numbers(dtype, 2, 4, 3, seed=6)
    factor, pivots = torch.linalg.lu_factor(x)
    for transposed, a in enumerate((x, x.mT, x.mH)):
        operands = [g.input(factor), g.input(pivots), g.input(b)]
        g.check("LU_SOLVE", operands, torch.linalg.solve(a, b), [0, transposed, 0], tolerance=(1e-3, 1e-3) if dtype in (torch.float32, torch.complex64) else loose)
    reflectors, tau = torch.geqrf(b)
    r, t = g.input(reflectors), g.input(tau)
    g.check("QR_Q", [r, t], torch.linalg.householder_product(reflectors, tau), [0, 0, 0], tolerance=loose)
    for left, transposed in ((1, 0), (1, 1), (0, 0), (0, 1)):
        c = numbers(dtype, 2, 4, 2, seed=7) if left else numbers(dtype, 2, 2, 4, seed=7)
        want = torch.ormqr(reflectors, tau, c, bool(left), bool(transposed))
        g.check("QR_APPLY", [r, t, g.input(c)], want, [0, left, 2 * transposed], label=f"{left} {transposed}", tolerance=loose)
    g.check("MATRIX_EXP", [g.input(x / 4)], torch.linalg.matrix_exp(x / 4), [0, 0, 0], tolerance=loose)
    g.run()
