"""The ``trn`` driver end to end, with XLA in the place of the hardware: eager batches, compiled graphs, the cache of NEFFs, and every kind of failure."""

import textwrap

import pytest
import trn_tools


def test_views_and_mutations(machine):
    machine.run(trn_tools.PROLOGUE + textwrap.dedent("""
    x = torch.arange(24.0).reshape(4, 6)
    def strided_write(x): x[:, 1::2].add_(3); x[1] = 7; x.t()[2:4].mul_(2); return x
    def overlapping(x): y = x[:, :-1].clone(); x[:, 1:].copy_(x[:, :-1] * 2 + y); return x
    def through_views(x): y = x.view(-1); y[3:9] += y[:6].clone(); return (x.permute(1, 0)[::2].unsqueeze(0).expand(3, 3, 4) + x.diagonal()).contiguous()
    def reused(x):
        for i in range(6): x = torch.cat([x, x[:1] + i]) if i % 2 else x.sin() + i
        return x
    def bytes_of(x): return (x + 1).view(torch.int32) + 1
    def last_elements(x): return x[2:, 1:5:3].exp() + x.as_strided((2, 2), (7, 1), 3)
    image = torch.randn(2, 3, 4, 5)
    def channels_last(x): return (image.to(x.device).to(memory_format=torch.channels_last) * 2).sum(1)
    def empty(x): return torch.cat([x[:0], x, x[:0] + 1])
    for f in (strided_write, overlapping, through_views, reused, bytes_of, last_elements, channels_last, empty):
        same(f, x)
    """))


def test_a_training_step(machine):
    machine.run(trn_tools.PROLOGUE + textwrap.dedent("""
    import copy
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.LayerNorm(16), torch.nn.GELU(), torch.nn.Linear(16, 4))
    x, target = torch.randn(5, 8), torch.randint(4, (5,))
    there = copy.deepcopy(model).to("neuron")
    def steps(model, x, target):
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
        for _ in range(3):
            loss = torch.nn.functional.cross_entropy(model(x), target)
            optimizer.zero_grad(); loss.backward(); torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0); optimizer.step()
        return loss
    torch.testing.assert_close(steps(there, x.to("neuron"), target.to("neuron")).cpu(), steps(model, x, target))
    for a, b in zip(there.parameters(), model.parameters()): torch.testing.assert_close(a.cpu(), b, rtol=1e-4, atol=1e-5)
    """))


def test_compiled_graphs(machine):
    machine.run(trn_tools.PROLOGUE + textwrap.dedent("""
    cache, x, at = torch.zeros(3, 10), torch.randn(3, 2), torch.tensor([4, 5])
    def update(cache, x, at): cache.index_copy_(1, at, x); return torch.softmax(cache, 1).sum(0), x * 2
    compiled = torch.compile(update, backend="neuron")
    there = cache.to("neuron")
    for shift in range(3):
        before = programs()
        got = compiled(there, x.to("neuron"), (at + shift).to("neuron"))
        want = update(cache, x, at + shift)
        torch.testing.assert_close([g.cpu() for g in got], list(want))
        assert shift == 0 or programs() == before
    torch.testing.assert_close(there.cpu(), cache)
    """))


def test_random_numbers_and_streams(machine):
    machine.run(trn_tools.PROLOGUE + textwrap.dedent("""
    torch.neuron.manual_seed_all(3); a = torch.randn(100, device="neuron"); torch.neuron.manual_seed_all(3); b = torch.randn(100, device="neuron")
    assert torch.equal(a.cpu(), b.cpu()) and abs(a.mean().item()) < 0.5
    side = torch.neuron.Stream()
    x = torch.ones(4, device="neuron") * 2
    with torch.neuron.stream(side):
        y = x + 1
    event = torch.neuron.Event(); event.record(side); event.synchronize()
    torch.neuron.current_stream().wait_stream(side)
    assert (y * x).cpu().tolist() == [6.0] * 4
    event.record(); assert event.query() in (True, False); event.synchronize(); assert event.query()
    """))


def test_the_cache_on_disk(machine):
    script = trn_tools.PROLOGUE + "print((torch.ones(3, device='neuron') * 5).cpu().tolist(), _C.program_stats()['compiled'])"
    assert machine.run(script) == "[5.0, 5.0, 5.0] 1\n"
    assert machine.run(script) == "[5.0, 5.0, 5.0] 0\n"
    assert machine.compilations() == 1
    [neff] = (machine.folder / "cache").glob("*/*.neff")
    assert neff.stat().st_mode & 0o077 == 0
    whole = neff.read_bytes()
    for broken in (whole[:-7], whole[:20] + b"x" + whole[21:], b""):
        neff.write_bytes(broken)
        assert machine.run(script) == "[5.0, 5.0, 5.0] 1\n"
        assert neff.read_bytes() == whole
    neff.with_suffix(".sum").unlink()
    assert machine.run(script, NEURON_CC_FLAGS="--other 'a b'") == "[5.0, 5.0, 5.0] 1\n", "other flags are another program"
    assert machine.run(script, TORCH_NEURONX_NEFF_DISABLE_CACHE="1") == "[5.0, 5.0, 5.0] 1\n"


