"""``flex_attention`` in a graph: the operator and its backward are replaced by ATen operators before the graph is imported.

The operator carries the user's ``score_mod`` and ``mask_mod`` as graphs over scalars. PyTorch's own reading of them, four nested maps over batch, head, query and
key, turns them into graphs over index tensors that broadcast, which fuse like any other arithmetic.

Two forms come out. Where ``score_mod`` only scales the scores, adds something that does not depend on them, or sets them to minus infinity, the whole is one
fused attention with a mask: no matrix of scores is written, blocks that the mask leaves out are skipped, and a mask that does not depend on the batch or the head is
computed once for all. Any other ``score_mod`` (soft capping), gradients of captured tensors or of the log-sum-exp, and the largest scores need the matrix
of scores: it is written, in float32.
"""

from __future__ import annotations

import contextlib
import math
import operator
from dataclasses import dataclass
from typing import Any
from collections.abc import Callable

import torch
from torch._dynamo._trace_wrapped_higher_order_op import TransformGetItemToIndex
from torch._higher_order_ops.flex_attention import flex_attention, flex_attention_backward
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn.attention.flex_attention import _vmap_for_bhqkv

aten = torch.ops.aten
_LN2 = math.log(2)  # the operator's log-sum-exp and largest scores are in base 2


def expand(gm: torch.fx.GraphModule, decompositions: dict[Any, Callable]) -> torch.fx.GraphModule:
    """The graph without the two operators. It is changed in place."""
    found = False
    for target, trace in ((flex_attention, _forward), (flex_attention_backward, _backward)):
        for node in gm.graph.find_nodes(op="call_function", target=target):
            _replace(gm, node, trace, decompositions)
            found = True
    if found:
        for node in gm.graph.find_nodes(op="get_attr"):
            if not node.users:
                gm.graph.erase_node(node)
        gm.recompile()
    return gm


# -- what a score_mod and a mask_mod come to


def _number(a: Any) -> float | None:
    """The number that an argument is in every call: given as such, or a tensor made of one."""
    if isinstance(a, (bool, int, float)):
        return float(a)
    if isinstance(a, torch.fx.Node) and a.op == "call_function":
        if a.target is aten.scalar_tensor.default:
            return _number(a.args[0])
        if a.target in (aten.full.default, aten.full_like.default, aten.new_full.default):
            return _number(a.args[-1])
        if a.target in (aten.new_ones.default, aten.ones.default, aten.ones_like.default):
            return 1.0
    return None


def _result(graph: torch.fx.Graph) -> Any:
    result = graph.output_node().args[0]
    return result[0] if isinstance(result, (list, tuple)) else result


def _factor(score_mod: torch.fx.GraphModule) -> float | None:
    """The number that the scores are multiplied by, if that, terms without them and minus infinities are all that `score_mod` does; else None."""
    score = score_mod.graph.find_nodes(op="placeholder")[0]
    dependent = {score}
    for n in score_mod.graph.nodes:
        if not dependent.isdisjoint(n.all_input_nodes):
            dependent.add(n)

    def walk(n: Any) -> float | None:
        if n is score:
            return 1.0
        if n not in dependent or n.op != "call_function":
            return None
        a = n.args
        if n.target in (aten.add.Tensor, aten.sub.Tensor) and n.kwargs.get("alpha", 1) == 1 and len(a) == 2:
            if a[1] not in dependent:
                return walk(a[0])
            f = None if a[0] in dependent else walk(a[1])
            return f if f is None or n.target is aten.add.Tensor else -f
        if n.target is aten.rsub.Scalar and n.kwargs.get("alpha", 1) == 1 and len(a) == 2:
            f = walk(a[0])
            return None if f is None else -f
        if n.target is aten.mul.Tensor:
            f, by = (walk(a[0]), _number(a[1])) if a[0] in dependent else (walk(a[1]), _number(a[0]))
            return None if f is None or by is None else f * by
        if n.target is aten.div.Tensor and _number(a[1]):
            f = walk(a[0])
            return None if f is None else f / _number(a[1])
        if n.target is aten.where.self and a[0] not in dependent:
            if _number(a[2]) == -math.inf:
                return walk(a[1])
            return walk(a[2]) if _number(a[1]) == -math.inf else None
        return None

    f = walk(_result(score_mod.graph))
    return f if f and math.isfinite(f) else None


