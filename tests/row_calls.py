"""Calls of the operator table's rows, recorded while PyTorch's own operator database (OpInfo) runs on the CPU: arguments and results.

TNX_ROW_CALLS (default 1) is the number of calls of each row and dtype. Not a test: test_rows.py and test_stablehlo.py use it.
"""

from __future__ import annotations

import functools
import os
import warnings
from collections import defaultdict

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map

from torch_neuronx import _C

DTYPES = (torch.float32, torch.bfloat16, torch.int64, torch.bool)
CALLS = int(os.environ.get("TNX_ROW_CALLS", "1"))
MAX_ELEMENTS = 4096  # larger calls say nothing more and cost XLA time

# Rows whose results cannot be compared, and why.
SKIPPED = {
    "empty": "the memory is not initialised",
    "new_empty": "the memory is not initialised",
    "random": "the generators differ (the generator itself is tested as PHILOX)",
}
# The CPU kernels give other statistics and records for the backward (results 1 on; _ctc_loss leaves a part of its record unwritten) than PyTorch's
# Meta kernels and its other devices do; the rows follow Meta, which compiled graphs rely on.
META_DECIDES = {"native_layer_norm", "_native_batch_norm_legit_no_training", "_embedding_bag", "_embedding_bag_forward_only", "_ctc_loss"}
# Results by place that may be any among equals.
TIES = {"topk": {1}, "kthvalue": {1}, "mode": {1}, "median": {1}, "nanmedian": {1}, "sort": {1}, "msort": set(), "max_pool2d_with_indices": set()}
# relative, absolute
TOLERANCE = {
    torch.float32: (1e-4, 1e-4), torch.bfloat16: (3e-2, 3e-2), torch.float16: (4e-3, 4e-3), torch.complex64: (1e-3, 1e-3),
    torch.float64: (1e-6, 1e-6), torch.complex128: (1e-6, 1e-6),
}  # fmt: skip


def overload_name(func) -> str:
    name = func._schema.name.removeprefix("aten::")
    return f"{name}.{func._schema.overload_name}" if func._schema.overload_name else name


def skipped(name: str, flags) -> str | None:
    base = name.split(".")[0]
    if base.startswith("empty"):
        return SKIPPED["empty"]
    if base.startswith("new_empty"):
        return SKIPPED["new_empty"]
    if flags["random"]:
        return SKIPPED["random"]
    return None


def widened(x):
    return x.double() if isinstance(x, torch.Tensor) and x.dtype in (torch.bfloat16, torch.float16) else x


class Call:
    def __init__(self, name, args, kwargs, result):
        self.name = name
        self.args, self.kwargs = tree_map(lambda x: x.detach().clone().contiguous() if isinstance(x, torch.Tensor) else x, (args, kwargs))
        self.want = [x.detach().clone() if isinstance(x, torch.Tensor) else x for x in tree_flatten(result)[0]]
        self.tensors = [x for x in tree_flatten((self.args, self.kwargs))[0] if isinstance(x, torch.Tensor)]

    @property
    def label(self) -> str:
        def short(x):
            return f"{str(x.dtype).removeprefix('torch.')}{list(x.shape)}" if isinstance(x, torch.Tensor) else repr(x)

        parts = [str(tree_map(short, a)) for a in self.args] + [f"{k}={tree_map(short, v)}" for k, v in self.kwargs.items()]
        return f"{self.name}({', '.join(parts)})"[:300]

    def build(self, builder, inputs):
        """Adds the call to the builder, and its tensors to the builder's inputs. Returns the results, None for undefined ones."""
        numbers = {}
        for x in self.tensors:
            numbers[id(x)] = builder.input(x.dtype, list(x.shape), list(x.stride()), False)
        args, kwargs = tree_map(lambda x: numbers[id(x)] if isinstance(x, torch.Tensor) else x, (self.args, self.kwargs))
        results = builder.call(self.name, tuple(args), dict(kwargs), None)
        inputs += self.tensors
        return results

    def check(self, got):
        """got: CPU tensors, None for undefined results."""
        base = self.name.split(".")[0]
        first = 1 if base in META_DECIDES else None
        assert len(got) == len(self.want), f"{len(got)} results, {len(self.want)} expected"
        for i, (g, w) in enumerate(zip(got[:first], self.want)):
            if not isinstance(w, torch.Tensor):
                assert g is None, f"result {i} should be undefined"
                continue
            assert g is not None, f"result {i} is undefined"
            assert g.dtype == w.dtype and g.shape == w.shape, f"result {i} is {g.dtype} {list(g.shape)}, expected {w.dtype} {list(w.shape)}"
            if i in TIES.get(base, ()):
                continue
            rtol, atol = TOLERANCE.get(w.dtype, (0, 0))
            w = w.resolve_conj().resolve_neg()
            if w.dtype in (torch.bfloat16, torch.float16) and not torch.allclose(g, w, rtol=rtol, atol=atol, equal_nan=True):
                w = self.exact(i)  # PyTorch rounds in between here: compare with its float64 result
            torch.testing.assert_close(g, w, rtol=rtol, atol=atol, equal_nan=True, msg=lambda m: f"result {i}: {m}")

    def exact(self, i):
        packet, _, overload = self.name.partition(".")
        args, kwargs = tree_map(widened, (self.args, self.kwargs))
        result = getattr(getattr(torch.ops.aten, packet), overload or "default")(*args, **kwargs)
        return (result[i] if isinstance(result, (list, tuple)) else result).to(self.want[i].dtype)


