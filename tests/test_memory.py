"""The allocator through PyTorch: statistics, limits, errors, snapshots, pinned memory."""

import gc
import pickle
import threading

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


@pytest.fixture
def history():
    torch.neuron.memory._record_memory_history("all", stacks="python", clear_history=True)
    yield
    torch.neuron.memory._record_memory_history(None)


def test_history_of_allocations(history):
    def allocate_here():
        return torch.empty(12345, dtype=torch.uint8, device="neuron")

    kept, dropped = allocate_here(), allocate_here()
    address = dropped.data_ptr()
    del dropped
    snapshot = torch.neuron.memory._snapshot()
    blocks = [b for s in snapshot["segments"] for b in s["blocks"] if b["address"] == kept.data_ptr() and b["state"] == "active_allocated"]
    assert any(f["name"] == "allocate_here" and f["filename"] == __file__ and f["line"] > 0 for f in blocks[0]["frames"])
    (trace,) = snapshot["device_traces"]
    mine = [(e["action"], e["addr"]) for e in trace if e["size"] == 12345]
    assert mine == [("alloc", kept.data_ptr()), ("alloc", address), ("free_requested", address), ("free_completed", address)]
    assert all(e["frames"] and e["time_us"] > 0 and e["stream"] == 0 for e in trace if e["size"] == 12345)
    with pytest.raises(torch.OutOfMemoryError, match="Tried to allocate 1024.00 GiB"):
        torch.empty(1 << 40, dtype=torch.uint8, device="neuron")
    last = torch.neuron.memory._snapshot()["device_traces"][0][-1]
    assert last["action"] == "oom" and last["size"] == 1 << 40 and last["device_free"] > 0

    from torch.cuda._memory_viz import segsum, trace_plot  # what reads snapshots

    assert "neuron" not in segsum(torch.neuron.memory._snapshot()) and trace_plot(torch.neuron.memory._snapshot())


def test_history_is_bounded_and_forgotten(history):
    memory = torch.neuron.memory
    memory._record_memory_history("all", context=None, max_entries=3)
    tensors = [torch.empty(10, device="neuron") for _ in range(5)]
    (trace,) = memory._snapshot()["device_traces"]
    assert [e["addr"] for e in trace] == [t.data_ptr() for t in tensors[2:]] and not any(e["frames"] for e in trace)
    memory._record_memory_history("state", clear_history=True)
    tensors.append(torch.empty(10, device="neuron"))
    snapshot = memory._snapshot()
    assert snapshot["device_traces"] == [[]]
    assert any(b["frames"] for s in snapshot["segments"] for b in s["blocks"] if b["address"] == tensors[-1].data_ptr())
    memory._record_memory_history(None)
    assert not any(b["frames"] for s in memory._snapshot()["segments"] for b in s["blocks"])
    with pytest.raises(ValueError, match="enabled"):
        memory._record_memory_history("everything")


def test_history_in_threads(history):
    def work():
        for _ in range(200):
            x = torch.ones(64, device="neuron", requires_grad=True)
            (x * 2).sum().backward()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    (trace,) = torch.neuron.memory._snapshot()["device_traces"]
    assert sum(e["action"] == "alloc" for e in trace) >= 800


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
