"""FX graph -> libtnx graph.

Walks a functional ATen graph (what AOTAutograd hands to a compiler) once and calls, for each node, the lowering of the operator's row in
libtnx's table: the same lowering that eager calls use. Sizes may be symbolic; nothing here depends on their values.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass, field
from typing import Any
from collections.abc import Callable

import sympy
import torch
from torch._prims.rng_prims import run_and_save_rng_state, run_with_rng_state
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils._sympy.functions import CleanDiv, FloorDiv, Max, Min, Mod, PythonMod

from .. import _C

aten = torch.ops.aten


class Unsupported(NotImplementedError):
    """The graph has something libtnx does not cover; the text names it."""


@dataclass
class Draw:
    """Where a random node's seed and offset come from."""

    count: Callable[[tuple[int, ...]], int]  # numbers drawn, from the symbols' values
    state: int | None = None  # the argument that holds a saved state to use; None: the device's generator, which moves on


@dataclass
class SavedState:
    """A generator's state as a value of the graph: that before a draw (in the forward graph) or that in an argument (in the backward graph)."""

    place: int | None  # None: that of an operator that draws nothing


@dataclass
class Program:
    """An imported graph, ready to run on lists of arguments in the graph's order."""

    plan: Any
    graph_text: Callable[[str], str]
    tensor_args: list[int]  # the argument of each tensor input
    constants: list[torch.Tensor]  # inputs after those: constants of the graph
    moved: list[int]  # positions in the input list whose CPU tensor is copied to the device
    symbols: list[tuple[int, int]]  # (argument, dimension), dimension -1: the argument itself
    random: list[Draw]  # of each random node
    results: list[tuple[str, Any]]  # what each output is: ("new", place), ("view", (place, sizes, strides, offset)), ("arg", argument),
    # ("value", constant), ("size", function), ("state", draw)
    to_cpu: set[int]  # places of new outputs that PyTorch expects on the CPU
    device: torch.device
    reads_device: bool  # whether some input says which device it is
    n_nodes: int
    operators: set[str] = field(default_factory=set)


