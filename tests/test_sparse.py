"""Sparse tensors on the device, against the same calls on the CPU."""

import copy
import io
import pathlib
import pickle
import re

import pytest
import torch
import torch_neuronx
import torchgen
import yaml

DEVICE = "neuron"
pytestmark = pytest.mark.filterwarnings("ignore:Sparse")


def dense(device, *sizes, dtype=torch.float32):
    values = torch.randn(sizes, generator=torch.Generator().manual_seed(7)) * 3
    return values.to(dtype).to(device)


def coo(device, sizes=(5, 6), values=(), count=12, coalesced=True, dtype=torch.float32):
    """Of `count` elements at random places, some of them the same."""
    generator = torch.Generator().manual_seed(3)
    indices = torch.stack([torch.randint(0, n, (count,), generator=generator) for n in sizes])
    t = torch.sparse_coo_tensor(indices.to(device), (torch.randn((count, *values), generator=generator) * 4).to(dtype).to(device), sizes + values)
    return t.coalesce() if coalesced else t


def loose(device, **options):
    return coo(device, coalesced=False, **options)


def csr(device, *sizes):
    return dense(device, *(sizes or (5, 6))).relu().to_sparse_csr()


def parts(t):
    if t.layout is torch.sparse_coo:
        return [t.is_coalesced(), t._indices().cpu(), t._values().cpu()]
    if t.layout is torch.sparse_csr:
        return [t.crow_indices().cpu(), t.col_indices().cpu(), t.values().cpu()]
    return [t.to_dense().cpu()]


def compare(call, exact_parts=True):
    got, want = call(DEVICE), call("cpu")
    for g, w in zip(*[r if isinstance(r, (list, tuple)) else [r] for r in (got, want)], strict=True):
        if not isinstance(w, torch.Tensor):
            assert g == w
            continue
        assert g.device.type == DEVICE and g.layout == w.layout and g.dtype == w.dtype and g.shape == w.shape
        torch.testing.assert_close(g.to_dense().cpu(), w.to_dense(), equal_nan=True)
        if exact_parts and w.layout is not torch.strided:
            torch.testing.assert_close(parts(g), parts(w), equal_nan=True)