class Recorder(TorchDispatchMode):
    def __init__(self, calls):
        super().__init__()
        self.calls = calls

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        keep = self.calls.wants(func, args, kwargs)
        if keep:
            args_before, kwargs_before = tree_map(lambda x: x.clone() if isinstance(x, torch.Tensor) else x, (args, kwargs))
        result = func(*args, **kwargs)
        if keep:
            self.calls.add(overload_name(func), args_before, kwargs_before, result)
        return result


class Calls:
    """The recorded calls, at most CALLS of each row and dtype, no two alike."""

    def __init__(self):
        self.rows = {r["functional"]: r for r in _C.rows() if r["functional"]}
        self.by_row = defaultdict(list)
        self.count = defaultdict(int)
        self.seen = set()

    def key(self, name, args, kwargs):
        flat = tree_flatten((args, kwargs))[0]
        return name, tuple((x.dtype, tuple(x.shape)) if isinstance(x, torch.Tensor) else repr(x) for x in flat)

    def wants(self, func, args, kwargs) -> bool:
        name = overload_name(func)
        row = self.rows.get(name)
        if row is None or skipped(name, row):
            return False
        tensors = [x for x in tree_flatten((args, kwargs))[0] if isinstance(x, torch.Tensor)]
        if any(x.numel() > MAX_ELEMENTS or x.layout != torch.strided or x.is_quantized for x in tensors):
            return False
        dtype = tensors[0].dtype if tensors else None
        key = self.key(name, args, kwargs)
        if self.count[name, dtype] >= CALLS or key in self.seen:
            return False
        self.seen.add(key)
        self.count[name, dtype] += 1
        return True

    def add(self, name, args, kwargs, result):
        self.by_row[name].append(Call(name, args, kwargs, result))


def record_whole(calls, f, args, kwargs):
    try:
        with torch.no_grad():
            result = f(*args, **kwargs)
    except (RuntimeError, TypeError, IndexError, ValueError):
        return  # another overload's arguments
    if calls.wants(f, args, kwargs):
        calls.add(overload_name(f), args, kwargs, result)


def backward(result, inputs):
    """Runs the backward operators of what has just been computed."""
    outputs = [x for x in tree_flatten(result)[0] if isinstance(x, torch.Tensor) and x.requires_grad and x.dtype.is_floating_point]
    leaves = [x for x in tree_flatten(inputs)[0] if isinstance(x, torch.Tensor) and x.requires_grad]
    if outputs and leaves:
        torch.autograd.grad(outputs, leaves, [torch.randn_like(x) for x in outputs], allow_unused=True)