class Importer:
    """Builds one Program."""

    def __init__(self, name: str):
        self.builder = _C.GraphBuilder(name)
        self.env: dict[torch.fx.Node, Any] = {}
        self.dims: dict[sympy.Symbol, Any] = {}
        self.symbols: list[tuple[int, int]] = []
        self.sources: dict[sympy.Symbol, tuple[int, int]] = {}
        self.symbol_order: list[sympy.Symbol] = []
        self.random: list[Draw] = []
        self.inputs: list[int] = []
        self.constants: list[torch.Tensor] = []
        self.moved: list[int] = []
        self.input_of: dict[torch.fx.Node, int] = {}
        self.mutations: list[tuple[int, Any]] = []
        self.operators: set[str] = set()
        self.device: torch.device | None = None
        self.reads_device = False

    # -- sizes

    def size(self, value: Any) -> Any:
        """An int or SymInt as an int or a Dim of the graph."""
        if isinstance(value, torch.SymInt):
            return self.expression(value.node.expr)
        return int(value)

    def expression(self, e: sympy.Expr) -> Any:
        if e.is_Integer:
            return int(e)
        if e.is_Symbol:
            return self.symbol(e)
        pair = None
        if isinstance(e, (FloorDiv, CleanDiv)):
            pair = "floordiv"
        elif isinstance(e, (Mod, PythonMod)):
            pair = "mod"
        if pair:
            return self.builder.dim(pair, self.expression(e.args[0]), self.expression(e.args[1]))
        fold = {sympy.Add: "add", sympy.Mul: "mul", Max: "max", Min: "min", sympy.Max: "max", sympy.Min: "min"}.get(type(e))
        if fold:
            parts = [self.expression(a) for a in e.args]
            total = parts[0]
            for p in parts[1:]:
                total = self.builder.dim(fold, total, p)
            return total
        if isinstance(e, sympy.Pow) and e.args[1].is_Integer and int(e.args[1]) > 0:
            base = total = self.expression(e.args[0])
            for _ in range(int(e.args[1]) - 1):
                total = self.builder.dim("mul", total, base)
            return total
        raise Unsupported(f"the size {e}")

    def symbol(self, s: sympy.Symbol) -> Any:
        if s not in self.dims:
            if s not in self.sources:
                raise Unsupported(f"the size {s} comes from no input")
            self.dims[s] = self.builder.symbol(str(s))
            self.symbols.append(self.sources[s])
            self.symbol_order.append(s)
        return self.dims[s]

    # -- inputs

    def find_sources(self, placeholders: list[torch.fx.Node]) -> None:
        for i, node in enumerate(placeholders):
            v = node.meta.get("val")
            if isinstance(v, torch.SymInt) and v.node.expr.is_Symbol:
                self.sources[v.node.expr] = (i, -1)
        for i, node in enumerate(placeholders):
            v = node.meta.get("val")
            if isinstance(v, torch.Tensor):
                for d, s in enumerate(v.shape):
                    if isinstance(s, torch.SymInt) and s.node.expr.is_Symbol:
                        self.sources.setdefault(s.node.expr, (i, d))

    def find_device(self, nodes: list[torch.fx.Node]) -> None:
        """A plan runs on one device: that of all tensors of the graph."""
        for node in nodes:
            v = node.meta.get("val")
            for t in v if isinstance(v, (list, tuple)) else (v,):
                if not isinstance(t, torch.Tensor) or t.device.type != "neuron":
                    continue
                if self.device is not None and t.device != self.device:
                    raise Unsupported(f"tensors on {self.device} and {t.device}")
                self.device = t.device

    def tensor_input(self, v: torch.Tensor) -> Any:
        if v.layout != torch.strided or v.is_quantized or v.is_conj() or v.is_neg():
            raise Unsupported(f"an input of layout {v.layout}, or with a lazy conjugate or negative bit")
        host = v.device.type == "cpu" and v.dim() == 0
        if v.device.type == "cpu" and not host:
            self.moved.append(len(self.inputs) + len(self.constants))
            self.reads_device = True
            strides = contiguous_strides(v.shape)
        else:
            strides = v.stride()
            self.reads_device |= not host
        return self.builder.input(v.dtype, [self.size(s) for s in v.shape], [self.size(s) for s in strides], host)

    # -- nodes

    def value(self, a: Any) -> Any:
        """An argument of a node as the builder takes it."""
        if isinstance(a, torch.fx.Node):
            if a not in self.env:
                v = a.meta.get("val")
                if isinstance(v, (torch.SymInt, int)) and not isinstance(v, bool):
                    return self.size(v)
                raise Unsupported(f"the value of {a.format_node()}")
            return self.env[a]
        if isinstance(a, torch.SymInt):
            return self.size(a)
        if isinstance(a, (list, tuple)):
            return [self.value(x) for x in a]
        return a

    def call(self, node: torch.fx.Node) -> Any:
        target = node.target
        v = node.meta.get("val")
        if isinstance(v, (torch.SymInt, torch.SymBool, torch.SymFloat)) or (isinstance(v, int) and not isinstance(v, bool)):
            if isinstance(v, (torch.SymBool, torch.SymFloat)):
                raise Unsupported(f"{node.format_node()} gives a symbolic {type(v).__name__}")
            return self.size(v)
        if target is operator.getitem:
            return self.env[node.args[0]][node.args[1]]
        if target is run_and_save_rng_state:
            state = SavedState(len(self.random) if is_random(node.args[0]) else None)
            return [state, self.wrapped(node, node.args[0], node.args[1:], None)]
        if target is run_with_rng_state:
            return self.wrapped(node, node.args[1], node.args[2:], self.value(node.args[0]))
        return self.operator(target, node, node.args, v, None)

    def wrapped(self, node: torch.fx.Node, target: Any, args: tuple[Any, ...], state: Any) -> Any:
        """A random operator of a checkpointed region: the partitioner wraps it so that the backward graph draws the same numbers, and drops what is known
        about its results. (It wraps attention too; a row without seed and offset draws nothing.)"""
        modes = [m for n in node.graph.nodes if (m := getattr(n.meta.get("val"), "fake_mode", None)) is not None]
        if not modes:
            raise Unsupported(f"{node.target} in a graph without tensors")
        fake_args, fake_kwargs = torch.fx.map_arg((args, node.kwargs), lambda n: n.meta["val"])
        with modes[0]:
            v = target(*fake_args, **fake_kwargs)
        return self.operator(target, node, args, v, state)

    def operator(self, target: Any, node: torch.fx.Node, given: tuple[Any, ...], v: Any, state: Any) -> Any:
        if not isinstance(target, torch._ops.OpOverload) or target.namespace != "aten":
            raise Unsupported(f"the operator {target}")
        name = row_name(target)
        if name == "copy_":
            return self.mutate(node)
        if name in ("_assert_scalar", "_assert_async.msg", "_assert_tensor_metadata"):
            return None
        if not _C.has_row(name):
            raise Unsupported(f"the operator aten::{name}")
        self.operators.add(name)
        args = tuple(self.value(a) for a in given)
        kwargs = {k: self.value(a) for k, a in node.kwargs.items()}
        if name == "_to_copy" and not isinstance(given[0], torch.fx.Node):  # vmap's form of a number beside a tensor
            name, args, kwargs = "full", ([], given[0]), {"dtype": kwargs.get("dtype", v.dtype)}
        results = self.builder.call(name, args, kwargs, self.hidden(target, given, v, state))
        self.check(node, v, results)
        return nested(v, iter(results))

    def hidden(self, target: Any, given: tuple[Any, ...], v: Any, state: Any) -> list[Any] | None:
        """Arguments of lowerings that the operator itself does not have."""
        if is_random(target):
            return self.draw(v, state)
        if target in (torch.ops.aten._linalg_det.default, torch.ops.aten._linalg_slogdet.default):
            return [given[0].meta["val"].is_contiguous()]  # decides whose factors are given back: derivatives read them so
        return None

    def draw(self, v: Any, state: Any) -> list[Any]:
        """The hidden inputs of a random operator with the results `v`: its generator's seed and offset."""
        first = v if isinstance(v, torch.Tensor) else v[0]
        sizes = [s.node.expr if isinstance(s, torch.SymInt) else int(s) for s in first.shape]
        count = sympy.Integer(1)
        for s in sizes:
            count = count * s
        saved = state.place if isinstance(state, SavedState) else None
        number = self.evaluated(count)
        self.random.append(Draw(number if callable(number) else lambda values: number, saved))
        return [self.builder.input(torch.int64, [], [], True) for _ in range(2)]

    def mutate(self, node: torch.fx.Node) -> Any:
        target, source = node.args[0], node.args[1]
        if target not in self.input_of:
            raise Unsupported("copy_ into something that is not an input")
        self.mutations.append((self.input_of[target], self.value(source)))
        return self.env[source] if isinstance(source, torch.fx.Node) else None

    def check(self, node: torch.fx.Node, expected: Any, results: list[Any]) -> None:
        """What libtnx derived must be what PyTorch expects: a difference is a bug of a lowering, found here and not in the numbers."""
        expected = flat(expected)
        if len(expected) > len(results):
            raise Unsupported(f"{node.target} gives {len(results)} results, PyTorch {len(expected)}")
        for r, e in zip(results, expected):
            if r is None or not isinstance(e, torch.Tensor):
                continue
            dtype, sizes = self.builder.value_info(r)
            if dtype != e.dtype or len(sizes) != e.dim() or any(
                isinstance(s, int) and isinstance(w, int) and s != w for s, w in zip(sizes, e.shape)
            ):
                raise Unsupported(f"{node.target}: libtnx derives {dtype}{sizes}, PyTorch {e.dtype}{list(e.shape)}")

    # -- the graph

    def run(self, gm: torch.fx.GraphModule) -> Program:
        nodes = list(gm.graph.nodes)
        placeholders = [n for n in nodes if n.op == "placeholder"]
        self.find_sources(placeholders)
        self.find_device(nodes)
        for i, node in enumerate(placeholders):
            v = node.meta.get("val")
            if node.users and all(u.target is run_with_rng_state and u.args[0] is node for u in node.users):
                self.env[node] = SavedState(i)  # read by the host
            elif isinstance(v, torch.Tensor):
                self.env[node] = self.tensor_input(v)
                self.input_of[node] = len(self.inputs)
                self.inputs.append(i)
            elif isinstance(v, (torch.SymInt, int)):
                self.env[node] = self.size(v)
            elif v is not None:
                raise Unsupported(f"an input of type {type(v).__name__}")
        for node in nodes:
            if node.op == "get_attr":
                t = getattr(gm, node.target)
                if not isinstance(t, torch.Tensor):
                    raise Unsupported(f"the attribute {node.target}")
                self.env[node] = self.tensor_input(t)
                self.constants.append(t)
        output_args: Any = ()
        for node in nodes:
            if node.op == "call_function":
                self.env[node] = self.call(node)
            elif node.op == "output":
                output_args = node.args[0]
        results, to_cpu = self.outputs(output_args)
        builder = self.builder
        return Program(
            plan=builder.compile(),
            graph_text=builder.text,
            tensor_args=self.inputs,
            constants=self.constants,
            moved=self.moved,
            symbols=self.symbols,
            random=self.random,
            results=results,
            to_cpu=to_cpu,
            device=self.device or torch.device("neuron", torch.neuron.current_device()),
            reads_device=self.reads_device,
            n_nodes=len(nodes),
            operators=self.operators,
        )

    def outputs(self, output_args: Any) -> tuple[list[tuple[str, Any]], set[int]]:
        results: list[tuple[str, Any]] = []
        to_cpu: set[int] = set()
        places: dict[torch.fx.Node, int] = {}
        nodes = output_args if isinstance(output_args, (list, tuple)) else (output_args,)
        bases = self.shared_memory(nodes)
        for a in nodes:
            v = a.meta.get("val") if isinstance(a, torch.fx.Node) else a
            if isinstance(a, torch.fx.Node) and isinstance(self.env.get(a), SavedState):
                place = self.env[a].place
                results.append(("value", blank((16,), torch.uint8, "cpu")) if place is None else ("state", place))
            elif not isinstance(v, torch.Tensor):
                number = self.number(v) if isinstance(v, torch.SymInt) else v
                results.append(("size" if callable(number) else "value", number))
            elif a in self.input_of:
                results.append(("arg", self.inputs[self.input_of[a]]))
            else:
                base = bases.get(a, a)
                whole = base.meta["val"]
                if self.env[base] is None:  # the lowering leaves it out: nothing reads it, but AOTAutograd saves it for the backward graph
                    results.append(("value", blank(v.shape, v.dtype, v.device)))
                    continue
                if base not in places:
                    self.builder.output(self.env[base], None, [self.size(s) for s in whole.stride()])
                    if whole.device.type == "cpu":
                        to_cpu.add(len(places))
                    places[base] = len(places)
                if base is a:
                    results.append(("new", places[a]))
                else:
                    numbers = tuple(tuple(self.number(x) for x in part) for part in (v.shape, v.stride(), (v.storage_offset() - whole.storage_offset(),)))
                    results.append(("view", (places[base], *numbers)))
        for target, source in self.mutations:
            self.builder.output(source, target)
        return results, to_cpu

    def shared_memory(self, nodes: Any) -> dict[torch.fx.Node, torch.fx.Node]:
        """Outputs that PyTorch expects to be views of one memory, each with the node that is all of it: a later write to one shows in the others.
        (AOTAutograd takes care of views of inputs, and leaves results of the graph that share memory to the compiler.)"""
        groups: dict[int, list[torch.fx.Node]] = {}
        for a in dict.fromkeys(nodes):
            if isinstance(a, torch.fx.Node) and isinstance(a.meta.get("val"), torch.Tensor) and a not in self.input_of:
                groups.setdefault(memory_of(a), []).append(a)
        shared: dict[torch.fx.Node, torch.fx.Node] = {}
        for memory, group in groups.items():
            base = group[0]
            while len(group) > 1 and (source := source_of(base)) is not None and memory_of(source) == memory:
                base = source
            if len(group) < 2 or base in self.input_of:
                continue
            if any(a.meta["val"].dtype != base.meta["val"].dtype for a in group):
                raise Unsupported("results that share memory under different dtypes")
            shared.update(dict.fromkeys(group, base))
        return shared

    def number(self, v: Any) -> Any:
        """An int, or for a symbolic size the function that gives it from the symbols' values."""
        if not isinstance(v, torch.SymInt):
            return int(v)
        return self.evaluated(v.node.expr)

    def evaluated(self, e: sympy.Expr) -> Any:
        """The expression's value, or where it has symbols the function that gives it from theirs."""
        if e.is_Integer:
            return int(e)
        for s in e.free_symbols:
            self.symbol(s)
        order = self.symbol_order
        return lambda values: int(e.subs(dict(zip(order, values))))


