"""Streams and events."""

import pytest
import torch


def test_default_and_current():
    assert torch.neuron.current_stream() == torch.neuron.default_stream()
    assert torch.neuron.default_stream().stream_id == 0
    s = torch.neuron.Stream()
    assert isinstance(s, torch.Stream) and s.device == torch.device("neuron:0") and s.stream_id != 0
    with torch.neuron.stream(s):
        assert torch.neuron.current_stream() == s
        with torch.neuron.stream(None):
            assert torch.neuron.current_stream() == s
    assert torch.neuron.current_stream() == torch.neuron.default_stream()
    with s:
        assert torch.accelerator.current_stream() == s
    torch.neuron.set_stream(s)
    assert torch.neuron.current_stream() == s


def test_generic_api():
    s = torch.Stream("neuron")
    torch.accelerator.set_stream(s)
    assert torch.accelerator.current_stream() == s
    x = torch.ones(10, device="neuron") * 3
    s.synchronize()
    assert s.query()
    assert x.sum().item() == 30
    torch.accelerator.synchronize()


def test_priority():
    high, low = torch.neuron.Stream(priority=-1), torch.neuron.Stream(priority=0)
    assert high != low
    with torch.neuron.stream(high):
        assert torch.ones(2, device="neuron").add(1).tolist() == [2, 2]


def test_streams_come_from_a_pool():
    ids = {torch.neuron.Stream().stream_id for _ in range(100)}
    assert 1 < len(ids) <= 64


def test_events_order_streams():
    a, b = torch.neuron.Stream(), torch.neuron.Stream()
    for i in range(20):
        with torch.neuron.stream(a):
            x = torch.full((100_000,), float(i), device="neuron")
            for _ in range(5):
                x = x + 1
            e = a.record_event()
        with torch.neuron.stream(b):
            b.wait_event(e)
            y = x * 2
        b.synchronize()
        assert y[0].item() == 2 * (i + 5)


def test_wait_stream():
    s = torch.neuron.Stream()
    x = torch.zeros(100_000, device="neuron")
    for _ in range(10):
        x += 1
    s.wait_stream(torch.neuron.current_stream())
    with torch.neuron.stream(s):
        y = x + 1
    torch.neuron.current_stream().wait_stream(s)
    assert (y + 0).sum().item() == 11 * 100_000


def test_streams_follow_the_default_stream():
    """A stream's work comes after what the default stream was given before it; libraries written for GPUs count on that."""
    s = torch.neuron.Stream()
    x = torch.zeros(100_000, device="neuron")
    for i in range(20):
        for _ in range(10):
            x += 1
        with torch.neuron.stream(s):
            y = x + 1
        s.synchronize()
        assert y.min().item() == y.max().item() == 10 * (i + 1) + 1


def test_event_states_and_time():
    begin, end = torch.neuron.Event(enable_timing=True), torch.neuron.Event(enable_timing=True)
    assert begin.query()
    begin.record()
    x = torch.ones(1 << 20, device="neuron")
    for _ in range(10):
        x = x * 1.5
    end.record()
    end.synchronize()
    assert begin.query() and end.query()
    assert 0 < begin.elapsed_time(end) < 60_000
    e = torch.neuron.Event()
    e.record(torch.neuron.Stream())
    e.wait()
    torch.neuron.Stream().wait_event(e)
    e.synchronize()


def test_elapsed_time_needs_timing():
    a, b = torch.neuron.Event(), torch.neuron.Event()
    a.record()
    b.record()
    torch.neuron.synchronize()
    with pytest.raises((RuntimeError, ValueError)):
        a.elapsed_time(b)


def test_all_kinds_of_events_work_together():
    kinds = [lambda: torch.neuron.Event(enable_timing=True), lambda: torch.Event("neuron", enable_timing=True)]
    for make_begin in kinds:
        for make_end in kinds:
            begin, end = make_begin(), make_end()
            begin.record()
            torch.ones(1 << 18, device="neuron").mul(2)
            end.record()
            torch.neuron.synchronize()
            assert begin.elapsed_time(end) > 0 > end.elapsed_time(begin)
    for stream in (torch.neuron.Stream(), torch.Stream("neuron")):
        for make in kinds:
            event = make()
            assert stream.record_event(event) is event
            stream.wait_event(event)
            event.wait(stream)
            event.synchronize()
    assert isinstance(torch.Event("neuron"), torch.neuron.Event) and isinstance(torch.neuron.Event(), torch.neuron.Event)
    assert not isinstance(torch.Event("cpu"), torch.neuron.Event) and not isinstance(1, torch.neuron.Event)
    with pytest.raises(ValueError, match="Both events must be recorded"):
        torch.neuron.Event(enable_timing=True).elapsed_time(torch.neuron.Event(enable_timing=True))
    with pytest.raises(NotImplementedError, match="between processes"):
        torch.neuron.Event(interprocess=True)


def test_memory_of_other_streams_is_safe():
    s = torch.neuron.Stream()
    for i in range(30):
        x = torch.full((50_000,), float(i), device="neuron")
        s.wait_stream(torch.neuron.current_stream())
        with torch.neuron.stream(s):
            y = x * 2
            for _ in range(3):
                y = y + x
        x.record_stream(s)
        del x
        torch.full((50_000,), -1.0, device="neuron")
        s.synchronize()
        assert y[17].item() == 5 * i


def test_unknown_stream():
    kind = torch.neuron.default_stream().device_type
    with pytest.raises(RuntimeError, match="no stream"):
        torch.neuron.Stream(stream_id=1 << 40, device_index=0, device_type=kind).synchronize()


def test_launch_blocking():
    from torch_neuronx import _C

    was = _C.launch_blocking()
    _C.set_launch_blocking(True)
    try:
        assert (torch.ones(4, device="neuron") + 1).sum().item() == 8
    finally:
        _C.set_launch_blocking(was)
