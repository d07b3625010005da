"""Registration, devices, lazy opening, forks."""

import pytest
import torch


def test_registered_as_accelerator():
    assert torch.neuron.is_available()
    assert torch._C._get_privateuse1_backend_name() == "neuron"
    assert torch.accelerator.is_available()
    assert torch.accelerator.current_accelerator() == torch.device("neuron")
    assert torch.accelerator.device_count() == torch.neuron.device_count() >= 1
    assert torch.get_device_module("neuron") is torch.neuron


def test_first_sum():
    x = torch.ones(3, device="neuron") + 1
    assert x.device == torch.device("neuron", 0)
    assert x.tolist() == [2.0, 2.0, 2.0]
    assert "device='neuron:0'" in repr(x)


def test_generated_methods():
    t = torch.ones(2)
    assert not t.is_neuron
    assert t.neuron().is_neuron
    m = torch.nn.Linear(2, 2).neuron()
    assert m.weight.is_neuron
    assert t.untyped_storage().neuron().device.type == "neuron"


def test_current_device():
    assert torch.neuron.current_device() == 0
    torch.neuron.set_device(torch.device("neuron:0"))
    torch.neuron.set_device("neuron")
    with torch.neuron.device(0):
        assert torch.neuron.current_device() == 0
    with torch.neuron.device_of(torch.ones(1, device="neuron")):
        assert torch.neuron.current_device() == 0
    assert torch.ones(1).to(torch.neuron.current_device()).device.type == "neuron"


def test_device_out_of_range():
    n = torch.neuron.device_count()
    with pytest.raises(RuntimeError, match="Invalid device index"):
        torch.neuron.set_device(n)
    with pytest.raises(RuntimeError, match="Invalid device index"):
        torch.empty(1, device=f"neuron:{n}")


@pytest.mark.parametrize("bad", ["cpu", torch.device("cpu")])
def test_other_device_types_are_refused(bad):
    with pytest.raises(ValueError, match="Expected a neuron device"):
        torch.neuron.set_device(bad)


def test_properties():
    p = torch.neuron.get_device_properties(0)
    assert p.name and p.total_memory > 0 and p.multi_processor_count >= 1
    assert torch.neuron.get_device_name() == "neuron:0"
    assert torch.bfloat16 in torch.neuron.get_amp_supported_dtype()
    assert torch.neuron.is_bf16_supported()
    assert torch.float32 in torch.neuron.get_device_capability()["supported_dtypes"]


def test_opens_lazily(run_python):
    out = run_python(
        "import torch, torch_neuronx\n"
        "torch.neuron.device_count(); torch.neuron.is_available(); torch.manual_seed(1); torch.neuron.manual_seed_all(2)\n"
        "print(torch.neuron.is_initialized(), end=' ')\n"
        "torch.neuron.init(); print(torch.neuron.is_initialized())"
    )
    assert out == "False True"


def test_importing_does_not_import_dynamo(run_python):
    out = run_python(
        "import sys, torch\nbefore = 'torch._dynamo' in sys.modules\nimport torch_neuronx\n"
        "print(before, 'torch._dynamo' in sys.modules)"
    )
    assert out.split()[1] == out.split()[0]


def test_several_devices(run_python):
    out = run_python(
        "import torch, torch_neuronx\n"
        "a = torch.arange(4., device='neuron:1'); b = a.to('neuron:0')\n"
        "torch.neuron.set_device(1)\n"
        "print(torch.neuron.device_count(), a.device, b.device, b.tolist(), torch.ones(1, device='neuron').device)",
        NEURON_RT_NUM_CORES="2",
    )
    assert out == "2 neuron:1 neuron:0 [0.0, 1.0, 2.0, 3.0] neuron:1"


def test_malformed_environment(run_python):
    out = run_python(
        "import torch, torch_neuronx\n"
        "print(torch.neuron.device_count(), torch.neuron.is_available())\n"
        "try: torch.ones(1, device='neuron')\n"
        "except RuntimeError as e: print('NEURON_RT_VISIBLE_CORES' in str(e))",
        NEURON_RT_VISIBLE_CORES="zero",
    )
    assert out == "0 False\nTrue"


def test_bad_fork(run_python):
    out = run_python(
        "import os, torch, torch_neuronx\n"
        "torch.ones(1, device='neuron').cpu()\n"
        "pid = os.fork()\n"
        "if pid == 0:\n"
        "    assert torch.neuron._is_in_bad_fork()\n"
        "    try: torch.neuron.init(); os._exit(1)\n"
        "    except RuntimeError as e: os._exit(0 if 'spawn' in str(e) else 2)\n"
        "print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), torch.neuron._is_in_bad_fork())"
    )
    assert out == "0 False"


def test_fork_before_use_is_fine(run_python):
    out = run_python(
        "import os, torch, torch_neuronx\n"
        "torch.manual_seed(3)\n"
        "pid = os.fork()\n"
        "if pid == 0:\n"
        "    ok = torch.ones(2, device='neuron').add(1).tolist() == [2.0, 2.0]\n"
        "    os._exit(0 if ok else 1)\n"
        "print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))"
    )
    assert out == "0"


def test_device_interface():
    from torch._dynamo.device_interface import get_interface_for_device

    interface = get_interface_for_device("neuron")
    assert interface.device_count() == torch.neuron.device_count()
    assert issubclass(interface.Stream, torch.Stream) and issubclass(interface.Event, torch.Event)
    assert interface.get_raw_stream(0) == torch.neuron.current_stream().stream_id
    assert interface.Worker.get_device_properties().total_memory > 0


def test_top_level_names():
    import torch_neuronx

    for name in (
        "Event Stream StreamContext clear_op_tracking current_device current_stream default_stream device device_count "
        "empty_cache get_device_properties get_executed_ops get_fallback_ops is_neuron_runtime_initialized max_memory_allocated "
        "max_memory_reserved memory memory_allocated memory_reserved memory_stats memory_summary metrics "
        "reset_accumulated_memory_stats reset_peak_memory_stats set_device set_stream stream streams synchronize"
    ).split():
        assert hasattr(torch_neuronx, name), name


def test_metrics():
    from torch_neuronx import metrics

    metrics.clear_all()
    x = torch.ones(5, device="neuron")
    for _ in range(4):
        x = x + x
    assert metrics.get_counter_value("CompilationCache.InMemoryHits") >= 3
    assert metrics.get_counter_value("no such counter") is None
    data = metrics.get_metric_data("CompilationCache.CompilationTime")
    assert set(data) == {"accumulator", "total_samples", "repr"}
    assert "CompilationCache.InMemoryHits" in metrics.report_filtered()
    was = metrics.is_enabled()
    metrics.set_enabled(True)
    assert metrics.report()
    metrics.set_enabled(was)
