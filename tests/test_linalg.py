"""Dense linear algebra and Fourier transforms where PyTorch's operator database does not look: ranks, pivots from anywhere, results over operands,
determinants in graphs, large lengths; against the CPU, with values, dtypes, strides, exceptions and words."""

import itertools
import re

import pytest
import torch

DEVICE = "neuron"
L = torch.linalg
DTYPES = [torch.float32, torch.float64, torch.complex64, torch.complex128]


@pytest.fixture(autouse=True)
def _nothing_on_the_cpu():
    yield
    assert not torch.neuron.get_fallback_ops()


def random(shape, dtype=torch.float32, seed=0):
    return torch.randn(shape, dtype=dtype, generator=torch.Generator().manual_seed(seed + sum(shape)))


def positive(shape, dtype=torch.float32):
    x = random(shape, dtype)
    return x @ x.mH + torch.eye(shape[-1], dtype=dtype) * (shape[-1] + 1)


def flat(results):
    return [results] if isinstance(results, torch.Tensor) else [t for r in results for t in flat(r)]


def strides(t):
    return [s for n, s in zip(t.shape, t.stride()) if n != 1] if t.numel() else []


def outcome(call, device):
    try:
        results = flat(call(lambda t: t.to(device)))
        if device != "cpu":
            torch.neuron.synchronize()
        return results, None
    except Exception as error:
        words = re.sub(r"^aten::[\w.]+\(.*?\): ", "", str(error))  # where it happened, before PyTorch's words
        return None, (type(error), words.split("\n\nException raised")[0].replace("neuron:0", "cpu"))


def compare(call, label=""):
    """`call` gets what brings a tensor to the device."""
    (want, refusal), (got, error) = outcome(call, "cpu"), outcome(call, DEVICE)
    assert error == refusal, f"{label}: {error} instead of {refusal}"
    for w, g in zip(want or [], got or [], strict=True):
        assert (g.dtype, g.shape, strides(g)) == (w.dtype, w.shape, strides(w)), label
        single = w.dtype in (torch.float32, torch.complex64)
        torch.testing.assert_close(g.cpu(), w, rtol=1e-3 if single else 1e-8, atol=1e-3 if single else 1e-8, equal_nan=True, msg=lambda m: f"{label}: {m}")


DRIVERS = [None, "gels", "gelsy", "gelsd", "gelss"]


@pytest.mark.parametrize("driver", DRIVERS)
def test_least_squares(driver):
    for dtype, (m, n), batch in itertools.product(DTYPES, [(5, 3), (3, 5), (4, 4), (0, 3), (5, 300)], [(), (2,), (0,)]):
        a, b = random(batch + (m, n), dtype), random(batch + (m, 2), dtype, 1)
        compare(lambda to: L.lstsq(to(a), to(b), driver=driver), f"{dtype} {batch} {m}x{n}")
    a = random((2, 5, 3))
    a[1, :, 2] = a[1, :, 1]  # not of full rank: gelsd and gelss have no residuals then
    if driver != "gels":
        compare(lambda to: L.lstsq(to(a), to(random((2, 5, 2))), driver=driver), "rank")
        compare(lambda to: L.lstsq(to(a[1]), to(random((5, 2))), driver=driver), "rank of one")


def test_pivots_from_anywhere():
    lu, b = random((3, 3)), random((3, 2))
    for pivots in ([1, 2, 3], [3, 3, 3], [0, 2, 3], [1, 2, 4], [-1, 2, 3]):
        p = torch.tensor(pivots, dtype=torch.int32)
        compare(lambda to: torch.lu_unpack(to(lu), to(p)), f"{pivots}")
        if min(pivots) < 1 or max(pivots) > 3:  # LAPACK would write there
            for solve in (L.lu_solve, L.ldl_solve):
                if solve is L.ldl_solve and pivots[0] == -1:
                    continue
                with pytest.raises(RuntimeError, match="pivots"):
                    solve(lu.to(DEVICE), p.to(DEVICE), b.to(DEVICE))
                    torch.neuron.synchronize()
    with pytest.raises(RuntimeError, match="pivots"):
        L.ldl_solve(lu.to(DEVICE), torch.tensor([1, 2, -3], dtype=torch.int32).to(DEVICE), b.to(DEVICE))
        torch.neuron.synchronize()


IN_PLACE = {
    "inv": lambda x, y: L.inv(x, out=x), "cholesky": lambda x, y: L.cholesky(x, out=x), "solve": lambda x, y: L.solve(x, y, out=y),
    "solve_matrix": lambda x, y: L.solve(x, y, out=x), "triangular": lambda x, y: L.solve_triangular(x, y, upper=True, out=y),
    "qr": lambda x, y: L.qr(x, out=(y, x)), "eigh": lambda x, y: L.eigh(x, out=(x.real[0].clone(), x)),
    "fft": lambda x, y: torch.fft.fft(y, out=y), "fft_transposed": lambda x, y: torch.fft.fft(y, out=y.mT), "fftn": lambda x, y: torch.fft.fftn(y, out=y),
}  # fmt: skip


@pytest.mark.parametrize("name", IN_PLACE)
def test_results_over_operands(name):
    for dtype in (torch.complex64, torch.complex128):

        def call(to):
            x, y = to(positive((4, 4), dtype)), to(random((4, 4), dtype, 1))
            IN_PLACE[name](x, y)
            return x, y

        compare(call, f"{dtype}")


@pytest.mark.parametrize("fn", [L.det, lambda x: L.slogdet(x)[1], torch.logdet])
def test_determinants_in_graphs(fn):
    """The factors that derivatives read are those of the matrix or of its transpose, by its order in memory."""
    for shape, order in itertools.product([(3, 3), (2, 4, 4)], ["input", "transposed input", "computed", "computed from transposed"]):
        x = positive(shape)

        def f(t):
            t = t.mT if "transposed" in order else t
            return fn(t * 0.5 + 1 if "computed" in order else t).sum()

        want, got = x.clone().requires_grad_(), x.to(DEVICE).requires_grad_()
        expected, value = f(want), torch.compile(f, backend="neuron", options={"fallback_execution": False})(got)
        torch.testing.assert_close(value.cpu(), expected)
        expected.backward()
        value.backward()
        torch.testing.assert_close(got.grad.cpu(), want.grad, rtol=1e-4, atol=1e-4)


def test_large_lengths():
    for n in (1 << 20, 999_983, 3**12, 720_720):
        x = random((n,))
        want = torch.fft.rfft(x.double())
        assert (torch.fft.rfft(x.to(DEVICE)).cpu() - want).abs().pow(2).mean().sqrt() < 3e-7 * want.abs().pow(2).mean().sqrt()


def test_singular_factors_have_no_inverse():
    for batch, place in [((), ""), ((3,), "(Batch element 1): ")]:
        factor = torch.eye(3).expand(batch + (3, 3)).clone()
        factor.view(-1, 3, 3)[len(batch) and 1, 1, 1] = 0
        for upper in (False, True):
            with pytest.raises(torch.linalg.LinAlgError, match=re.escape(f"cholesky_inverse: {place}The diagonal element 2 is zero, the inversion could not be")):
                torch.cholesky_inverse(factor.to(DEVICE), upper=upper).cpu()
    factor = torch.tensor([[2.0, 0], [1, 3]], dtype=torch.complex128)
    torch.testing.assert_close(torch.cholesky_inverse(factor.to(DEVICE)).cpu(), torch.cholesky_inverse(factor))