def extra_calls():
    """Calls of rows that the database does not reach."""
    a = torch.ops.aten
    x, y = torch.randn(3, 4), torch.rand(3, 4) + 0.5
    i, j = torch.randint(0, 50, (3, 4)), torch.randint(0, 5, (3, 4))
    for op in ("bitwise_and", "bitwise_or", "bitwise_xor", "__and__", "__or__", "__xor__", "__lshift__", "__rshift__"):
        packet = getattr(a, op)
        if "shift" in op or not op.startswith("__"):
            yield lambda p=packet: p.Scalar(i, 3)
            if op.startswith("__"):
                yield lambda p=packet: p.Tensor(i, j)
        if not op.startswith("__"):
            yield lambda p=packet: p.Scalar_Tensor(21, i)
    for op in ("bitwise_left_shift", "bitwise_right_shift"):
        packet = getattr(a, op)
        yield lambda p=packet: p.Tensor_Scalar(i, 2)
        yield lambda p=packet: p.Scalar_Tensor(40, j)
    yield lambda: a.arange.start(2, 9, dtype=torch.int64)
    yield lambda: a.arange.start(0.5, 4, dtype=torch.float32)
    yield lambda: a.bucketize.Scalar(1.5, torch.tensor([0.0, 1.0, 2.0]))
    yield lambda: a.searchsorted.Scalar(torch.tensor([0.0, 1.0, 2.0]), 1.0, right=True)
    yield lambda: a.clamp_max(x, 0.5)
    yield lambda: a.copysign.Scalar(x, -1.0)
    yield lambda: a.div.Scalar_mode(x, 0.3, rounding_mode="floor")
    yield lambda: a.div.Scalar_mode(i, 7, rounding_mode="trunc")
    yield lambda: a.fill.Tensor(x, torch.tensor(2.5))
    yield lambda: a.fmod.Scalar(x, 0.4)
    yield lambda: a.gt.Scalar(x, 0.1)
    yield lambda: a.isin.Scalar_Tensor(3, j)
    yield lambda: a.isin.Tensor_Scalar(j, 3)
    yield lambda: a.norm.Scalar(x, 3)
    yield lambda: a.norm.ScalarOpt_dim_dtype(x, 2, [1], True, dtype=torch.float64)
    yield lambda: a.norm.ScalarOpt_dtype(x, 1, dtype=torch.float64)
    yield lambda: a.pow.Scalar(2.5, x)
    yield lambda: a.remainder.Scalar_Tensor(7, y)
    yield lambda: a.scatter.value(x, 1, j[:, :2] % 4, 9.0)
    yield lambda: a.scatter.value_reduce(x, 1, j[:, :2] % 4, 2.0, reduce="multiply")
    yield lambda: a.select_copy.int(x, 1, -2)
    yield lambda: a.slice_copy.Tensor(x, 1, 1, 4, 2)
    yield lambda: a.squeeze_copy.dims(x[:, :1], [1])
    yield lambda: a.special_xlog1py.other_scalar(x, 0.5)
    yield lambda: a.special_xlog1py.self_scalar(2.0, y)
    yield lambda: a.xlogy.Scalar_Other(x, 0.5)
    yield lambda: a.xlogy.Scalar_Self(2.0, y)
    yield lambda: a.zero(x)
    yield lambda: a.copy(x, i)
    n, w, b = torch.randn(2, 3, 4), torch.rand(3) + 0.5, torch.randn(3)
    yield lambda: a._native_batch_norm_legit.no_stats(n, w, b, True, 0.1, 1e-5)
    yield lambda: a._native_batch_norm_legit_no_training(n, w, b, b, w, 0.1, 1e-5)
    yield lambda: a._native_batch_norm_legit_functional(n, w, b, b, w, True, 0.1, 1e-5)
    yield lambda: a.view.dtype(x, torch.int32)
    yield lambda: a.view.dtype(x, torch.int16)
    yield lambda: a.embedding_dense_backward(torch.randn(3, 4, 5), j, 5, 0, False)
    yield lambda: a.embedding_dense_backward(torch.randn(3, 4, 5), j, 5, 1, True)
    yield lambda: a._unsafe_index.Tensor(x, [j[:, 0] % 3, None])
    yield lambda: a._unsafe_index_put(x, [torch.tensor([0, 2])], torch.ones(2, 4))
    yield lambda: a._reshape_alias(x, [4, 3], [3, 1])
    yield lambda: a.slice_scatter(x, y[:, :2], 1, 0, 4, 2)
    yield lambda: a.lift_fresh_copy(x)
    yield lambda: a.all.dims(x > 0, [0, 1])
    yield lambda: a.any.dims(x > 0, [1], True)
    yield lambda: a.count_nonzero.dim_IntList(j, [0, 1])
    yield lambda: a.lerp.Tensor(x, y, torch.rand(3, 4))
    yield lambda: a.squeeze_copy.dim(x[:, :1], 1)
    lists = [torch.randn(3, 4), torch.randn(5), torch.tensor(0.5)]
    others = [torch.rand_like(v) + 0.5 for v in lists]
    for op in ("add", "sub", "mul", "div", "clamp_min", "clamp_max", "maximum", "minimum", "pow"):
        packet = getattr(a, f"_foreach_{op}")
        for overload, other in (("Scalar", 2.5), ("List", others), ("ScalarList", [0.5, 1, 2])):
            if getattr(packet, overload, None) and (op, overload) != ("pow", "ScalarList"):
                yield lambda f=getattr(packet, overload), other=other: f(others if f.__name__.startswith("_foreach_pow") else lists, other)
    for op in ("add", "mul", "div"):
        yield lambda f=getattr(a, f"_foreach_{op}"): f.Tensor(lists, torch.tensor(1.5))
    for op in ("addcmul", "addcdiv"):
        packet = getattr(a, f"_foreach_{op}")
        yield lambda f=packet: f.Scalar(lists, others, others, 0.5)
        yield lambda f=packet: f.ScalarList(lists, others, others, [0.5, 1.0, 2.0])
    yield lambda: a._foreach_lerp.List(lists, others, others)
    yield lambda: a._foreach_lerp.Scalar(lists, others, 0.25)
    yield lambda: a._foreach_lerp.ScalarList(lists, others, [0.25, 0.5, 1.0])
    for op in ("abs", "acos", "asin", "atan", "ceil", "cos", "cosh", "erf", "erfc", "exp", "expm1", "floor", "frac", "lgamma", "log", "log10", "log1p",
               "log2", "neg", "reciprocal", "round", "rsqrt", "sigmoid", "sign", "sin", "sinh", "sqrt", "tan", "tanh", "trunc", "max", "zero"):  # fmt: skip
        yield lambda f=getattr(a, f"_foreach_{op}"): f([v * 0.6 for v in others])
    yield lambda: a._foreach_norm.Scalar(lists, 2)
    yield lambda: a._foreach_mm([torch.randn(2, 3)], [torch.randn(3, 4)])
    yield lambda: a._foreach_copy(lists, others)
    steps = [torch.tensor(3.0) for _ in lists]
    numbers = dict(lr=0.1, beta1=0.9, beta2=0.99, weight_decay=0.1, eps=1e-6, amsgrad=True, maximize=False)
    rates = {**numbers, "lr": torch.tensor(0.1)}
    scaled = dict(grad_scale=torch.tensor(4.0), found_inf=torch.tensor(0.0))
    for op in ("_fused_adam", "_fused_adamw"):
        packet = getattr(a, op)
        yield lambda f=packet: f.default(lists, others, lists, others, others, steps, **numbers)
        yield lambda f=packet: f.tensor_lr(lists, others, lists, others, others, steps, **rates, **scaled)
    numbers = dict(weight_decay=0.1, momentum=0.9, lr=0.1, dampening=0.2, nesterov=True, maximize=True, is_first_step=False)
    yield lambda k=numbers: a._fused_sgd.default(lists, others, others, **k)
    yield lambda k={**numbers, "lr": torch.tensor(0.1)}: a._fused_sgd.tensor_lr(lists, others, others, **k)
    numbers = dict(lr=0.1, lr_decay=0.1, weight_decay=0.1, eps=1e-6, maximize=False)
    yield lambda k=numbers: a._fused_adagrad.default(lists, others, others, steps, **k)
    yield lambda k={**numbers, "lr": torch.tensor(0.1)}: a._fused_adagrad.tensor_lr(lists, others, others, steps, **k)
    yield lambda: a._amp_foreach_non_finite_check_and_unscale([x, y / 0], torch.zeros(1), torch.tensor([0.5]))
    yield lambda: a._amp_update_scale(torch.tensor([8.0]), torch.tensor([2], dtype=torch.int32), torch.zeros(1), 2.0, 0.5, 3)
    yield lambda: a._int_mm(torch.randint(-9, 9, (32, 16), dtype=torch.int8), torch.randint(-9, 9, (16, 8), dtype=torch.int8))
    yield lambda: a._ctc_loss(torch.randn(5, 2, 4).log_softmax(2), torch.tensor([[1, 1], [2, 3]]), [5, 3], [2, 1])
    degrees = ["chebyshev_polynomial_t", "chebyshev_polynomial_u", "chebyshev_polynomial_v", "chebyshev_polynomial_w", "hermite_polynomial_h"]
    degrees += ["hermite_polynomial_he", "laguerre_polynomial_l", "legendre_polynomial_p", *(f"shifted_{n}" for n in degrees[:4])]
    for op in degrees:
        packet = getattr(a, f"special_{op}")
        yield lambda p=packet: p.x_scalar(0.3, torch.arange(-1.0, 20.0))
        yield lambda p=packet: p.n_scalar(torch.linspace(-1.5, 1.5, 13), 9)
    yield lambda: a.special_zeta.self_scalar(2.5, y)
    yield lambda: a.special_zeta.other_scalar(y + 1, 0.5)
    yield lambda: a.embedding_renorm(x, torch.tensor([0, 2, 0]), 0.5, 2.0)
    yield lambda: a.native_channel_shuffle(torch.randn(2, 6, 3), 3)
    for op, rank, sizes in (("reflection_pad", 2, 4), ("reflection_pad", 3, 6), ("replication_pad", 3, 6)):
        image, pad = torch.randn([1, 2, *[4] * rank]), [1] * sizes
        padded = getattr(torch.ops.aten, f"{op}{rank}d")(image, pad)
        yield lambda f=getattr(a, f"{op}{rank}d"), x=image, p=pad: f(x, p)
        yield lambda f=getattr(a, f"{op}{rank}d_backward"), g=padded, x=image, p=pad: f(g, x, p)
    for op in ("upsample_nearest", "_upsample_nearest_exact"):
        for rank in (2, 3):
            image, size = torch.randn([1, 2, *[3] * rank]), [5] * rank
            yield lambda f=getattr(a, f"{op}{rank}d"), x=image, s=size: f(x, s)
            yield lambda f=getattr(a, f"{op}{rank}d_backward"), x=image, s=size: f(torch.randn([1, 2, *s]), s, list(x.shape))
    square = torch.randn(4, 4)
    factor = torch.linalg.cholesky(square @ square.T + torch.eye(4))
    yield lambda: a._cholesky_solve_helper(torch.randn(4, 2), factor, False)
    yield lambda: a._linalg_eigvals(square)
    image = torch.randn(1, 2, 6, 6)
    yield lambda: a._upsample_bicubic2d_aa(image, [4, 9], False)
    yield lambda: a._upsample_bicubic2d_aa_backward(torch.randn(1, 2, 4, 9), [4, 9], [1, 2, 6, 6], False)
    yield lambda: a.detach_copy(x)
    yield lambda: a.view_as_real_copy(torch.complex(x, y))
    yield lambda: a.view_as_complex_copy(torch.randn(3, 2))
    yield lambda: a._addmm_activation(torch.randn(5), x, torch.randn(4, 5), use_gelu=False)


