"""The Dynamo backend ``neuron``."""

from __future__ import annotations

import contextlib
import copy
import functools
import itertools
import os
import time
import warnings
from typing import Any
from collections.abc import Callable

import torch
from torch._dynamo.backends.common import aot_autograd
from torch._functorch.aot_autograd import make_boxed_func
from torch._higher_order_ops.out_dtype import out_dtype, out_dtype_fallback
from torch._prims import rng_prims
from torch._subclasses.fake_tensor import FakeTensorMode

from .. import _C
from ..nki import DECOMPOSITIONS as OWN_OPERATORS
from .flex import expand
from .importer import Importer, Program, Unsupported, row_name
from .metrics import NeuronCompilationMetrics, get_model_name, record

_KNOWN_OPTIONS = {"model_name", "fallback_execution"}
_graph_ids = itertools.count()


def _out_dtype(op: torch._ops.OpOverload, dtype: torch.dtype, *args):
    """An operator whose result has another dtype than its operands: PyTorch's own reading, in which a product of int8 matrices is `_int_mm` on devices it names."""
    if op is torch.ops.aten.mm.default and dtype == torch.int32 and all(a.dtype == torch.int8 for a in args):
        return torch.ops.aten._int_mm(*args)
    return out_dtype_fallback(op, dtype, *args)


@functools.cache
def decompositions() -> dict[Any, Callable]:
    """PyTorch's core decompositions, without the operators that have a row: composites stay whole."""
    table = torch._decomp.core_aten_decompositions()
    extra = torch._decomp.get_decompositions([torch.ops.aten.addr, torch.ops.aten.embedding_dense_backward])
    both = {**dict(table.items()), **extra, out_dtype: _out_dtype}
    return {op: fn for op, fn in both.items() if not (isinstance(op, torch._ops.OpOverload) and op.namespace == "aten" and _C.has_row(row_name(op)))}


def _executor(program: Program) -> Callable[[list[Any]], list[Any]]:
    """The function that AOTAutograd calls at run time, with a list of arguments that it may empty."""
    run, tensor_args, constants, moved = program.plan.run, program.tensor_args, program.constants, program.moved
    symbols, random, results, to_cpu, device = program.symbols, program.random, program.results, program.to_cpu, program.device
    on_device = program.reads_device
    plain = all(kind == "new" for kind, _ in results) and [p for _, p in results] == list(range(len(results))) and not to_cpu

    def call(args: list[Any]) -> list[Any]:
        tensors = [args[i] for i in tensor_args]
        values: tuple[int, ...] = ()
        if symbols:
            values = tuple(int(args[i]) if d < 0 else args[i].shape[d] for i, d in symbols)
        if constants:
            tensors += constants
        for i in moved:
            tensors[i] = tensors[i].to(device).contiguous()
        drawn: list[tuple[int, int]] = []
        if random:
            generator = torch.neuron.default_generators[device.index or 0]
            for draw in random:
                drawn.append(_draw(generator, draw.count(values)) if draw.state is None else _pair(args[draw.state]))
                tensors += drawn[-1]
        if on_device:
            new = run(tensors, values)
        else:
            with torch.neuron.device(device):
                new = run(tensors, values)
        if plain:
            return new
        for place in to_cpu:
            new[place] = new[place].cpu()
        out: list[Any] = []
        for kind, what in results:
            if kind == "new":
                out.append(new[what])
            elif kind == "view":
                place, *numbers = what
                sizes, strides, (offset,) = ([n(values) if callable(n) else n for n in part] for part in numbers)
                out.append(new[place].as_strided(sizes, strides, offset))
            elif kind == "state":
                out.append(torch.tensor(drawn[what], dtype=torch.int64).view(torch.uint8))
            else:
                out.append(args[what] if kind == "arg" else what(values) if kind == "size" else what)
        return out

    call._boxed_call = True  # type: ignore[attr-defined]
    return call


def _draw(generator: torch.Generator, count: int) -> tuple[int, int]:
    """The seed and offset for `count` numbers; the offset moves on as eager calls move it: by whole groups of four words."""
    state = generator.get_state()
    seed, offset = _pair(state)
    state.view(torch.int64)[1] = offset + (count + 3) // 4 * 4
    generator.set_state(state)
    return seed, offset


def _pair(state: torch.Tensor) -> tuple[int, int]:
    """The seed and offset in a generator's state."""
    seed, offset = state.view(torch.int64).tolist()
    return seed, offset


