"""Rows of the operator table against XLA: recorded calls (row_calls.py) are lowered by the core, written as StableHLO, run by XLA's CPU client
and compared with PyTorch's CPU results. Many calls share one program, because XLA's compiler is slow.

Run as a program it prints the counts: ``python tests/test_stablehlo.py``.
"""

from __future__ import annotations

import functools

import pytest
import referee
import torch
from torch.utils._pytree import tree_flatten

if not referee.available():
    pytest.skip("the referee is not installed (requirements/test.txt)", allow_module_level=True)
_C = pytest.importorskip("torch_neuronx._C", reason="the native part is not built")
from row_calls import overload_name, record, skipped  # noqa: E402

BATCH = 24


def run_batch(calls):
    """Runs calls in one program. Returns (call, error or None) for each."""
    builder = _C.GraphBuilder("rows")
    inputs, plan = [], []
    for call in calls:
        results = call.build(builder, inputs)
        for r in results:
            if r is not None:
                builder.output(r, None, None)
        plan.append([r is not None for r in results])
    got = iter(referee.run(builder.text("stablehlo"), *[referee.to_numpy(x) for x in inputs]))
    outcome = []
    for call, defined in zip(calls, plan):
        values = [referee.to_torch(next(got)) if d else None for d in defined]
        try:
            call.check(values)
            outcome.append((call, None))
        except AssertionError as error:
            outcome.append((call, str(error)))
    return outcome


def run_all(calls):
    """Outcome of every call: (call, error or None); and the calls the core does not cover: (call, reason)."""
    ready, uncovered, outcome = [], [], []
    for call in calls:
        builder = _C.GraphBuilder("row")
        try:
            call.build(builder, [])
            builder.text("stablehlo")
            ready.append(call)
        except (NotImplementedError, TypeError) as error:
            uncovered.append((call, str(error).splitlines()[0]))
        except (RuntimeError, IndexError, ValueError) as error:
            outcome.append((call, f"lowering: {error}".splitlines()[0]))
    for start in range(0, len(ready), BATCH):
        batch = ready[start : start + BATCH]
        try:
            outcome += run_batch(batch)
        except Exception:  # one of them is refused by XLA: find it
            for call in batch:
                try:
                    outcome += run_batch([call])
                except Exception as error:
                    outcome.append((call, f"XLA: {error}"))
    return outcome, uncovered


@functools.cache  # test_nrt_host.py has the same calls run by another runner
def recorded_calls():
    return record()


@pytest.fixture(scope="module")
def recorded():
    return recorded_calls()


def groups(calls):
    names = sorted(calls.by_row)
    return [names[i::4] for i in range(4)]


@pytest.mark.timeout(900)
@pytest.mark.parametrize("part", range(4))
def test_rows(recorded, part):
    calls = [c for name in groups(recorded)[part] for c in recorded.by_row[name]]
    assert calls
    outcome, _ = run_all(calls)
    wrong = [f"{c.label}: {e}" for c, e in outcome if e]
    assert not wrong, f"{len(wrong)} of {len(outcome)} calls disagree:\n" + "\n".join(wrong)


def test_share(recorded):
    """Of the rows that samples reach, nine of ten have a StableHLO form for all samples; test_rows says that each of those forms is right."""
    without = set()
    for name, calls in recorded.by_row.items():
        for call in calls:
            builder = _C.GraphBuilder("row")
            try:
                call.build(builder, [])
                builder.text("stablehlo")
            except (NotImplementedError, TypeError):
                without.add(name)
    share = 1 - len(without) / len(recorded.by_row)
    print(f"{share:.1%} of {len(recorded.by_row)} rows; without: {', '.join(sorted(without))}")
    assert share >= 0.9, sorted(without)