def memory_of(node: torch.fx.Node) -> int:
    return node.meta["val"].untyped_storage()._cdata


def source_of(node: torch.fx.Node) -> torch.fx.Node | None:
    """The tensor that a view is a view of, for a node that may be one."""
    source = node.args[0] if node.op == "call_function" and node.args else None
    if node.target is operator.getitem and isinstance(source, torch.fx.Node):
        source = source.args[0] if source.args else None
    return source if isinstance(source, torch.fx.Node) and isinstance(source.meta.get("val"), torch.Tensor) else None


def blank(shape: Any, dtype: torch.dtype, device: Any) -> torch.Tensor:
    """What stands for a result that is saved and never read."""
    with _disable_current_modes():
        return torch.zeros([int(s) for s in shape], dtype=dtype, device=device)


def contiguous_strides(shape: Any) -> list[Any]:
    strides: list[Any] = []
    step: Any = 1
    for s in reversed(shape):
        strides.append(step)
        step = step * s
    return strides[::-1]


def flat(v: Any) -> list[Any]:
    return [y for x in v for y in flat(x)] if isinstance(v, (list, tuple)) else [v]


def nested(like: Any, results: Any) -> Any:
    """The flat results in the shape in which PyTorch gives them: one, several, or lists."""
    return [nested(x, results) for x in like] if isinstance(like, (list, tuple)) else next(results, None)


def is_random(target: Any) -> bool:
    return isinstance(target, torch._ops.OpOverload) and target.namespace == "aten" and row_name(target) in random_rows()


def row_name(target: torch._ops.OpOverload) -> str:
    """The overload as the operator table spells it: "add.Tensor", "relu"."""
    name = target._schema.name.removeprefix("aten::")
    return name if target._overloadname == "default" else f"{name}.{target._overloadname}"


_random_rows: set[str] | None = None


def random_rows() -> set[str]:
    """Overloads whose rows take a seed and an offset."""
    global _random_rows
    if _random_rows is None:
        _random_rows = {name for row in _C.rows() if row["random"] for name in (row["functional"], row["inplace"], row["out"]) if name}
    return _random_rows
