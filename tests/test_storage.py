"""Storages: resizing, sharing, set_, saving, tied weights."""

import io
import warnings

import pytest
import torch

DEVICE = "neuron"


def test_storage_resize_keeps_contents():
    t = torch.arange(8.0, device=DEVICE)
    storage = t.untyped_storage()
    storage.resize_(64)
    assert storage.nbytes() == 64
    assert t.tolist() == list(range(8))
    storage.resize_(0)
    assert storage.nbytes() == 0
    storage.resize_(32)
    t.fill_(3)
    assert t.tolist() == [3.0] * 8


def test_tensor_resize():
    t = torch.arange(6.0, device=DEVICE)
    t.resize_(2, 3)
    assert t.shape == (2, 3) and t.tolist() == [[0, 1, 2], [3, 4, 5]]
    t.resize_(10)
    assert t[:6].tolist() == list(range(6))
    t.resize_(2)
    assert t.tolist() == [0, 1]
    t.resize_(1, 2, 2, 2, memory_format=torch.channels_last)
    assert t.is_contiguous(memory_format=torch.channels_last)
    t.resize_(0)
    assert t.numel() == 0
    u = torch.empty(0, device=DEVICE).resize_as_(torch.empty(3, 2))
    assert u.shape == (3, 2)


def test_out_of_zero_size_is_resized():
    out = torch.empty(0, dtype=torch.long, device=DEVICE)
    torch.arange(5, out=out)
    assert out.tolist() == [0, 1, 2, 3, 4]
    out = torch.empty(0, device=DEVICE)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        torch.add(torch.ones(3, device=DEVICE), 1, out=out)
    assert out.tolist() == [2, 2, 2]


def test_out_of_wrong_size_warns():
    out = torch.empty(2, device=DEVICE)
    with pytest.warns(UserWarning, match="An output with one or more elements was resized"):
        torch.add(torch.ones(3, device=DEVICE), 1, out=out)
    assert out.tolist() == [2, 2, 2]


def test_set():
    a, b = torch.arange(4.0, device=DEVICE), torch.empty(0, device=DEVICE)
    b.set_(a)
    assert b.is_set_to(a) and b.data_ptr() == a.data_ptr()
    c = torch.empty(0, device=DEVICE).set_(a.untyped_storage(), 1, (2,), (2,))
    assert c.tolist() == [1, 3]
    d = torch.empty(0, device=DEVICE).set_(a.untyped_storage())
    assert d.tolist() == [0, 1, 2, 3]
    d.set_()
    assert d.numel() == 0
    with pytest.raises(RuntimeError, match="different device|must match"):
        torch.empty(0, device=DEVICE).set_(torch.ones(2).untyped_storage())


def test_module_to_keeps_tied_weights():
    class Tied(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = torch.nn.Embedding(10, 4)
            self.head = torch.nn.Linear(4, 10, bias=False)
            self.head.weight = self.embed.weight

    m = Tied()
    before = list(m.parameters())
    optimizer = torch.optim.SGD(m.parameters(), lr=0.1)
    m.to(DEVICE)
    assert m.head.weight is m.embed.weight and len(list(m.parameters())) == 1
    assert before[0] is m.embed.weight
    m.head(m.embed(torch.tensor([1], device=DEVICE))).sum().backward()
    old = m.embed.weight.detach().clone()
    optimizer.step()
    assert not torch.equal(old.cpu(), m.embed.weight.detach().cpu())
    m.cpu()
    assert m.head.weight is m.embed.weight


def test_save_and_load(tmp_path):
    t = torch.randn(3, 4, device=DEVICE).t()
    buffer = io.BytesIO()
    torch.save({"t": t, "n": 3}, buffer)
    buffer.seek(0)
    back = torch.load(buffer)
    assert back["t"].device.type == DEVICE and torch.equal(back["t"].cpu(), t.cpu())
    buffer.seek(0)
    assert torch.load(buffer, map_location="cpu")["t"].device.type == "cpu"
    path = tmp_path / "cpu.pt"
    torch.save(torch.ones(3), path)
    assert torch.load(path, map_location=DEVICE).device.type == DEVICE


def test_deepcopy():
    import copy

    t = torch.arange(4.0, device=DEVICE)
    u = copy.deepcopy(t)
    u[0] = 9
    assert t[0].item() == 0 and u.device.type == DEVICE


def test_deterministic_fill():
    torch.use_deterministic_algorithms(True)
    try:
        assert torch.empty(3, device=DEVICE).isnan().all().item()
        assert (torch.empty(3, dtype=torch.int32, device=DEVICE) == torch.iinfo(torch.int32).max).all().item()
        assert torch.arange(2.0, device=DEVICE).resize_(4)[2:].isnan().all().item()
    finally:
        torch.use_deterministic_algorithms(False)