CALLS = {
    "made": loose,
    "coalesced": coo,
    "coalesced, dense dimensions": lambda d: coo(d, values=(3,)),
    "coalesced, one dimension": lambda d: coo(d, sizes=(7,)),
    "coalesced, no element": lambda d: torch.sparse_coo_tensor((3, 4), device=d).coalesce(),
    "parts": lambda d: [coo(d).indices(), coo(d).values(), coo(d)._nnz(), coo(d).sparse_dim(), coo(d).dense_dim()],
    "inferred size": lambda d: torch.sparse_coo_tensor(torch.tensor([[0, 2]], device=d), torch.tensor([1.0, 2.0], device=d)),
    "dense": lambda d: [loose(d).to_dense(), loose(d, values=(2,)).to_dense()],
    "from dense": lambda d: [dense(d, 5, 6).relu().to_sparse(), dense(d, 5, 6).relu().to_sparse(1), dense(d, 5, 6).to_sparse_csr()],
    "moved": lambda d: [coo("cpu").to(d), loose("cpu").to(d), coo(d).to(torch.float64), csr("cpu").to(d), csr(d).to(torch.float64)],
    "copied": lambda d: [coo(d).clone(), torch.sparse_coo_tensor((5, 6), device=d).copy_(coo(d)), copy.deepcopy(coo(d)), coo(d).zero_(), torch.zeros_like(coo(d))],
    "sum of sparse": lambda d: [coo(d) + coo(d, count=20), coo(d) - coo(d, count=20), coo(d).add_(coo(d, count=20), alpha=2)],
    "sum with dense": lambda d: [dense(d, 5, 6) + loose(d), dense(d, 5, 6, 3) + loose(d, values=(3,)), dense(d, 6, 5).t().add_(loose(d), alpha=-2)],
    "product of sparse": lambda d: [f(d) * g(d, count=20) for f in (coo, loose) for g in (coo, loose)],
    "product with dense": lambda d: [coo(d) * dense(d, 5, 6), dense(d, 5, 6) * coo(d), coo(d) * 3, coo(d) / 2],
    "elementwise": lambda d: [-coo(d), coo(d).abs().sqrt(), coo(d).sin(), coo(d) ** 2, coo(d).nan_to_num(), coo(d).isnan(), coo(d).round_()],
    "sums": lambda d: [coo(d).sum(), torch.sparse.sum(coo(d), 0), torch.sparse.sum(coo(d, (3, 4), (2,)), [0, 2]), coo(d).norm(), coo(d).any()],
    "arranged": lambda d: [coo(d).t(), coo(d, (3, 4, 5)).permute(2, 0, 1), coo(d).unsqueeze(0), coo(d)[1]],
    "joined": lambda d: [torch.cat([coo(d), coo(d)], 1), torch.stack([coo(d)] * 2)],
    "selected": lambda d: [f(d).index_select(1, torch.tensor([1, -3, 1], device=d)) for f in (coo, loose)] + [coo(d).narrow_copy(0, 1, 3)],
    "selected, dense dimension": lambda d: coo(d, values=(3,)).index_select(2, torch.tensor([1, 2, 1], device=d)),
    "masked": lambda d: [dense(d, 5, 6).sparse_mask(coo(d)), loose(d, count=20).sparse_mask(loose(d)), coo(d, count=20).sparse_mask(coo(d))],
    "projected": lambda d: [loose(d)._sparse_mask_projection(loose(d, count=20), accumulate) for accumulate in (False, True)],
    "broadcast": lambda d: torch._sparse_broadcast_to(coo(d), (2, 5, 6)),
    "matrix products": lambda d: [coo(d) @ dense(d, 6, 4), torch.sparse.mm(loose(d), dense(d, 6, 4)), dense(d, 4, 5) @ coo(d), coo(d) @ dense(d, 6)],
    "product of sparse matrices": lambda d: [torch.sparse.mm(loose(d), coo(d, (6, 4))), coo(d) @ loose(d, sizes=(6, 4))],
    "addmm": lambda d: [torch.sparse.addmm(dense(d, 5, 4), coo(d), dense(d, 6, 4), beta=b, alpha=2) for b in (0, 1, 0.5)],
    "bmm": lambda d: torch.bmm(coo(d, (2, 5, 6)), dense(d, 2, 6, 3)),
    "compressed": lambda d: [csr(d), csr(d).to_sparse(), coo(d).to_sparse_csr(), csr(d).to_dense(), csr(d).t(), csr(d).to_sparse_csc(), csr(d).sin()],
    "compressed products": lambda d: [csr(d) @ dense(d, 6, 4), dense(d, 4, 5) @ csr(d), csr(d) @ dense(d, 6), csr(d).to_sparse_csc() @ dense(d, 6, 4)],
    "compressed sums": lambda d: [csr(d) + csr(d), dense(d, 5, 6) + csr(d), csr(d) * 2, csr(d) * csr(d), csr(d).sum()],
    "compressed, sampled": lambda d: torch.sparse.sampled_addmm(csr(d), dense(d, 5, 4), dense(d, 4, 6), beta=0.5, alpha=2),
    "compressed, a batch": lambda d: torch.sparse_csr_tensor(
        torch.tensor([[0, 1, 3], [0, 2, 3]], device=d), torch.tensor([[0, 1, 2], [0, 2, 1]], device=d), torch.tensor([[1.0, 2, 3], [4, 5, 6]], device=d)).to_dense(),
    "blocks": lambda d: dense(d, 4, 6).relu().to_sparse_bsr((2, 3)),
}


@pytest.mark.parametrize("name", CALLS)
def test_against_cpu(strict, name):
    compare(CALLS[name])


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.int32, torch.int64, torch.uint8, torch.complex64])
def test_dtypes(strict, dtype):
    calls = [lambda d: coo(d, dtype=dtype), lambda d: loose(d, dtype=dtype).to_dense(), lambda d: coo(d, dtype=dtype) * coo(d, count=20, dtype=dtype),
             lambda d: dense(d, 5, 6, dtype=dtype) + coo(d, dtype=dtype), lambda d: coo(d, dtype=dtype) + coo(d, dtype=torch.int64)]
    for call in calls[: 5 - (dtype is torch.bfloat16)]:
        compare(call)


