"""Operators that libraries of quantised models call: products of packed int4, int8 and float8, casts to float8; strictly without fallbacks."""

import pytest
import torch

torch_neuronx = pytest.importorskip("torch_neuronx")
import referee  # noqa: E402
from torch._higher_order_ops.out_dtype import out_dtype  # noqa: E402

aten = torch.ops.aten
FLOAT8 = [torch.float8_e4m3fn, torch.float8_e5m2]


pytestmark = pytest.mark.usefixtures("strict")


def int4_weight(n, k, group, dtype=torch.bfloat16):
    numbers = torch.randint(0, 16, (n, k), dtype=torch.uint8)
    scales = torch.rand(k // group, n, 2).to(dtype)
    w = numbers.view(n, -1, group).float() - 8
    w = w * scales[..., 0].t().unsqueeze(-1).float() + scales[..., 1].t().unsqueeze(-1).float()
    return numbers, scales, w.view(n, k).to(dtype)


@pytest.mark.parametrize("inner", [2, 4, 8])
@pytest.mark.parametrize("n, k, group", [(8, 128, 32), (64, 256, 64), (24, 512, 256)])
def test_int4_product(n, k, group, inner):
    """`_convert_weight_to_int4pack` and `_weight_int4pack_mm` of the accelerators, against the weight written out; eager and in a graph."""
    torch._dynamo.reset()
    torch.manual_seed(0)
    numbers, scales, w = int4_weight(n, k, group)
    packed = aten._convert_weight_to_int4pack((numbers[:, ::2] << 4 | numbers[:, 1::2]).to("neuron"), inner)
    assert packed.dtype == torch.int32 and packed.shape == (n // 8, k // (16 * inner), 32, inner // 2)
    # the first word of the first lane: columns 0, 8, 16, 24, 1, 9, 17, 25
    first = sum(int(numbers[0, c]) << 4 * i for i, c in enumerate((0, 8, 16, 24, 1, 9, 17, 25)))
    assert packed[0, 0, 0, 0].item() & 0xFFFFFFFF == first
    for rows in (1, 7):
        x = torch.randn(rows, k, dtype=torch.bfloat16)
        want = x.float() @ w.float().t()
        for product in (aten._weight_int4pack_mm, torch.compile(aten._weight_int4pack_mm, backend="neuron", dynamic=False)):
            got = product(x.to("neuron"), packed, group, scales.to("neuron"))
            torch.testing.assert_close(got.cpu().float(), want, rtol=1e-2, atol=1e-2 * want.abs().max().item())


def test_int4_wrong_calls():
    """PyTorch's words where its own checks speak, the row's where a GPU's kernel would."""
    numbers, scales, _ = int4_weight(8, 128, 32)
    half = (numbers[:, ::2] << 4 | numbers[:, 1::2]).to("neuron")
    packed = aten._convert_weight_to_int4pack(half, 2)
    x = torch.randn(3, 128, dtype=torch.bfloat16, device="neuron")
    pack, product, scales = aten._convert_weight_to_int4pack, aten._weight_int4pack_mm, scales.to("neuron")
    for op, *wrong in ((pack, half, 3), (pack, half[:7], 2), (product, x, packed, 64, scales), (product, x[:, :64], packed, 32, scales)):
        with pytest.raises(RuntimeError):
            op(*wrong)
        torch.neuron.synchronize()


def int8(*sizes):
    return torch.randint(-128, 128, sizes, dtype=torch.int8)


def test_int8_products():
    torch.manual_seed(0)
    a, b, x, scales = int8(20, 32), int8(24, 32), torch.randn(20, 32, dtype=torch.bfloat16), torch.rand(24, dtype=torch.bfloat16)
    assert torch.equal(torch._int_mm(a.to("neuron"), b.to("neuron").t()).cpu(), torch._int_mm(a, b.t()))
    got = torch._weight_int8pack_mm(x.to("neuron"), b.to("neuron"), scales.to("neuron")).cpu()
    torch.testing.assert_close(got, torch._weight_int8pack_mm(x, b, scales), rtol=1e-2, atol=1e-2)


@pytest.mark.filterwarnings("error:backend 'neuron' runs a graph")
@pytest.mark.parametrize("op, dtype", [(aten.mm.default, torch.int32), (aten.mul.Tensor, torch.int32), (aten.mm.default, torch.float32)], ids=str)
def test_out_dtype(op, dtype):
    """Torchao compiles its products of int8 matrices as `out_dtype(mm, int32, ...)`."""
    torch._dynamo.reset()
    torch.manual_seed(0)
    operands = (int8(32, 32), int8(32, 32)) if dtype == torch.int32 else (torch.randn(8, 8), torch.randn(8, 8))
    want = out_dtype(op, dtype, *operands)
    got = torch.compile(lambda a, b: out_dtype(op, dtype, a, b), backend="neuron", fullgraph=True)(*(t.to("neuron") for t in operands)).cpu()
    assert got.dtype == dtype
    torch.testing.assert_close(got, want)


@pytest.mark.parametrize("dtype", FLOAT8, ids=str)
@pytest.mark.parametrize("wide", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_float8_casts(wide, dtype):
    """To the bit, both ways: rounding, what is too large, signed zeros, infinities, numbers that are none."""
    edges = torch.tensor([0.0, -0.0, float("inf"), -float("inf"), float("nan"), 448.0, 464.0, 465.0, 57344.0, 61440.0, 2.0**-9, 2.0**-10, 2.0**-17])
    x = torch.cat([edges, *(torch.randn(1000) * 10.0**e for e in range(-6, 5))]).to(wide)
    want, got = x.to(dtype), x.to("neuron").to(dtype)
    assert torch.equal(got.cpu().view(torch.uint8), want.view(torch.uint8))
    torch.testing.assert_close(got.to(wide).cpu(), want.to(wide), rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("out", [torch.bfloat16, torch.float32], ids=str)
@pytest.mark.parametrize("scales", ["tensor", "rows"])
@pytest.mark.parametrize("dtype", FLOAT8, ids=str)
def test_scaled_product(dtype, scales, out):
    torch.manual_seed(0)
    a, b, bias = torch.randn(16, 32).to(dtype), torch.randn(48, 32).to(torch.float8_e4m3fn).t(), torch.randn(48).to(out)
    sa, sb = (torch.tensor(0.5), torch.tensor(3.0)) if scales == "tensor" else (torch.rand(16, 1), torch.rand(1, 48))
    got = torch._scaled_mm(*(t.to("neuron") for t in (a, b, sa, sb)), bias=bias.to("neuron"), out_dtype=out)
    want = ((a.float() * sa) @ (b.float() * sb) + bias.float()).to(out)
    torch.testing.assert_close(got.cpu(), want, rtol=1e-2 if out == torch.bfloat16 else 1e-5, atol=1e-4)
    if scales == "tensor":
        torch.testing.assert_close(got.cpu(), torch._scaled_mm(a, b, sa, sb, bias=bias, out_dtype=out), rtol=1e-2 if out == torch.bfloat16 else 1e-5, atol=1e-4)


@pytest.mark.skipif(not referee.available(), reason="jax is not installed")
def test_stablehlo():
    """XLA reads packed numbers as the device does."""
    torch.manual_seed(0)
    numbers, scales, w = int4_weight(8, 64, 32, torch.float32)
    half, x = numbers[:, ::2] << 4 | numbers[:, 1::2], torch.randn(3, 64)
    a, b, one = torch.randn(4, 8).to(FLOAT8[0]), torch.randn(8, 4).to(FLOAT8[0]), torch.tensor(0.5)

    def by_xla(name, operands, *rest):
        builder = torch_neuronx._C.GraphBuilder(name)
        values = [builder.input(t.dtype, list(t.shape), list(t.stride()), False) if isinstance(t, torch.Tensor) else t for t in operands]
        builder.output(builder.call(name, (*values, *rest), {}, None)[0], None, None)
        return referee.to_torch(referee.run(builder.text("stablehlo"), *[referee.to_numpy(t) for t in operands if isinstance(t, torch.Tensor)])[0])

    packed = by_xla("_convert_weight_to_int4pack", (half, 2))
    assert torch.equal(packed, aten._convert_weight_to_int4pack(half.to("neuron"), 2).cpu())
    torch.testing.assert_close(by_xla("_weight_int4pack_mm", (x, packed, 32, scales)), x @ w.t(), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(by_xla("_scaled_mm", (a, b, one, one), None, None, torch.float32), a.float() @ b.float() / 4, rtol=1e-4, atol=1e-4)