def _is_identity(score_mod: torch.fx.GraphModule) -> bool:
    return _result(score_mod.graph) is score_mod.graph.find_nodes(op="placeholder")[0]


def _is_all_true(mask_mod: torch.fx.GraphModule) -> bool:
    n = _number(_result(mask_mod.graph))
    return n is not None and n != 0


def _is_causal(mask_mod: torch.fx.GraphModule) -> bool:
    n = _result(mask_mod.graph)
    _, _, q, k = mask_mod.graph.find_nodes(op="placeholder")[:4]
    return isinstance(n, torch.fx.Node) and ((n.target, *n.args) in ((aten.ge.Tensor, q, k), (aten.le.Tensor, k, q)))


# -- the two operators over tensors


@dataclass
class _Site:
    """The part of a call that does not change from trace to trace."""

    score_mod: torch.fx.GraphModule
    mask_mod: torch.fx.GraphModule
    scale: float
    joint: torch.fx.GraphModule | None = None  # of the backward: the gradients of the score and of captured tensors


@dataclass
class _Operands:
    q: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor
    score_buffers: tuple[Any, ...]
    mask_buffers: tuple[Any, ...]

    def indices(self) -> list[torch.Tensor]:
        sizes = (*self.q.shape[:3], self.k.shape[2])
        return [torch.arange(n, device=self.q.device) for n in sizes]

    def grouped(self, x: torch.Tensor) -> torch.Tensor:
        """[b, heads, l, n] as [b, kv heads, heads of a group times l, n]: the query heads of a group meet one key head in one product."""
        return x.reshape(x.shape[0], self.k.shape[1], -1, x.shape[3])

    def mask(self, site: _Site) -> torch.Tensor:
        mask_mod = _vmap_for_bhqkv(site.mask_mod, prefix=(), suffix=(None,) * len(self.mask_buffers))
        return mask_mod(*self.indices(), *self.mask_buffers)

    def modified(self, site: _Site, scores: torch.Tensor, prefix: Any = 0) -> torch.Tensor:
        score_mod = _vmap_for_bhqkv(site.score_mod, prefix=(prefix,), suffix=(None,) * len(self.score_buffers))
        return score_mod(scores, *self.indices(), *self.score_buffers)

    def wide(self) -> torch.dtype:
        return torch.float64 if self.q.dtype == torch.float64 else torch.float32

    def scores(self, site: _Site) -> torch.Tensor:
        q, k = self.grouped(self.q).to(self.wide()), self.k.to(self.wide())
        return (q @ k.transpose(-2, -1)).reshape(*self.q.shape[:3], -1) * site.scale

    def modified_scores(self, site: _Site, scores: torch.Tensor) -> torch.Tensor:
        scores = self.modified(site, scores).to(scores.dtype)
        if _is_all_true(site.mask_mod):
            return scores
        return torch.where(self.mask(site), scores, -math.inf)

    def as_mask(self, site: _Site) -> tuple[torch.Tensor | None, bool]:
        """What `score_mod` and `mask_mod` come to beside a factor: a mask, and whether it is causal instead."""
        bias = None
        if not _is_identity(site.score_mod):  # its value where the score is 0: the terms, and the minus infinities
            bias = self.modified(site, torch.zeros((), dtype=self.wide(), device=self.q.device), None).to(self.wide())
        if _is_all_true(site.mask_mod):
            return bias, False
        if _is_causal(site.mask_mod):
            return bias, True
        mask = self.mask(site)
        return (mask if bias is None else torch.where(mask, bias, -math.inf)), False


def _is_fused(site: _Site, o: _Operands) -> bool:
    return o.q.dtype == o.k.dtype == o.v.dtype and _factor(site.score_mod) is not None