# Random rows: PyTorch draws other numbers, so XLA's results are checked for what the distribution promises: (row, arguments, low, high, mean).
N = [64, 64]
UNIFORM = torch.zeros(N)
RANDOM = [
    ("rand", (N,), 0, 1, 0.5), ("rand_like", (UNIFORM,), 0, 1, 0.5), ("uniform", (UNIFORM, 2.0, 4.0), 2, 4, 3.0),
    ("randn", (N,), -9, 9, 0.0), ("randn_like", (UNIFORM,), -9, 9, 0.0), ("normal_functional", (UNIFORM, 1.0, 0.5), -4, 6, 1.0),
    ("normal.Tensor_float", (UNIFORM, 0.5), -5, 5, 0.0), ("normal.float_Tensor", (2.0, UNIFORM + 0.5), -3, 7, 2.0),
    ("normal.Tensor_Tensor", (UNIFORM + 3, UNIFORM + 0.1), 2, 4, 3.0), ("randint", (10, N), 0, 9, 4.5), ("randint.low", (5, 10, N), 5, 9, 7.0),
    ("random", (torch.zeros(N, dtype=torch.uint8),), 0, 255, 127.5), ("random.to", (torch.zeros(N, dtype=torch.int64), 7), 0, 6, 3.0),
    ("random.from", (torch.zeros(N, dtype=torch.int64), 3, 8), 3, 7, 5.0), ("bernoulli", (UNIFORM + 0.3,), 0, 1, 0.3),
    ("bernoulli.p", (UNIFORM, 0.7), 0, 1, 0.7), ("bernoulli.Tensor", (UNIFORM, UNIFORM + 0.2), 0, 1, 0.2),
    ("exponential", (UNIFORM, 2.0), 0, 20, 0.5), ("geometric", (UNIFORM, 0.5), 1, 60, 2.0), ("log_normal", (UNIFORM, 0.0, 0.25), 0, 9, 1.032),
    ("cauchy", (UNIFORM, 0.0, 1.0), None, None, None), ("randperm", (50,), 0, 49, 24.5), ("native_dropout", (UNIFORM + 1, 0.25, True), 0, 1.3334, 1.0),
    ("multinomial", (torch.tensor([0.0, 1.0, 3.0, 0.0]), 2000, True), 1, 2, 1.75), ("multinomial", (torch.ones(20), 20), 0, 19, 9.5),
]  # fmt: skip


@pytest.mark.timeout(300)
def test_random_rows():
    builder = _C.GraphBuilder("random")
    inputs, rng, spread = [], [], {}
    for number in (1234, 0, 4):  # seed, offset, another offset
        rng.append(builder.input(torch.int64, [], [], False))
        inputs.append(referee.to_numpy(torch.tensor(number)))
    for name, args, *_ in RANDOM:
        given = [builder.input(x.dtype, list(x.shape), list(x.stride()), False) if isinstance(x, torch.Tensor) else x for x in args]
        inputs += [referee.to_numpy(x) for x in args if isinstance(x, torch.Tensor)]
        for seed, offset in ((rng[0], rng[1]), (rng[0], rng[1]), (rng[0], rng[2])):
            builder.output(builder.call(name, tuple(given), {}, (seed, offset))[0], None, None)
    got = [referee.to_torch(x) for x in referee.run(builder.text("stablehlo"), *inputs)]
    for i, (name, args, low, high, mean) in enumerate(RANDOM):
        first, same, other = (x.double() for x in got[3 * i : 3 * i + 3])
        assert torch.equal(first, same), f"{name}: the same seed and offset give other numbers"
        assert not torch.equal(first, other), f"{name}: another offset gives the same numbers"
        assert first.isfinite().all(), name
        if low is None:
            assert abs(first.median()) < 0.2, name
            continue
        assert first.min() >= low and first.max() <= high, f"{name}: {first.min()} .. {first.max()}"
        spread[name] = first.std().item()
        error = 5 * (first.std() / first.numel() ** 0.5).item() + 1e-3
        assert abs(first.mean() - mean) < max(error, 0.02), f"{name}: mean {first.mean()}, expected {mean}"
        if name == "randperm" or (name == "multinomial" and args[1] == 20):
            assert first.unique().numel() == first.numel(), name
    assert abs(spread["randn"] - 1) < 0.06 and abs(spread["rand"] - 12**-0.5) < 0.02


def test_mutated_input():
    builder = _C.GraphBuilder("mutation")
    x, y = (builder.input(torch.float32, [3], [1], False) for _ in range(2))
    builder.output(builder.call("neg", (y,), {}, None)[0], None, None)
    builder.output(builder.call("add.Tensor", (x, y), {}, None)[0], 0, None)
    text = builder.text("stablehlo")
    assert "tensor<3xf32> {tf.aliasing_output = 1 : i32}" in text
    a, b = torch.arange(3.0), torch.ones(3)
    got = referee.run(text, referee.to_numpy(a), referee.to_numpy(b))
    assert got[0].tolist() == [-1, -1, -1] and got[1].tolist() == [1, 2, 3]


