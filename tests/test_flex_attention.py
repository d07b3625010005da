"""flex_attention: eager and compiled, score and mask functions, grouped heads, captured tensors, log-sum-exp, gradients.

The referee is the formula in float64 on the CPU.
"""

import copy
import math

import pytest
import torch
from torch._dynamo.utils import counters
from torch.nn.attention.flex_attention import AuxRequest, create_block_mask, flex_attention
from torch_neuronx.compile.importer import Importer

B, H, L = 2, 4, 37
SLOPES, TABLE = torch.rand(H, generator=torch.Generator().manual_seed(1)), torch.randn(H, 64, 64, generator=torch.Generator().manual_seed(2))

# name: (score_mod with the tensors that it captures, those, whether it is one fused attention)
SCORES = {
    "none": (None, (), True),
    "slopes": (lambda s, b, h, i, j, a: s + a[h] * (j - i), (SLOPES,), True),
    "table": (lambda s, b, h, i, j, t: t[h, i, j] + s, (TABLE,), True),
    "infinity": (lambda s, b, h, i, j: torch.where(i >= j, s, -math.inf), (), True),
    "scaled": (lambda s, b, h, i, j: 1 - s * 2, (), True),
    "capped": (lambda s, b, h, i, j: 20 * torch.tanh(s / 20), (), False),
    "factors": (lambda s, b, h, i, j, a: s * a[h], (SLOPES,), False),
}
MASKS = {
    "none": None,
    "causal": lambda b, h, i, j: i >= j,
    "window": lambda b, h, i, j: (i >= j) & (i - j < 8),
    "empty row": lambda b, h, i, j: i > j,
    "by batch": lambda b, h, i, j: (j < 20 + 10 * b) | (i == h),
}


@pytest.fixture(autouse=True)
def fresh(strict):
    torch._dynamo.reset()
    counters.clear()


@pytest.fixture
def graphs(monkeypatch):
    """The graphs compiled from now on, as text."""
    texts = []
    run = Importer.run

    def record(self, gm):
        program = run(self, gm)
        texts.append(program.graph_text("tnx"))
        return program

    monkeypatch.setattr(Importer, "run", record)
    return texts


def formula(q, k, v, score_mod, mask_mod, captured):
    groups = q.shape[1] // k.shape[1]
    k, v = (x.repeat_interleave(groups, 1).expand(q.shape[0], -1, -1, -1) for x in (k, v))
    s = q @ k.mT / math.sqrt(q.shape[-1])
    at = [torch.arange(n).view(-1, *[1] * (3 - d)) for d, n in enumerate(s.shape)]
    if score_mod:
        s = score_mod(s, *at, *captured)
    if mask_mod:
        s = torch.where(mask_mod(*at), s, -math.inf)
    lse = s.logsumexp(-1)
    return torch.exp(s - torch.where(lse == -math.inf, 0, lse).unsqueeze(-1)) @ v, lse, s.amax(-1)


def operands(kv_heads=H, kv_batch=B, length=L, dtype=torch.float32):
    return [torch.randn(b, h, length, 16).to(dtype) for b, h in ((B, H), (kv_batch, kv_heads), (kv_batch, kv_heads))]


def compare(compiled, score, mask, inputs, wants=(), tolerance=None):
    """Results and gradients. `wants`: "lse" and "max_scores", which are asked for, and "captured", whose gradients are."""
    score_mod, captured, _ = SCORES[score]
    mask_mod = MASKS[mask]
    exact = [x.double().requires_grad_() for x in inputs]
    exact_captured = [x.double().requires_grad_("captured" in wants) for x in captured]
    ours = [x.to("neuron").requires_grad_() for x in inputs]
    ours_captured = [x.to("neuron").requires_grad_("captured" in wants) for x in captured]
    n = inputs[0].shape[2]
    block_mask = create_block_mask(mask_mod, B, H, n, n, device="neuron") if mask_mod else None

    def f(q, k, v):
        return flex_attention(
            q, k, v, score_mod=score_mod and (lambda *at: score_mod(*at, *ours_captured)), block_mask=block_mask, enable_gqa=k.shape[1] != H,
            return_aux=AuxRequest(lse="lse" in wants, max_scores="max_scores" in wants),
        )

    out, aux = compiled(f)(*ours)
    want, lse, largest = formula(*exact, score_mod, mask_mod, exact_captured)
    g = torch.randn(want.shape)
    objective, exact_objective = (out * g.to("neuron", out.dtype)).sum(), (want * g.double()).sum()
    if "lse" in wants:
        finite = lse.isfinite()
        objective = objective + torch.where(finite.to("neuron"), aux.lse, 0).sum()
        exact_objective = exact_objective + torch.where(finite, lse, 0).sum()
    objective.backward()
    exact_objective.backward()
    tolerance = tolerance or {"atol": 2e-4, "rtol": 1e-4}

    def close(a, b):
        torch.testing.assert_close(a.detach().cpu().double(), b.detach(), **tolerance)

    close(out, want)
    if "lse" in wants:
        close(aux.lse, lse)
    if "max_scores" in wants:
        close(aux.max_scores, largest)
    for a, b in zip(ours + ours_captured * ("captured" in wants), exact + exact_captured):
        close(a.grad, b.grad)