def _attend(site: _Site, o: _Operands, max_scores: bool) -> tuple[torch.Tensor, ...]:
    results: list[torch.Tensor] = []
    if _is_fused(site, o):
        mask, causal = o.as_mask(site)
        scale = site.scale * _factor(site.score_mod)
        results += aten._scaled_dot_product_fused_attention_overrideable(o.q, o.k, o.v, mask, 0.0, causal, scale=scale)[:2]
    if not results or max_scores:
        scores = o.modified_scores(site, o.scores(site))
    if not results:
        lse = torch.logsumexp(scores, -1)
        p = torch.exp(scores - torch.where(lse == -math.inf, 0.0, lse).unsqueeze(-1))
        out = o.grouped(p.to(o.q.dtype)) @ o.v.to(o.q.dtype)
        results += [out.reshape(*o.q.shape[:3], -1), lse]
    out, lse = results
    results = [out, (lse / _LN2).to(torch.float32)]
    return (*results, (torch.amax(scores, -1) / _LN2).to(torch.float32)) if max_scores else tuple(results)


def _differentiate(site: _Site, o: _Operands, out: Any, lse: Any, dout: Any, dlse: Any, captured: list[int]) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """The gradients of query, key and value, and those of the captured tensors with these numbers."""
    if dout is None:
        dout = torch.zeros_like(out)
    lse = lse * _LN2
    if _is_fused(site, o) and dlse is None and not captured:
        mask, causal = o.as_mask(site)
        scale = site.scale * _factor(site.score_mod)
        return list(
            aten._scaled_dot_product_fused_attention_overrideable_backward(
                dout, o.q, o.k, o.v, mask, [True, True, True, False], out, lse, None, None, 0, 0, 0.0, causal, None, None, scale=scale
            )[:3]
        ), []
    wide = o.wide()
    scores = o.scores(site)
    masked = (lse == -math.inf).unsqueeze(-1)
    p = torch.exp(o.modified_scores(site, scores) - torch.where(masked, 0.0, lse.to(wide).unsqueeze(-1)))
    # Softmax's derivative; that of the log-sum-exp is p.
    rest = (out.to(wide) * dout.to(wide)).sum(-1, keepdim=True)
    if dlse is not None:
        rest = rest - (dlse.to(wide) / _LN2).unsqueeze(-1)
    dp = (o.grouped(dout).to(wide) @ o.v.to(wide).transpose(-2, -1)).reshape(scores.shape)
    n = len(o.score_buffers)
    joint = _vmap_for_bhqkv(site.joint, prefix=(0,), suffix=(0,) + (None,) * n, out_dims=[0, None, None, None, None] + [None] * n)
    ds, _, _, _, _, *dcaptured = joint(scores, *o.indices(), p * (dp - rest), *o.score_buffers)
    ds = ds * site.scale
    if not _is_all_true(site.mask_mod):
        ds = torch.where(o.mask(site), ds, 0.0)
    ds = o.grouped(ds.to(o.q.dtype))
    dq = (ds @ o.k.to(o.q.dtype)).reshape(o.q.shape)
    dk = ds.transpose(-2, -1) @ o.grouped(o.q)
    dv = o.grouped(p.to(o.q.dtype)).transpose(-2, -1) @ o.grouped(dout)
    return [dq, dk.to(o.k.dtype), dv.to(o.v.dtype)], [dcaptured[i] for i in captured]