def test_bool(strict):
    def make(d):
        return torch.sparse_coo_tensor(torch.tensor([[0, 2, 2]], device=d), torch.tensor([True, True, False], device=d), (4,))

    compare(lambda d: [make(d).coalesce(), make(d).to_dense(), torch.tensor([True, False, False, False], device=d) + make(d)])


def leaf(t):
    return t.requires_grad_()


def gradients(call, *leaves):
    out = call(*leaves)
    (out if out.layout is torch.strided else out.to_dense()).square().sum().backward()
    return [t.grad for t in leaves]


def values_into(use):
    def call(d):
        indices = torch.tensor([[0, 2, 2, 1], [1, 0, 0, 3]], device=d)
        return gradients(lambda v: use(torch.sparse_coo_tensor(indices, v, (3, 4))), leaf(torch.tensor([1.0, 2.0, 3.0, 4.0], device=d)))

    return call


GRADIENTS = {
    "mm": lambda d: gradients(torch.sparse.mm, leaf(coo(d)), leaf(dense(d, 6, 4))),
    "addmm": lambda d: gradients(torch.sparse.addmm, leaf(dense(d, 5, 4)), leaf(coo(d)), leaf(dense(d, 6, 4))),
    "sparse mm": lambda d: gradients(torch.sparse.mm, leaf(coo(d)), leaf(coo(d, (6, 4)))),
    "compressed": lambda d: gradients(torch.matmul, leaf(csr(d)), leaf(dense(d, 6, 4))),
    "sum": lambda d: gradients(lambda s: torch.sparse.sum(s, 1), leaf(coo(d))),
    "sum over all": lambda d: gradients(lambda s: torch.sparse.sum(s, [0, 1, 3]), leaf(coo(d, (3, 4), (2, 3)))),
    "sum over some": lambda d: gradients(lambda s: torch.sparse.sum(s, [0, 2]), leaf(coo(d, (3, 4), (2, 3)))),
    "values to dense": values_into(lambda t: t.to_dense()),
    "values coalesced": values_into(lambda t: t.coalesce().values()),
    "values added": values_into(lambda t: dense(t.device, 3, 4) + t),
    "values multiplied": values_into(lambda t: torch.sparse.mm(t, dense(t.device, 4, 2))),
}


@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients(strict, name):
    compare(GRADIENTS[name], exact_parts=False)


IDS = torch.tensor([[1, 2, 2], [5, 6, 2]])


def lookup(device, mode):
    table = torch.nn.Embedding(10, 4, sparse=True, padding_idx=1) if mode == "rows" else torch.nn.EmbeddingBag(10, 4, sparse=True, mode=mode)
    table.weight.data = dense("cpu", 10, 4)
    return table.to(device)


@pytest.mark.parametrize("mode", ["rows", "sum", "mean"])
def test_embedding(strict, mode):
    compare(lambda d: gradients(lambda _: table(IDS.to(d)), (table := lookup(d, mode)).weight))


def test_weighted_bag(strict):
    def call(d):
        table, weights = lookup(d, "sum"), leaf(dense(d, 2, 3))
        return gradients(lambda *_: table(IDS.to(d), per_sample_weights=weights), table.weight, weights)

    compare(call)


