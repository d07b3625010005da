"""torch.compile without a backend: who compiles which graph; TorchNeuron's names for the backend."""

import pytest
import torch
from torch._dynamo.utils import counters


@pytest.fixture(autouse=True)
def fresh(strict):
    torch._dynamo.reset()
    counters.clear()


def test_graphs_on_the_device_are_ours():
    x = torch.randn(5)
    torch.testing.assert_close(torch.compile(lambda t: (t * 2).relu().sum())(x.to("neuron")).cpu(), (x * 2).relu().sum())
    torch.testing.assert_close(torch.compile(lambda: torch.ones(3, device="neuron") + 1)().cpu(), torch.full((3,), 2.0))
    assert counters["neuron"] == {"compiled_graphs": 2}


def test_graphs_of_the_cpu_are_inductors(monkeypatch):
    import torch._inductor.compile_fx

    seen = []

    def compile_fx(gm, inputs, **_):
        seen.append([x.device.type for x in inputs])
        return gm.forward

    monkeypatch.setattr(torch._inductor.compile_fx, "compile_fx", compile_fx)

    def f(x, y):
        a = x + 1
        torch._dynamo.graph_break()
        return a, y * 2

    a, b = torch.compile(f)(torch.ones(2, device="neuron"), torch.ones(2))
    assert a.tolist() == b.tolist() == [2, 2]
    assert seen == [["cpu"]] and counters["neuron"] == {"compiled_graphs": 1}


def test_modes_and_options():
    x = torch.ones(2, device="neuron")
    with pytest.warns(UserWarning, match="triton.cudagraphs ignored"):
        assert torch.compile(lambda t: t + 1, mode="reduce-overhead")(x).tolist() == [2, 2]
    with pytest.raises(RuntimeError, match="Unexpected optimization option"):
        torch.compile(lambda t: t, options={"fallback_execution": True})
    assert "neuron" in torch._dynamo.list_backends()


def test_autocast_reaches_into_higher_order_operators():
    x = torch.eye(4, device="neuron")
    with torch.autocast("neuron", dtype=torch.bfloat16):
        y = torch.cond(x.sum() > 0, lambda x: torch.mm(x, x).sin(), lambda x: torch.mm(x, x).cos(), (x,))
    assert y.dtype == torch.bfloat16
    torch.testing.assert_close(y.cpu(), torch.eye(4).bfloat16().sin())


def test_names_of_the_backend(tmp_path):
    import torch_neuronx

    names = torch_neuronx.neuron_dynamo_backend
    assert all(hasattr(names, name) for name in names.__all__) and names.get_rank() == 0
    assert torch_neuronx.get_dynamo_metrics is names.get_dynamo_metrics
    kept = []

    def keep(gm, inputs):
        kept.append(gm)
        return torch._functorch.aot_autograd.make_boxed_func(gm.forward)

    torch.compile(lambda t: torch.tanh(t), backend=torch._dynamo.backends.common.aot_autograd(fw_compiler=keep))(torch.ones(2, device="neuron"))
    paths = names.save_fx_graph_all_formats(kept[0], tmp_path / "made")
    assert "stablehlo.tanh" in names.load_mlir(paths["mlir"]) and "aten.tanh" in names.load_mlir(paths["txt"])
