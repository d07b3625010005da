"""Accelerate as its users call it: its command line, a loop of one's own, checkpoints, memory and the hooks of big models, against the CPU.

(fp16: Accelerator has a list of the devices it takes for it, accelerator.py, which neuron is not on; `accelerate test` passes until it asks for fp16.)
"""

from __future__ import annotations

import copy
import json
import os
import pathlib
import subprocess
import sys

import pytest
import torch
from accelerate import Accelerator, cpu_offload, cpu_offload_with_hook, disk_offload, dispatch_model, init_empty_weights, load_checkpoint_and_dispatch
from accelerate.state import AcceleratorState
from accelerate.utils import find_executable_batch_size, set_seed
from torch import nn

ROOT = pathlib.Path(__file__).resolve().parents[2]
CLOSE = dict(rtol=1e-4, atol=1e-5)
SCRIPT = r'''
import argparse, json
import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--out")
parser.add_argument("--resume", action="store_true")
parser.add_argument("--dropout", type=float, default=0.0)
args = parser.parse_args()

set_seed(0)
accelerator = Accelerator(gradient_accumulation_steps=2)
model = torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.Dropout(args.dropout), torch.nn.Tanh(), torch.nn.Linear(32, 3))
generator = torch.Generator().manual_seed(0)
x, y = torch.randn(50, 8, generator=generator), torch.randint(3, (50,), generator=generator)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 28)
loader, evaluation = DataLoader(TensorDataset(x, y), batch_size=8, shuffle=True), DataLoader(TensorDataset(x, y), batch_size=8)
model, optimizer, schedule, loader, evaluation = accelerator.prepare(model, optimizer, schedule, loader, evaluation)

losses, norms = [], []
if args.resume:
    accelerator.load_state(args.out + "/state")
for epoch in range(2 if args.resume else 0, 4):
    if epoch == 2 and not args.resume:
        accelerator.save_state(args.out + "/state")
    model.train()
    for inputs, labels in loader:
        with accelerator.accumulate(model):
            loss = torch.nn.functional.cross_entropy(model(inputs), labels)
            accelerator.backward(loss)
            if accelerator.sync_gradients:
                norms.append(float(accelerator.clip_grad_norm_(model.parameters(), 0.5)))
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
        losses.append(accelerator.gather(loss.detach()).mean().item())

model.eval()
right = []
for inputs, labels in evaluation:
    with torch.no_grad():
        right += accelerator.gather_for_metrics((model(inputs).argmax(-1), labels))[0].tolist()
accelerator.wait_for_everyone()
accelerator.save_model(model, args.out + "/model")
weights = [p.detach().cpu().flatten().tolist() for p in accelerator.unwrap_model(model).parameters()]
accelerator.print("RESULT " + json.dumps(dict(device=accelerator.device.type, precision=accelerator.mixed_precision, losses=losses, norms=norms,
                                              right=right, weights=sum(weights, []))))
'''


@pytest.fixture(autouse=True)
def fresh():
    """Accelerate keeps the first Accelerator's settings for the whole process."""
    AcceleratorState._reset_state(reset_partial_state=True)
    yield
    AcceleratorState._reset_state(reset_partial_state=True)


def command(*words, **env):
    # The launcher starts `python`, and its users have the environment's folder on their path.
    path = f"{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(["accelerate", *map(str, words)], capture_output=True, text=True, timeout=600, env={**os.environ, "PATH": path, **env})
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def launch(tmp_path, *options, arguments=(), name="out"):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    out = command("launch", "--num_processes", 1, *options, script, "--out", tmp_path / name, *arguments, PYTHONPATH=str(ROOT))
    return json.loads(out.split("RESULT ", 1)[1])