OPTIMIZERS = {
    "SparseAdam": lambda p: torch.optim.SparseAdam(list(p), lr=0.1),
    "Adagrad": lambda p: torch.optim.Adagrad(p, lr=0.1),
    "SGD": lambda p: torch.optim.SGD(p, lr=0.1),
    "SGD, momentum": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_training(strict, name):
    def call(d):
        table = lookup(d, "rows")
        optimizer = OPTIMIZERS[name](table.parameters())
        for step in range(3):
            optimizer.zero_grad()
            (table((IDS + step).to(d)) ** 2).sum().backward()
            assert table.weight.grad.is_sparse
            optimizer.step()
        return table.weight.data

    compare(call)


@pytest.mark.parametrize("make", [coo, loose, csr])
def test_saved_and_printed(strict, make):
    file = io.BytesIO()
    torch.save(make(DEVICE), file)
    for where in (DEVICE, "cpu"):
        file.seek(0)
        loaded = torch.load(file, map_location=where)
        assert loaded.device.type == where
        assert torch.equal(loaded.to_dense().cpu(), make("cpu").to_dense())
    pickled = pickle.loads(pickle.dumps(make(DEVICE)))
    assert torch.equal(pickled.to_dense().cpu(), make("cpu").to_dense())
    text = repr(make(DEVICE))
    assert "neuron:0" in text and "layout=torch.sparse" in text


def test_second_device(run_python):
    out = run_python(
        "import torch\n"
        "t = torch.eye(3).to_sparse().to('neuron:1')\n"
        "made = [t, t.values(), t + t, (t + t).indices(), t.coalesce(), t * t, t @ torch.ones(3, 2, device='neuron:1'), t.to_sparse_csr()]\n"
        "made += [torch.zeros_like(t)._values(), torch.sparse_coo_tensor((3, 4), device='neuron:1')._indices()]\n"
        "print({str(x.device) for x in made}, torch.neuron.current_device())",
        NEURON_RT_NUM_CORES="2",
    )
    assert out == "{'neuron:1'} 0"


def test_kernels_that_read_memory_are_known():
    """Where PyTorch has another kernel for another device, this one must not run the CPU's."""
    kernels = yaml.safe_load((pathlib.Path(torchgen.__file__).parent / "packaged/ATen/native/native_functions.yaml").read_text())
    source = (pathlib.Path(__file__).parent.parent / "torch_glue" / "SparseKeys.cpp").read_text()
    for layout in ("Sparse", "SparseCsr"):
        block = source[source.index(f"TORCH_LIBRARY_IMPL(aten, {layout}PrivateUse1, m)") :].split("\n}\n")[0]
        known = set(re.findall(r'"([\w.]+)"', block))
        for kernel in kernels:
            by_key = {key.strip(): f for keys, f in kernel.get("dispatch", {}).items() for key in keys.split(",")}
            name, cpu = kernel["func"].split("(")[0], by_key.get(layout + "CPU")
            assert cpu is None or cpu == by_key.get(layout + "CUDA") or name in known, (layout, name)


def test_errors(strict):
    for d in ("cpu", DEVICE):
        with pytest.raises(RuntimeError, match="size is inconsistent with indices"):
            torch.sparse_coo_tensor(torch.tensor([[9]], device=d), torch.ones(1, device=d), (3,), check_invariants=True)
        with pytest.raises(RuntimeError, match="please call .coalesce"):
            loose(d).values()
        with pytest.raises(RuntimeError, match="Expected dim 0 size 6"):
            torch.sparse.mm(coo(d), dense(d, 5, 4))
        with pytest.raises(RuntimeError, match="does not currently support broadcasting"):
            dense(d, 1, 6) + coo(d)
        with pytest.raises(RuntimeError, match="nnz` is not satisfied"):
            torch.sparse_csr_tensor(
                torch.tensor([0, 1, 4], device=d), torch.tensor([0, 1, 2], device=d), torch.ones(3, device=d), (2, 3), check_invariants=True)
        with pytest.raises(NotImplementedError, match="aten::exp"):
            coo(d).exp()


def test_the_rest_goes_to_the_cpu():
    """Counted and refusable like any operator without a kernel of its own; what it writes comes back."""
    was = torch_neuronx.ops.fallback_mode()
    try:
        torch_neuronx.ops.set_fallback_mode("silent")
        compare(lambda d: torch.sparse.softmax(coo(d), 1))
        assert torch.neuron.fallback_counts() == {"aten::_sparse_softmax": 1}
        compare(lambda d: torch.hspmm(coo(d), dense(d, 6, 4)))
        compare(lambda d: torch.smm(coo(d), dense(d, 6, 4)))  # its out tensor is an argument too
        compare(lambda d: torch.hspmm(coo(d), dense(d, 6, 4), out=torch.sparse_coo_tensor((5, 4), device=d)))
        compare(lambda d: gradients(lambda s, x: torch.sparse.mm(s, x, "amax"), leaf(csr(d)), leaf(dense(d, 6, 4))), exact_parts=False)
        torch_neuronx.ops.set_fallback_mode("error")
        with pytest.raises(NotImplementedError, match=r"_sparse_softmax.*Float\[5, 6\]"):
            torch.sparse.softmax(coo(DEVICE), 1)
    finally:
        torch_neuronx.ops.set_fallback_mode(was)