def _eager(gm: torch.fx.GraphModule, why: str) -> Callable:
    """Runs the graph operator by operator on the device."""
    warnings.warn(
        f"backend 'neuron' runs a graph of {len(gm.graph.nodes)} nodes operator by operator: {why}. "
        "TORCH_NEURONX_DISABLE_FALLBACK_EXECUTION=1 makes this an error.",
        stacklevel=2,
    )
    from torch._dynamo.utils import counters

    counters["neuron"]["eager_graphs"] += 1
    for node in gm.graph.find_nodes(op="call_function", target=torch.ops.aten.view.default):
        node.target = torch.ops.aten.reshape.default  # an operator's strides need not be those of its Meta kernel, which the view was traced for
    gm.recompile()
    return make_boxed_func(gm.forward)


class _Sizes(torch.fx.Interpreter):
    """Writes into the nodes of a graph what is known about their values for given arguments."""

    def run_node(self, n: torch.fx.Node) -> Any:
        n.meta["val"] = result = super().run_node(n)
        return result


def _specialised(gm: torch.fx.GraphModule, build: Callable[[torch.fx.GraphModule], Callable], why: str, fallback: bool) -> Callable:
    """A graph with symbolic sizes that has no plan for all of them (convolutions have none): a plan for each, made when it is met."""
    from torch._dynamo.utils import counters

    kept: dict[tuple, Callable] = {}

    def plan(args: list[Any]) -> Callable:
        counters["neuron"]["specialised_graphs"] += 1
        static = torch.fx.GraphModule(gm, copy.deepcopy(gm.graph))
        with FakeTensorMode() as mode:
            try:
                _Sizes(static).run(*[mode.from_tensor(a) if isinstance(a, torch.Tensor) else a for a in args])
                return build(static)
            except Exception as e:  # not covered, or fake tensors refuse it in one of their many ways
                if not fallback:
                    raise
                return _eager(gm, f"{why}; {e}".split("\n")[0])

    def call(args: list[Any]) -> list[Any]:
        key = tuple((a.shape, a.stride()) if isinstance(a, torch.Tensor) else a for a in args)
        if key not in kept:
            if len(kept) == 64:
                del kept[next(iter(kept))]
            kept[key] = plan(args)
        return kept[key](args)

    call._boxed_call = True  # type: ignore[attr-defined]
    return call


def _is_symbolic(gm: torch.fx.GraphModule) -> bool:
    values = [node.meta.get("val") for node in gm.graph.find_nodes(op="placeholder")]
    return any(isinstance(s, torch.SymInt) for v in values for s in (v.shape if isinstance(v, torch.Tensor) else (v,)))


def _compile(gm: torch.fx.GraphModule, example_inputs: Any, *, kind: str, model_name: str | None, fallback: bool) -> Callable:
    model = model_name or get_model_name()
    gm = expand(gm, decompositions())

    def build(gm: torch.fx.GraphModule) -> Callable:
        graph_id = next(_graph_ids)
        name = f"{model}_{graph_id}_{kind}"
        begin = time.perf_counter_ns()
        program = Importer(name).run(gm)
        total = time.perf_counter_ns() - begin
        record(
            NeuronCompilationMetrics(
                graph_id=graph_id,
                graph_name=name,
                model_name=model,
                has_collectives=False,
                graph_node_count=program.n_nodes,
                torch_neuronx_lower_us=(total - program.plan.compile_ns) / 1e3,
                torch_neuronx_compile_us=program.plan.compile_ns / 1e3,
                dynamic=bool(program.symbols),
            )
        )
        return _executor(program)

    try:
        return build(gm)
    except (Unsupported, NotImplementedError) as e:
        why = str(e).split("\n")[0]
        if _is_symbolic(gm):
            return _specialised(gm, build, why, fallback)
        if not fallback:
            raise
        return _eager(gm, why)


def _uses_neuron(gm: torch.fx.GraphModule, example_inputs: Any) -> bool:
    tensors = [x for x in example_inputs if isinstance(x, torch.Tensor)]
    return any(t.device.type == "neuron" for t in tensors) or any(
        p.device.type == "neuron" for p in itertools.chain(gm.parameters(), gm.buffers())
    ) or not tensors


