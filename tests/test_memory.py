"""The allocator through PyTorch: statistics, limits, errors, snapshots, pinned memory."""

import gc
import pickle

import pytest
import torch


@pytest.fixture(autouse=True)
def _settled():
    gc.collect()
    torch.neuron.synchronize()
    yield


def test_allocated_follows_tensors():
    before = torch.neuron.memory_allocated()
    x = torch.empty(1 << 20, dtype=torch.uint8, device="neuron")
    assert torch.neuron.memory_allocated() - before == 1 << 20
    assert torch.neuron.memory_reserved() >= torch.neuron.memory_allocated()
    del x
    assert torch.neuron.memory_allocated() == before


def test_peak():
    torch.neuron.reset_peak_memory_stats()
    base = torch.neuron.memory_allocated()
    del_me = torch.empty(3 << 20, dtype=torch.uint8, device="neuron")
    del del_me
    assert torch.neuron.max_memory_allocated() >= base + (3 << 20)
    torch.neuron.reset_peak_memory_stats()
    assert torch.neuron.max_memory_allocated() == torch.neuron.memory_allocated()


def test_stats_in_both_forms():
    x = torch.ones(1000, device="neuron")
    stats = torch.neuron.memory_stats()
    for name in ("allocated_bytes", "reserved_bytes", "active_bytes"):
        for key in ("current", "peak", "allocated", "freed"):
            assert stats[f"{name}.all.{key}"] == stats[name][key]
            assert f"{name}.small_pool.{key}" in stats and f"{name}.large_pool.{key}" in stats
    for name in ("num_alloc_retries", "num_ooms", "num_tensor_frees", "allocation_requests"):
        assert isinstance(stats[name], int)
    assert stats["allocated_bytes"]["current"] >= x.nbytes
    assert stats.get("no such figure", 7) == 7
    nested = torch.neuron.memory_stats_as_nested_dict()
    assert nested["allocated_bytes"]["all"]["current"] == stats["allocated_bytes.all.current"]


def test_accelerator_api():
    x = torch.ones(1 << 18, device="neuron")
    assert torch.accelerator.memory_allocated() == torch.neuron.memory_allocated() >= x.nbytes
    assert torch.accelerator.memory_reserved() == torch.neuron.memory_reserved()
    assert torch.accelerator.max_memory_allocated() >= torch.accelerator.memory_allocated()
    free, total = torch.accelerator.get_memory_info()
    assert 0 < free <= total
    assert torch.neuron.mem_get_info()[1] == total
    torch.accelerator.reset_peak_memory_stats()
    torch.accelerator.reset_accumulated_memory_stats()
    torch.accelerator.empty_cache()


def test_empty_cache():
    x = torch.empty(64 << 20, dtype=torch.uint8, device="neuron")
    del x
    torch.neuron.synchronize()
    before = torch.neuron.memory_reserved()
    torch.neuron.empty_cache()
    assert torch.neuron.memory_reserved() <= before - (64 << 20)


def test_out_of_memory():
    with pytest.raises(torch.OutOfMemoryError, match="[Oo]ut of memory|Tried to allocate"):
        torch.empty(1 << 50, dtype=torch.uint8, device="neuron")
    assert torch.neuron.memory_stats()["num_ooms"] >= 1
    assert torch.ones(1, device="neuron").item() == 1


def test_limit():
    total = torch.neuron.get_device_properties().total_memory
    torch.neuron.empty_cache()
    wanted = torch.neuron.memory_reserved() + (64 << 20)
    torch.neuron.set_per_process_memory_fraction(wanted / total)
    try:
        with pytest.raises(torch.OutOfMemoryError):
            torch.empty(256 << 20, dtype=torch.uint8, device="neuron")
        torch.empty(16 << 20, dtype=torch.uint8, device="neuron")
    finally:
        torch.neuron.set_per_process_memory_fraction(1.0)
    torch.empty(256 << 20, dtype=torch.uint8, device="neuron")
    with pytest.raises(ValueError):
        torch.neuron.set_per_process_memory_fraction(2.0)
    with pytest.raises(TypeError):
        torch.neuron.set_per_process_memory_fraction("half")


def test_size_classes():
    # Multiples of 256 bytes in the small pool.
    before = torch.neuron.memory_stats()["allocated_bytes.small_pool.current"]
    x = torch.empty(300, dtype=torch.uint8, device="neuron")
    assert torch.neuron.memory_stats()["allocated_bytes.small_pool.current"] - before == 512
    requested = torch.neuron.memory_stats()["requested_bytes.all.current"]
    del x
    assert requested - torch.neuron.memory_stats()["requested_bytes.all.current"] == 300


def test_summary():
    text = torch.neuron.memory_summary()
    assert "Allocated memory" in text and "from small pool" in text
    assert "from small pool" not in torch.neuron.memory_summary(abbreviated=True)


def test_snapshot(tmp_path):
    x = torch.empty(2 << 20, dtype=torch.uint8, device="neuron")
    segments = torch.neuron.memory_snapshot()
    blocks = [b for s in segments for b in s["blocks"]]
    assert any(b["address"] == x.data_ptr() and b["state"] == "active_allocated" for b in blocks)
    for s in segments:
        assert s["total_size"] == sum(b["size"] for b in s["blocks"])
        assert s["total_size"] >= s["allocated_size"] >= s["requested_size"]
    path = tmp_path / "snapshot.pickle"
    torch.neuron._dump_snapshot(str(path))
    assert pickle.loads(path.read_bytes())["segments"]


def test_pinned_memory():
    x = torch.arange(10.0).pin_memory()
    assert x.is_pinned() and not torch.arange(10.0).is_pinned()
    y = x.to("neuron", non_blocking=True)
    x.zero_()
    assert y.tolist() == list(range(10))
    assert torch.empty(4, pin_memory=True).is_pinned()
    with pytest.raises(RuntimeError, match="pin"):
        torch.empty(4, device="neuron", pin_memory=True)


def test_memory_is_reused_only_when_work_is_done():
    a = torch.full((1 << 16,), 1.0, device="neuron")
    for i in range(50):
        b = a + i
        c = b * 2
        del b
        assert c[0].item() == 2 * (1 + i)


def test_profiler_sees_memory():
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as p:
        x = torch.empty(1 << 20, dtype=torch.uint8, device="neuron")
        del x
    assert any(e.device_memory_usage != 0 or e.self_device_memory_usage != 0 for e in p.key_averages())