def extra_whole():
    """Calls of rows that PyTorch takes apart: (overload, arguments)."""
    a = torch.ops.aten
    for op in ("__and__", "__or__", "__xor__"):
        i, j = torch.randint(0, 50, (3, 4)), torch.randint(0, 50, (3, 4))
        yield getattr(a, op).Scalar, (i, 3)
        yield getattr(a, op).Tensor, (i, j)
    x, c = torch.randn(3, 4), torch.complex(torch.randn(3), torch.randn(3))
    for dtype in (torch.float32, torch.bfloat16):
        v, grad, g = torch.randn(3, 4, 5).to(dtype), torch.randn(3, 4, 5).to(dtype), torch.randn(3, 1, 1).to(dtype)
        yield a._weight_norm_interface.default, (v, g)
        yield a._weight_norm_interface_backward.default, (grad, v, g, v.float().flatten(1).norm(dim=1).view(3, 1, 1), 0)
    yield from [
        (a.chunk.default, (x, 3, 1)), (a.contiguous.default, (x,)), (a.expand_as.default, (x[:, :1], x)), (a.flatten.using_ints, (x,)),
        (a.float_power.Scalar, (2, x)), (a.float_power.Tensor_Scalar, (x.abs(), 0.5)), (a.floor_divide.Scalar, (x, 0.3)),
        (a.imag.default, (c,)), (a.real.default, (c,)), (a.mT.default, (x,)), (a.movedim.int, (x, 0, 1)), (a.movedim.intlist, (x, [0, 1], [1, 0])),
        (a.narrow.default, (x, 1, 1, 2)), (a.reshape.default, (x, [2, -1])), (a.resolve_conj.default, (x,)), (a.resolve_neg.default, (x,)),
        (a.swapaxes.default, (x, 0, 1)), (a.type_as.default, (x, torch.ones(1, dtype=torch.int64))), (a.unflatten.int, (x, 1, [2, 2])),
        (a.split.sizes, (x, [1, 3], 1)), (a.view_as.default, (x, torch.zeros(2, 6))), (a.where.Scalar, (x > 0, 1.0, 2.0)), (a.where.ScalarOther, (x > 0, x, 2.0)),
        (a.where.ScalarSelf, (x > 0, 1.0, x)), (a._fused_rms_norm.default, (x, [4], torch.randn(4), 1e-5)),
        (a.linear.default, (x, torch.randn(5, 4), torch.randn(5))),
    ]  # fmt: skip