def _broadcast(q: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """A key or value of one batch, for queries of many."""
    return x if x.shape[0] == q.shape[0] else x.expand(q.shape[0], *x.shape[1:])


# -- from nodes to graphs and back


def _zeros_and_scatter(shape: Any, indices: Any, values: torch.Tensor) -> torch.Tensor:
    """The derivative of an index in `score_mod`. The operator exists for its reading under the maps; below them it is this."""
    return torch.zeros(shape, dtype=values.dtype, device=values.device).index_put(indices, values, accumulate=True)


def _used(node: torch.fx.Node) -> dict[int, torch.fx.Node]:
    """The results of a node that are used, by number. (Results that stand twice are made one.)"""
    used: dict[int, torch.fx.Node] = {}
    for user in list(node.users):
        if user.target is not operator.getitem:
            raise NotImplementedError(f"{user.format_node()} takes the results of {node.target} together")
        first = used.setdefault(user.args[1], user)
        if first is not user:
            user.replace_all_uses_with(first)
        if not user.users:
            user.graph.erase_node(user)
            if first is user:
                del used[user.args[1]]
    return used


def _submodule(gm: torch.fx.GraphModule, node: torch.fx.Node | None) -> Any:
    return None if node is None else gm.get_submodule(node.target)


def _forward(gm: torch.fx.GraphModule, node: torch.fx.Node) -> tuple[Callable, tuple[Any, ...], list[torch.fx.Node]]:
    """The function to trace, its arguments, and the nodes that its results stand for."""
    q, k, v, score_mod, block_mask, scale, _, score_buffers, mask_buffers = node.args
    used = _used(node)
    site = _Site(_submodule(gm, score_mod), _submodule(gm, block_mask[-1]), scale)

    def trace(q, k, v, score_buffers, mask_buffers):
        o = _Operands(q, _broadcast(q, k), _broadcast(q, v), tuple(score_buffers), tuple(mask_buffers))
        results = _attend(site, o, 2 in used)
        return [results[i] for i in used]

    return trace, (q, k, v, score_buffers, mask_buffers), list(used.values())


def _backward(gm: torch.fx.GraphModule, node: torch.fx.Node) -> tuple[Callable, tuple[Any, ...], list[torch.fx.Node]]:
    q, k, v, out, lse, dout, dlse, score_mod, joint, block_mask, scale, _, score_buffers, mask_buffers = node.args
    used = _used(node)
    captured = _used(used.pop(3)) if 3 in used else {}
    site = _Site(_submodule(gm, score_mod), _submodule(gm, block_mask[-1]), scale, _submodule(gm, joint))

    def trace(q, k, v, out, lse, dout, dlse, score_buffers, mask_buffers):
        o = _Operands(q, _broadcast(q, k), _broadcast(q, v), tuple(score_buffers), tuple(mask_buffers))
        gradients, dcaptured = _differentiate(site, o, out, lse, dout, dlse, list(captured))
        for i, x in ((1, k), (2, v)):
            if x.shape[0] != q.shape[0]:
                gradients[i] = gradients[i].sum(0, keepdim=True)
        return [gradients[i] for i in used] + dcaptured

    return trace, (q, k, v, out, lse, dout, dlse, score_buffers, mask_buffers), [*used.values(), *captured.values()]


def _replace(gm: torch.fx.GraphModule, node: torch.fx.Node, describe: Callable, decompositions: dict[Any, Callable]) -> None:
    trace, args, results = describe(gm, node)
    sources: list[torch.fx.Node] = []
    torch.fx.map_arg(args, sources.append)
    sources = list(dict.fromkeys(sources))

    def call(*values):
        at = dict(zip(sources, values))
        return trace(*torch.fx.map_arg(args, at.__getitem__))

    values = [n.meta["val"] for n in sources]
    mode = next(v.fake_mode for v in values if isinstance(v, torch.Tensor))
    quiet = mode.shape_env.suppress_guards() if mode.shape_env is not None else contextlib.nullcontext()
    table = {**decompositions, torch.ops.flex_lib.zeros_and_scatter.default: _zeros_and_scatter}
    with mode, quiet, torch.no_grad(), TransformGetItemToIndex():
        traced = make_fx(call, decomposition_table=table)(*values)

    graph = gm.graph
    env: dict[torch.fx.Node, Any] = dict(zip(traced.graph.find_nodes(op="placeholder"), sources))
    with graph.inserting_before(node):
        for n in traced.graph.nodes:
            if n.op == "get_attr":
                name = f"{node.name}_{n.target}"
                setattr(gm, name, getattr(traced, n.target))
                env[n] = graph.get_attr(name)
                env[n].meta = dict(n.meta)
            elif n.op == "call_function":
                env[n] = graph.node_copy(n, env.__getitem__)
    for old, new in zip(results, traced.graph.output_node().args[0]):
        new = env[new]
        new.meta["val"] = old.meta["val"]  # with the strides that the rest of the graph was traced for
        old.replace_all_uses_with(new)
    _erase(graph, node)


def _erase(graph: torch.fx.Graph, node: torch.fx.Node) -> None:
    for user in list(node.users):
        _erase(graph, user)
    graph.erase_node(node)