def create_neuron_backend(model_name: str | None = None, fallback_execution: bool | None = None) -> Callable:
    """A backend function for ``torch.compile(..., backend=fn)`` with these options.

    Args:
        model_name: the name in :func:`get_dynamo_metrics`; by default that of :func:`set_model_name`.
        fallback_execution: whether a graph with something libtnx does not cover runs operator by operator, with a warning (True), or raises
            ``NotImplementedError`` (False). Default: True, unless ``TORCH_NEURONX_DISABLE_FALLBACK_EXECUTION=1``.
    """
    fallback = fallback_execution
    if fallback is None:
        fallback = os.environ.get("TORCH_NEURONX_DISABLE_FALLBACK_EXECUTION", "0") in ("", "0")

    def compiler(kind: str) -> Callable:
        return functools.partial(_compile, kind=kind, model_name=model_name, fallback=fallback)

    def backend(gm: torch.fx.GraphModule, example_inputs: Any) -> Callable:
        if not _uses_neuron(gm, example_inputs):
            return gm.forward
        return aot_autograd(
            fw_compiler=compiler("forward"),
            bw_compiler=compiler("backward"),
            inference_compiler=compiler("inference"),
            decompositions={**decompositions(), **OWN_OPERATORS},
            keep_inference_input_mutations=True,
        )(gm, example_inputs)

    return backend


def neuron_backend(gm: torch.fx.GraphModule, example_inputs: Any, *, mode: str | None = None, options: dict[str, Any] | None = None) -> Callable:
    """The entry point ``neuron``. ``mode`` other than ``"default"`` is ignored with a warning; unknown options raise ``ValueError``."""
    if mode not in (None, "default"):
        warnings.warn(f"backend 'neuron' has one mode; mode={mode!r} is ignored", stacklevel=2)
    unknown = set(options or ()) - _KNOWN_OPTIONS
    if unknown:
        raise ValueError(f"backend 'neuron' has no option {', '.join(sorted(unknown))}; it knows {', '.join(sorted(_KNOWN_OPTIONS))}")
    return create_neuron_backend(**(options or {}))(gm, example_inputs)


@contextlib.contextmanager
def _automatic_dynamic():
    """Dynamo's own "automatic dynamic shapes", also where the caller asked for ``dynamic=False``.

    See docs/decisions/dynamic-by-default.md. TORCH_NEURONX_AUTOMATIC_DYNAMIC=0 turns it off.
    """
    if os.environ.get("TORCH_NEURONX_AUTOMATIC_DYNAMIC", "1") == "0":
        yield
        return
    with torch._dynamo.config.patch(automatic_dynamic_shapes=True):
        yield


def _register_saved_states() -> None:
    """PyTorch's wrappers of random operators in checkpointed regions know the generators of a fixed list of devices. This adds ``neuron`` for graphs that
    run operator by operator; compiled graphs need no wrapper."""
    key = torch._C.DispatchKey.BackendSelect

    def save(op, *args, **kwargs):
        return torch.neuron.get_rng_state(), op(*args, **kwargs)

    def use(state, op, *args, **kwargs):
        with torch.random.fork_rng(devices=[torch.neuron.current_device()], device_type="neuron"):
            torch.neuron.set_rng_state(state)
            return op(*args, **kwargs)

    def extend(operator, ours, skip):
        plain = operator.py_kernels[key]

        @functools.wraps(plain)
        def kernel(*args, **kwargs):
            return (ours if rng_prims.get_device(args[skip:], kwargs) == "neuron" else plain)(*args, **kwargs)

        operator.py_kernels[key] = kernel
        operator._dispatch_cache.clear()

    extend(rng_prims.run_and_save_rng_state, save, 1)
    extend(rng_prims.run_with_rng_state, use, 2)


_register_saved_states()
neuron_backend.backend_ctx_ctor = _automatic_dynamic  # type: ignore[attr-defined]


def _forward_backend_context() -> None:
    """Dynamo reads ``backend_ctx_ctor`` from the backend it is given, but ``torch.compile`` puts a backend into an object of its own first, which does not have the
    attribute. This gives it the attribute where the backend has one; other backends are untouched."""
    wrapper = torch._TorchCompileWrapper
    plain_init = wrapper.__init__
    if getattr(plain_init, "_forwards_backend_context", False):
        return

    @functools.wraps(plain_init)
    def init(self, *args, **kwargs):
        plain_init(self, *args, **kwargs)
        context = getattr(self.compiler_fn, "backend_ctx_ctor", None)
        if context is not None:
            self.backend_ctx_ctor = context

    init._forwards_backend_context = True  # type: ignore[attr-defined]
    wrapper.__init__ = init


_forward_backend_context()