@functools.cache
def record(dtypes: tuple[torch.dtype, ...] = DTYPES, progress=None) -> Calls:
    """The calls of the database's samples in these dtypes. progress(done, all): called before each of its operators."""
    from torch.testing._internal.common_methods_invocations import op_db

    calls = Calls()
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for extra in extra_calls():
            with Recorder(calls), torch.no_grad():
                extra()
        for f, args in extra_whole():
            record_whole(calls, f, args, {})
        for number, op in enumerate(op_db):
            if progress:
                progress(number, len(op_db))
            packet = getattr(torch.ops.aten, (op.aten_name or op.name).split(".")[-1], None)
            whole = [getattr(packet, o) for o in packet.overloads()] if packet else []
            whole = [f for f in whole if calls.rows.get(overload_name(f), {}).get("composite")]
            for dtype in dtypes:
                if not op.supports_dtype(dtype, "cpu"):
                    continue
                grad = dtype.is_floating_point and op.supports_autograd
                try:
                    samples = op.sample_inputs("cpu", dtype, requires_grad=grad)
                    idle = 0
                    for sample in samples:
                        before = len(calls.seen)
                        args, kwargs = (sample.input, *sample.args), sample.kwargs
                        with Recorder(calls):
                            result = op(*args, **kwargs)
                            if grad:
                                backward(result, (args, kwargs))
                        for f in whole:  # PyTorch takes these apart before a dispatch mode sees them
                            record_whole(calls, f, args, kwargs)
                        idle = idle + 1 if len(calls.seen) == before else 0
                        if idle == 3:
                            break  # nothing new from this operator
                except Exception:
                    continue  # an entry for another device, or a sample that is meant to fail
    return calls