def ours(f):
    return torch.compile(f, backend="neuron", fullgraph=True, options={"fallback_execution": False})


@pytest.mark.parametrize("mask", MASKS)
def test_masks(mask, graphs):
    compare(ours, "none", mask, operands(kv_heads=2))
    assert sum("ATTENTION" in text for text in graphs) == 2 and not any("MATMUL" in text for text in graphs)


@pytest.mark.parametrize("score", SCORES)
def test_score_functions(score, graphs):
    compare(ours, score, "window", operands())
    fused = SCORES[score][2]
    assert all(("ATTENTION" in text) == fused for text in graphs[-2:])


@pytest.mark.parametrize("score", ["slopes", "table", "factors"])
def test_gradients_of_captured_tensors(score):
    compare(ours, score, "causal", operands(kv_heads=2), ("captured",))


@pytest.mark.parametrize("score", ["none", "capped"])
def test_log_sum_exp_and_largest_scores(score):
    compare(ours, score, "empty row", operands(), ("lse", "max_scores"))


@pytest.mark.parametrize("score", ["slopes", "capped"])
def test_halves(score):
    compare(ours, score, "causal", operands(kv_heads=2, dtype=torch.bfloat16), tolerance={"atol": 0.1, "rtol": 0.05})


def test_one_key_batch_for_all_queries():
    compare(ours, "slopes", "causal", operands(kv_batch=1))


@pytest.mark.parametrize("score", ["slopes", "capped"])
def test_symbolic_sizes(score):
    slopes = SLOPES.to("neuron")
    score_mod, captured, _ = SCORES[score]

    def f(q, k, v):
        return flex_attention(q, k, v, score_mod=lambda *at: score_mod(*at, *[slopes] * len(captured)))

    g = torch.compile(f, backend="neuron", dynamic=True, options={"fallback_execution": False})
    for length in (33, 50, 64):
        inputs = operands(length=length)
        got = g(*(x.to("neuron") for x in inputs))
        torch.testing.assert_close(got.cpu().double(), formula(*(x.double() for x in inputs), score_mod, None, captured)[0], atol=1e-5, rtol=1e-5)
    assert counters["neuron"] == {"compiled_graphs": 1}


@pytest.mark.parametrize("score", ["slopes", "capped"])
def test_eager(score):
    compare(lambda f: f, score, "window", operands(kv_heads=2), ("captured",))


def test_block_masks_are_those_of_the_cpu():
    for compiled in (False, True):
        got, want = (create_block_mask(MASKS["window"], B, 1, 300, 300, device=d, _compile=compiled and d == "neuron") for d in ("neuron", "cpu"))
        for name in ("kv_num_blocks", "full_kv_num_blocks", "q_num_blocks"):
            assert torch.equal(getattr(got, name).cpu(), getattr(want, name))
        assert torch.equal(got.to_dense().cpu(), want.to_dense())


@pytest.mark.parametrize("compiled", [False, True])
def test_autocast(compiled):
    q, k, v = (x.to("neuron").requires_grad_() for x in operands())
    with torch.autocast("neuron", dtype=torch.bfloat16):
        out = (torch.compile(flex_attention) if compiled else flex_attention)(q, k, v)
    assert out.dtype == torch.bfloat16
    out.float().sum().backward()
    assert q.grad.dtype == torch.float32
    want = formula(*(x.detach().cpu().bfloat16().double() for x in (q, k, v)), None, None, ())[0]
    torch.testing.assert_close(out.detach().cpu().double(), want, atol=0.05, rtol=0.02)


def test_transformers():
    """`attn_implementation="flex_attention"`, which compiles flex_attention itself and names no backend."""
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=97, hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=128
    )
    cpu, flex = (transformers.LlamaForCausalLM._from_config(copy.deepcopy(config), attn_implementation=how).eval() for how in ("sdpa", "flex_attention"))
    flex.load_state_dict(cpu.state_dict())
    flex.to("neuron")
    ids = torch.randint(0, 97, (2, 11))
    mask = torch.ones_like(ids)
    mask[0, :3] = 0
    options = {"max_new_tokens": 6, "do_sample": False, "pad_token_id": 0}
    got = flex.generate(ids.to("neuron"), attention_mask=mask.to("neuron"), **options)
    assert torch.equal(got.cpu(), cpu.generate(ids, attention_mask=mask, **options))
    want = cpu.train()(ids, labels=ids).loss
    loss = flex.train()(ids.to("neuron"), labels=ids.to("neuron")).loss
    want.backward()
    loss.backward()
    torch.testing.assert_close(loss.cpu(), want)
    for a, b in zip(flex.parameters(), cpu.parameters()):
        torch.testing.assert_close(a.grad.cpu(), b.grad)