def trace(fn, inputs):
    """fn as one graph of aten operators, composites whole where a trace keeps them."""
    from torch.fx.experimental.proxy_tensor import make_fx

    return make_fx(fn, pre_dispatch=False)(*inputs)


def lower(graph, inputs):
    """A module of the core with the graph's operators; in-place ones become the values that follow."""
    builder = _C.GraphBuilder("model")
    env, given = {}, iter(inputs)
    for node in graph.graph.nodes:
        if node.op == "placeholder":
            x = next(given)
            env[node] = builder.input(x.dtype, list(x.shape), list(x.contiguous().stride()), False)
        elif node.op == "get_attr":
            x = getattr(graph, node.target)
            env[node] = builder.input(x.dtype, list(x.shape), list(x.contiguous().stride()), False)
            inputs.append(x)
        elif node.op == "call_function" and node.target.__name__ == "getitem":
            env[node] = env[node.args[0]][node.args[1]]
        elif node.op == "call_function":
            args, kwargs = torch.fx.node.map_arg((node.args, node.kwargs), lambda n: env[n])
            results = builder.call(overload_name(node.target), tuple(args), dict(kwargs), None)
            env[node] = results if len(node.target._schema.returns) > 1 or isinstance(node.target._schema.returns[0].type, torch.ListType) else results[0]
        else:
            for v in tree_flatten(node.args[0])[0]:
                builder.output(env[v], None, None)
    return builder


@pytest.mark.timeout(300)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_transformer_step(dtype):
    """Loss and gradients of a small language model: hundreds of operators in one program."""
    torch.manual_seed(0)
    vocabulary, width, heads, length = 50, 32, 4, 7
    shapes = {
        "embed": [vocabulary, width], "qkv": [3 * width, width], "o": [width, width], "up": [4 * width, width], "down": [width, 4 * width], "norm": [width],
    }  # fmt: skip
    weights = [(torch.randn(s) * 0.2 + (n == "norm")).to(dtype).requires_grad_() for n, s in shapes.items()]
    tokens = torch.randint(0, vocabulary, (2, length))

    def step(tokens, embed, qkv, o, up, down, norm):
        f = torch.nn.functional
        x = f.embedding(tokens, embed)
        q, k, v = f.linear(f.layer_norm(x, [width], norm), qkv).view(2, length, 3, heads, -1).permute(2, 0, 3, 1, 4)
        x = x + f.linear(f.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(2, length, width), o)
        x = x + f.linear(f.gelu(f.linear(x, up)), down)
        logits = f.linear(x, embed).float()
        loss = f.cross_entropy(logits[:, :-1].reshape(-1, vocabulary), tokens[:, 1:].reshape(-1))
        return loss, *torch.autograd.grad(loss, [embed, qkv, o, up, down, norm])

    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        inputs = [tokens, *weights]
        graph = trace(step, inputs)
        want = step(*inputs)
    builder = lower(graph, inputs)
    got = referee.run(builder.text("stablehlo"), *[referee.to_numpy(x) for x in inputs])
    rtol, atol = (1e-4, 1e-5) if dtype == torch.float32 else (6e-2, 2e-2)
    for g, w in zip(got, want, strict=True):
        torch.testing.assert_close(referee.to_torch(g), w.detach(), rtol=rtol, atol=atol)


def main():
    calls = record()
    outcome, uncovered = run_all([c for name in sorted(calls.by_row) for c in calls.by_row[name]])
    wrong = [(c, e) for c, e in outcome if e]
    tested = {c.name for c, _ in outcome}
    print(f"{len(calls.rows)} rows, {len(tested)} tested in {len(outcome)} calls, {len(wrong)} disagree")
    equal = tested - {c.name for c, _ in wrong} - {c.name for c, _ in uncovered}
    print(f"{len(equal)} of {len(calls.by_row)} rows that samples reach ({len(equal) / len(calls.by_row):.1%}) are accepted by XLA and equal on all samples")
    for c, e in wrong:
        print(f"  WRONG {c.label}: {e[:600]}")
    for c, e in uncovered:
        print(f"  NOT COVERED {c.label}: {e}")
    for name in sorted(set(calls.rows) - tested - {c.name for c, _ in uncovered}):
        print(f"  NOT REACHED {name}: {skipped(name, calls.rows[name]) or 'no sample calls it'}")


if __name__ == "__main__":
    main()