@pytest.mark.parametrize("precision, tolerance", [("no", 1e-4), ("bf16", 3e-2)])
def test_launch(tmp_path, precision, tolerance):
    device, cpu = (launch(tmp_path, "--mixed_precision", precision, *where) for where in ([], ["--cpu"]))
    assert (device["device"], cpu["device"], device["precision"]) == ("neuron", "cpu", precision)
    for name in ("losses", "norms"):
        assert device[name] == pytest.approx(cpu[name], rel=tolerance, abs=tolerance)
    assert device["losses"][-1] < device["losses"][0] and len(device["right"]) == 50
    if precision == "no":
        assert device["right"] == cpu["right"] and device["weights"] == pytest.approx(cpu["weights"], rel=1e-3, abs=1e-4)
    assert (tmp_path / "out/model/model.safetensors").exists()


def test_load_state_goes_on_bit_for_bit(tmp_path):
    """With dropout: the device's generators are stored and set again (checkpointing.py asks torch.neuron for all of them)."""
    whole = launch(tmp_path, arguments=["--dropout", "0.3"])
    resumed = launch(tmp_path, arguments=["--dropout", "0.3", "--resume"])
    assert resumed["losses"] == whole["losses"][14:] and resumed["weights"] == whole["weights"]


def test_configuration(tmp_path):
    command("config", "default", "--config_file", tmp_path / "default.json", "--mixed_precision", "bf16")
    config = json.loads((tmp_path / "default.json").read_text())
    assert config["distributed_type"] == "NO" and config["num_processes"] == 1 and not config["use_cpu"]
    result = launch(tmp_path, "--config_file", tmp_path / "default.json")
    assert (result["device"], result["precision"]) == ("neuron", "bf16")
    assert "PyTorch accelerator: NEURON" in command("env")


def test_notebook_launcher(run_python):
    printed = run_python("""
import torch
from accelerate import Accelerator, notebook_launcher
def loop(scale):
    accelerator = Accelerator()
    model = accelerator.prepare(torch.nn.Linear(2, 2))
    accelerator.backward(model(torch.ones(1, 2, device=accelerator.device)).sum() * scale)
    print(accelerator.device.type, model.weight.grad.sum().item())
notebook_launcher(loop, (2.0,), num_processes=1)
""", PYTHONPATH=str(ROOT))
    assert printed.splitlines()[-1] == "neuron 8.0"