def test_processes_compile_a_program_once(machine):
    machine.write_compiler(trn_tools.COMPILER.replace("cp ", "sleep 1; cp "))
    script = trn_tools.PROLOGUE + "assert (torch.ones(3, device='neuron') * 5).cpu().tolist() == [5.0] * 3"
    processes = [machine.start(script) for _ in range(3)]
    for process in processes:
        _, errors = process.communicate(timeout=120)
        assert process.returncode == 0, errors
    assert machine.compilations() == 1


FAILS = trn_tools.PROLOGUE + """
x = torch.ones(3, device="neuron")
torch.neuron.synchronize()
try:
    (x * 2 + 1).cpu()
    print("no error")
except RuntimeError as error:
    print(type(error).__name__, error)
"""


def test_what_the_compiler_refuses(machine):
    refuse = "#!/bin/sh\n! grep -q multiply $2 || { echo '[NCC_EVRF001] Operator multiply is not supported' >&2; exit 70; }\n"
    machine.write_compiler(refuse + trn_tools.COMPILER)
    out = machine.run(FAILS + "print((x + 1).cpu().tolist())")
    assert "aten::mul" in out and "exit code 70" in out and "[NCC_EVRF001] Operator multiply is not supported" in out
    assert out.endswith("[2.0, 2.0, 2.0]\n")
    [text] = (machine.folder / "failed").glob("*.mlir")
    assert str(text) in out and "stablehlo.multiply" in text.read_text()


def test_a_compiler_that_is_missing_or_hangs(machine):
    script = trn_tools.PROLOGUE + "try: torch.ones(3, device='neuron').cpu()\nexcept RuntimeError as error: print(error)"
    out = machine.run(script, TORCH_NEURONX_COMPILER="/nowhere/neuronx-cc")
    assert "/nowhere/neuronx-cc was not found" in out and "TORCH_NEURONX_COMPILER" in out
    machine.write_compiler("#!/bin/sh\nsleep 100\n")
    out = machine.run(script, TORCH_NEURONX_COMPILE_TIMEOUT="1")
    assert "more than 1 s" in out


@pytest.mark.parametrize("asynchronous", ["0", "1"])
def test_a_failed_execution(machine, asynchronous):
    out = machine.run(FAILS + "print((x + 1).cpu().tolist())", FAKE_NRT_FAULT="execute:2:1004", TORCH_NEURONX_ENABLE_ASYNC_NRT=asynchronous)
    assert "RuntimeError" in out and "aten::mul" in out and "NRT_EXEC_COMPLETED_WITH_ERR (1004)" in out
    assert out.endswith("[2.0, 2.0, 2.0]\n"), "the device goes on"
    assert "NRT_TIMEOUT (5)" in machine.run(FAILS, FAKE_NRT_FAULT="execute:2:5", TORCH_NEURONX_ENABLE_ASYNC_NRT=asynchronous)
    out = machine.run(FAILS.replace("RuntimeError as", "Exception as"), FAKE_NRT_FAULT="execute:2:1006", TORCH_NEURONX_ENABLE_ASYNC_NRT=asynchronous)
    assert "IndexError" in out
    assert "no error" in machine.run(FAILS, FAKE_NRT_FAULT="execute:2:1003", TORCH_NEURONX_ENABLE_ASYNC_NRT=asynchronous), "NaN is no error in PyTorch"


def test_a_core_that_cannot_go_on(machine):
    out = machine.run(FAILS + "try: (x + 1).cpu()\nexcept RuntimeError as error: print(error)", FAKE_NRT_FAULT="execute:2:101")
    assert "NRT_EXEC_UNIT_UNRECOVERABLE" in out and "started anew" in out
    assert out.count("cannot be used any more") == 1


def test_memory_shortage(machine):
    script = trn_tools.PROLOGUE + "try: torch.ones(3, device='neuron')\nexcept torch.OutOfMemoryError as error: print(error)"
    out = machine.run(script, FAKE_NRT_FAULT="allocate:0:4")
    assert "Tried to allocate" in out