@pytest.mark.parametrize("module", ["test_ops", "test_sync"])
def test_accelerates_own_scripts(module):
    """Those of accelerate.test_utils.scripts that one process can run to the end."""
    done = subprocess.run([sys.executable, "-m", f"accelerate.test_utils.scripts.{module}"], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr


def test_fp16_is_refused_by_name():
    with pytest.raises(ValueError, match="fp16 mixed precision requires a device in"):
        Accelerator(mixed_precision="fp16")


def test_executable_batch_size(run_python):
    """The device's own error is one that Accelerate takes for a reason to make the batch smaller."""
    printed = run_python("""
import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState
from accelerate.utils import find_executable_batch_size
from accelerate.utils.memory import should_reduce_batch_size
tried = []
@find_executable_batch_size(starting_batch_size=64)
def loop(batch_size):
    tried.append(batch_size)
    rows = torch.ones(batch_size, 1 << 20, device="neuron")
    return (rows * 2).sum().item()
assert loop() == 2 * tried[-1] << 20
print(tried)
accelerator = Accelerator()
model = accelerator.prepare(torch.nn.Linear(1024, 1024))
held = torch.neuron.memory_allocated()
(model,) = accelerator.free_memory(model)
print(held - torch.neuron.memory_allocated() >= 1024 * 1024 * 4)
""", TORCH_NEURONX_MEMORY_LIMIT="110m", PYTHONPATH=str(ROOT))
    tried, freed = printed.splitlines()
    assert json.loads(tried)[0] == 64 and 9 <= json.loads(tried)[-1] <= 13  # rows and their doubles: 8 MiB for one of the batch
    assert freed == "True"


def test_executable_batch_size_passes_other_errors_on():
    @find_executable_batch_size(starting_batch_size=4)
    def loop(batch_size):
        torch.ones(2, device="neuron") @ torch.ones(3, device="neuron")

    with pytest.raises(RuntimeError, match="size"):
        loop()


class Tower(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.norm, self.second = nn.Linear(4, 16), nn.BatchNorm1d(16), nn.Linear(16, 3)

    def forward(self, x):
        return self.second(torch.relu(self.norm(self.first(x))))


@pytest.fixture
def tower():
    set_seed(0)
    model = Tower().eval()
    x = torch.randn(5, 4)
    with torch.no_grad():
        return model, x, model(x)


@pytest.mark.parametrize("offload", ["cpu", "disk"])
@torch.no_grad()
def test_offload(tower, tmp_path, offload):
    model, x, wanted = tower
    if offload == "cpu":
        cpu_offload(model, execution_device="neuron", offload_buffers=True)
    else:
        disk_offload(model, str(tmp_path), execution_device="neuron")
    for _ in range(2):
        y = model(x)
        torch.testing.assert_close(y.cpu(), wanted, **CLOSE)
    assert {p.device.type for p in model.parameters()} == {"meta"}


@torch.no_grad()
def test_offload_by_hand(tower):
    model, x, wanted = tower
    model, hook = cpu_offload_with_hook(model, execution_device="neuron")
    torch.testing.assert_close(model(x).cpu(), wanted, **CLOSE)
    assert next(model.parameters()).device.type == "neuron"
    hook.offload()
    assert next(model.parameters()).device.type == "cpu"


MAPS = {
    "one device": {"": "neuron"},
    "by number": {"first": 0, "norm": 0, "second": 0},
    "some on the cpu": {"first": "cpu", "norm": "neuron", "second": "neuron"},
    "some on the disk": {"first": "neuron", "norm": "neuron", "second": "disk"},
}


@pytest.mark.parametrize("placement", MAPS.values(), ids=MAPS)
@torch.no_grad()
def test_dispatch(tower, tmp_path, placement):
    model, x, wanted = tower
    model = dispatch_model(model, placement, main_device="neuron", offload_dir=str(tmp_path), force_hooks=True)
    torch.testing.assert_close(model(x).cpu(), wanted, **CLOSE)


@pytest.mark.parametrize("placement", [m for m in MAPS.values() if "first" in m], ids=[n for n, m in MAPS.items() if "first" in m])
@torch.no_grad()
def test_checkpoint_to_an_empty_model(tower, tmp_path, placement):
    """The device by its number: Accelerate hands the map's words to safetensors 0.8, which has a list of names that neuron is not on."""
    model, x, wanted = tower
    placement = {name: 0 if place == "neuron" else place for name, place in placement.items()}
    Accelerator().save_model(copy.deepcopy(model), str(tmp_path / "model"))
    with init_empty_weights():
        empty = Tower().eval()
    loaded = load_checkpoint_and_dispatch(empty, str(tmp_path / "model"), placement, offload_folder=str(tmp_path / "disk"))
    torch.testing.assert_close(loaded(x.to("neuron")).cpu(), wanted, **CLOSE)


def test_set_seed_reaches_the_device():
    set_seed(7)
    a, b = torch.rand(4, device="neuron"), torch.rand(4, device="neuron")
    set_seed(7)
    assert torch.equal(a, torch.rand(4, device="neuron")) and torch.equal(b, torch.rand(4, device="neuron")) and not torch.equal(a, b)


def test_autocast_and_no_sync():
    accelerator = Accelerator(mixed_precision="bf16")
    assert accelerator.device.type == "neuron"
    model = accelerator.prepare(nn.Linear(4, 4))
    with accelerator.autocast(), accelerator.no_sync(model):
        y = model(torch.ones(2, 4, device="neuron"))
    assert y.dtype == torch.float32 and torch.nn.functional.linear(torch.ones(2, 4, device="neuron"), model.weight).dtype == torch.float32
    with accelerator.autocast():
        assert torch.nn.functional.linear(torch.ones(2, 4, device="neuron"), model.weight).dtype == torch.bfloat16
