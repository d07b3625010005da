"""Models come to the device by every road that Transformers, Accelerate and safetensors offer, and answer there as on the CPU, without fallbacks.

Accelerate's `get_max_memory` asks a list of devices that neuron is not on; torch_neuronx/patches/accelerate.py answers for it. One road is closed by such a
list, which nothing of a device's own can extend: safetensors takes "cpu", "cuda", ... and numbers for a device. 0 is the first neuron device, the word "neuron"
is refused, which concerns all that loads through it: `load_checkpoint_and_dispatch`, and `from_pretrained` with "disk" in the map. (`from_pretrained` otherwise
reads to the CPU first.)
"""

import copy
import functools
import os

import numpy as np
import pytest
import torch


os.environ.setdefault("HF_HUB_OFFLINE", "1")
transformers = pytest.importorskip("transformers")
accelerate = pytest.importorskip("accelerate")
from safetensors import SafetensorError, safe_open  # noqa: E402
from safetensors.torch import load_file, load_model, save_file, save_model  # noqa: E402
from transformers import AutoModelForCausalLM  # noqa: E402

SIZES = dict(vocab_size=260, hidden_size=32, num_attention_heads=4, num_key_value_heads=2, intermediate_size=64, num_hidden_layers=3, head_dim=8,
             max_position_embeddings=64, initializer_range=0.4, tie_word_embeddings=True)
IDS = torch.arange(3, 80, 7)[None]


pytestmark = pytest.mark.usefixtures("strict")


@pytest.fixture(scope="module")
def shards(original, tmp_path_factory):
    folder = tmp_path_factory.mktemp("shards")
    original.save_pretrained(folder, max_shard_size="40KB")
    assert len(list(folder.glob("model-*.safetensors"))) > 3
    return folder


def empty(config):
    with accelerate.init_empty_weights():
        model = AutoModelForCausalLM.from_config(config)
    model.tie_weights()
    return model.eval()


def layers(middle, here=0):
    """The first layer here, the others elsewhere, the rest here."""
    return {"model.embed_tokens": here, "model.layers.0": here, "model.layers.1": middle, "model.layers.2": middle, "model.norm": here, "model.rotary_emb": here,
            "lm_head": here}


@functools.cache
def answers(model):
    with torch.no_grad():
        return model(IDS).logits, model.generate(IDS, max_new_tokens=4, do_sample=False).tolist()


def check(model, original, places=("neuron",), tolerance=2e-4):
    """The model's parameters are where they should be ("meta": wherever its offloading keeps them), it computes on the device, and agrees with the original; twice,
    since what offloading brought back the first time must have gone again."""
    assert {p.device.type for p in model.parameters()} == set(places)
    want, tokens = answers(original)
    with torch.no_grad():
        for _ in range(2):
            got = model(IDS.to("neuron")).logits
            assert got.device.type == "neuron"
            torch.testing.assert_close(got.cpu(), want, rtol=tolerance, atol=tolerance)
    assert model.generate(IDS.to("neuron"), max_new_tokens=4, do_sample=False).tolist() == tokens


WHOLE = ["neuron", "neuron:0", torch.device("neuron"), torch.device("neuron", 0), 0, {"": "neuron"}, {"": 0}, {"": torch.device("neuron:0")},
         layers("neuron", "neuron"), layers(0), layers("neuron:0", "neuron:0")]


@pytest.mark.parametrize("device_map", WHOLE, ids=lambda m: f"{len(m)} modules on {m['lm_head']!r}" if isinstance(m, dict) and len(m) > 1 else repr(m))
@pytest.mark.parametrize("files", ["folder", "shards"])
def test_from_pretrained(request, original, files, device_map):
    model = AutoModelForCausalLM.from_pretrained(request.getfixturevalue(files), device_map=device_map)
    check(model, original)
    assert model.device == torch.device("neuron:0")
    assert model.lm_head.weight is model.model.embed_tokens.weight


def test_a_device_in_force(original, folder):
    with torch.device("neuron"):
        check(AutoModelForCausalLM.from_pretrained(folder), original)
    torch.set_default_device("neuron")
    try:
        check(AutoModelForCausalLM.from_pretrained(folder), original)
    finally:
        torch.set_default_device(None)


@pytest.mark.parametrize("move", [lambda m: m.to("neuron"), lambda m: m.to(0), lambda m: m.neuron(), lambda m: m.to(torch.empty(1, device="neuron"))],
                         ids=["name", "number", "method", "like a tensor"])
def test_moved(original, folder, move):
    model = move(AutoModelForCausalLM.from_pretrained(folder))
    check(model, original)
    assert model.lm_head.weight is model.model.embed_tokens.weight
    assert {p.device.type for p in model.to("cpu").parameters()} == {"cpu"}
    assert torch.equal(model(IDS).logits, original(IDS).logits)


@pytest.mark.parametrize("strategy", ["auto", "balanced", "balanced_low_0", "sequential"])
def test_strategies(original, folder, strategy):
    """The memory named is the devices' own: all fits, all is on the device; the first device too small, the rest is offloaded."""
    check(AutoModelForCausalLM.from_pretrained(folder, device_map=strategy, max_memory={0: "1GB", "cpu": "1GB"}), original)
    model = AutoModelForCausalLM.from_pretrained(folder, device_map=strategy, max_memory={0: "120KB", "cpu": "1GB"})
    assert set(model.hf_device_map.values()) == {0, "cpu"}
    check(model, original, ("neuron", "meta"))


@pytest.mark.parametrize("strategy", ["auto", "balanced", "balanced_low_0", "sequential"])
def test_all_memory_there_is(original, folder, strategy):
    check(AutoModelForCausalLM.from_pretrained(folder, device_map=strategy), original)
    assert set(accelerate.infer_auto_device_map(empty(original.config)).values()) == {0}
    assert accelerate.utils.get_max_memory() == {0: torch.neuron.mem_get_info(0)[0]}
    assert accelerate.utils.get_max_memory({0: "1KB", "cpu": 5}) == {0: 1000, "cpu": 5}


def test_several_devices(folder, run_python):
    """Layers on two devices, by a map and by "balanced"."""
    run_python(f"""if True:
        import torch, transformers
        load = lambda **options: transformers.AutoModelForCausalLM.from_pretrained({str(folder)!r}, **options)
        ids = torch.arange(3, 80, 7)[None]
        want = load()(ids).logits
        for options in (dict(device_map={layers("neuron:1", "neuron:0")}), dict(device_map={layers(1, 0)}), dict(device_map="auto"), dict(device_map="balanced"),
                        dict(device_map="balanced", max_memory={{0: "1GB", 1: "1GB"}}), dict(device_map="auto", max_memory={{0: "110KB", 1: "1GB"}})):
            model = load(**options)
            assert {{str(p.device) for p in model.parameters()}} == {{"neuron:0", "neuron:1"}}, model.hf_device_map
            torch.testing.assert_close(model(ids.to("neuron")).logits.cpu(), want, rtol=2e-4, atol=2e-4)
            assert model.generate(ids.to("neuron"), max_new_tokens=4).tolist() == load().generate(ids, max_new_tokens=4).tolist()
    """, NEURON_RT_NUM_CORES="2", TORCH_NEURONX_FALLBACK="error")


@pytest.mark.parametrize("files", ["folder", "shards"])
@pytest.mark.parametrize("here", [0, "neuron"], ids=str)
@pytest.mark.parametrize("elsewhere, options", [("cpu", {}), ("disk", {}), ("disk", dict(offload_buffers=True))], ids=["cpu", "disk", "disk, buffers too"])
def test_offloaded(request, original, files, here, elsewhere, options, tmp_path):
    load = dict(device_map=layers(elsewhere, here), offload_folder=tmp_path, **options)
    if elsewhere == "disk" and here == "neuron":  # safetensors' list
        with pytest.raises(SafetensorError, match="device neuron is invalid"):
            AutoModelForCausalLM.from_pretrained(request.getfixturevalue(files), **load)(IDS.to("neuron"))
        return
    model = AutoModelForCausalLM.from_pretrained(request.getfixturevalue(files), **load)
    check(model, original, ("neuron", "meta"))
    if elsewhere == "cpu":
        model.save_pretrained(tmp_path / "again")
        check(AutoModelForCausalLM.from_pretrained(tmp_path / "again", device_map="neuron"), original)


@pytest.mark.parametrize("name", ["dtype", "torch_dtype"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64, "bfloat16", "auto"], ids=str)
def test_dtype(original, folder, name, dtype):
    """The weights are the CPU's bit for bit; the results as good."""
    cpu = AutoModelForCausalLM.from_pretrained(folder, **{name: dtype})
    device = AutoModelForCausalLM.from_pretrained(folder, **{name: dtype}, device_map="neuron")
    assert device.dtype == cpu.dtype
    for key, value in device.state_dict().items():
        assert value.dtype == cpu.dtype and torch.equal(value.cpu(), cpu.state_dict()[key])
    with torch.no_grad():
        exact, theirs, ours = original(IDS).logits, cpu(IDS).logits.float(), device(IDS.to("neuron")).logits.cpu().float()
    assert (ours - exact).abs().mean() <= 1.2 * (theirs - exact).abs().mean() + 1e-5


def test_dtype_of_the_file(original, tmp_path):
    copy.deepcopy(original).to(torch.bfloat16).save_pretrained(tmp_path)
    assert AutoModelForCausalLM.from_pretrained(tmp_path, dtype="auto", device_map="neuron").lm_head.weight.dtype == torch.bfloat16


@pytest.mark.parametrize("options", [{}, dict(max_shard_size="20KB")], ids=["one file", "shards"])
def test_saved_from_the_device(original, folder, options, tmp_path):
    AutoModelForCausalLM.from_pretrained(folder, device_map="neuron").save_pretrained(tmp_path, **options)
    back = AutoModelForCausalLM.from_pretrained(tmp_path)
    for key, value in original.state_dict().items():
        assert torch.equal(back.state_dict()[key], value), key
    check(AutoModelForCausalLM.from_pretrained(tmp_path, device_map="neuron"), original)


def test_pickled_weights(original, tmp_path):
    """pytorch_model.bin, as old checkpoints are."""
    original.config.save_pretrained(tmp_path)
    torch.save(copy.deepcopy(original).to("neuron").state_dict(), tmp_path / "pytorch_model.bin")
    check(AutoModelForCausalLM.from_pretrained(tmp_path, device_map="neuron", use_safetensors=False), original)
    assert torch.load(tmp_path / "pytorch_model.bin", map_location="neuron", mmap=True)["lm_head.weight"].device.type == "neuron"


def test_state_dict(original):
    """Made on the device, or without memory and filled there."""
    here = {key: value.to("neuron") for key, value in original.state_dict().items()}
    with torch.device("neuron"):
        a = AutoModelForCausalLM.from_config(original.config).eval()
    a.load_state_dict(original.state_dict())
    with accelerate.init_on_device(torch.device("neuron")):
        b = AutoModelForCausalLM.from_config(original.config).eval()
    b.load_state_dict(here)
    c = empty(original.config)
    c.load_state_dict(here, assign=True)
    c.tie_weights()
    for model in (a, b, c):
        check(model, original)


def test_safetensors(original, folder, tmp_path):
    file = folder / "model.safetensors"
    want = load_file(file)
    got = load_file(file, device=0)
    for key, value in want.items():
        assert got[key].device == torch.device("neuron:0") and torch.equal(got[key].cpu(), value)
    with safe_open(file, framework="pt", device=0) as f:
        key = "model.layers.1.mlp.up_proj.weight"
        assert f.get_slice(key)[3:5].device.type == "neuron" and torch.equal(f.get_slice(key)[3:5].cpu(), want[key][3:5])
    save_file({key: value.t().contiguous() for key, value in got.items()}, tmp_path / "t.safetensors")
    for key, value in load_file(tmp_path / "t.safetensors").items():
        assert torch.equal(value, want[key].t())
    model = copy.deepcopy(original).to("neuron")
    save_model(model, tmp_path / "m.safetensors")
    torch.nn.init.zeros_(model.lm_head.weight)
    load_model(model, tmp_path / "m.safetensors", device=0)
    check(model, original)


DTYPES = [torch.float32, torch.float16, torch.bfloat16, torch.float64, torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool,
          torch.float8_e4m3fn, torch.float8_e5m2, torch.complex64]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_safetensors_dtypes(dtype, tmp_path):
    want = torch.arange(-8, 8).view(4, 4).to(dtype)
    save_file({"x": want.to("neuron"), "none": want[:0].to("neuron"), "one": want[1, 1].to("neuron")}, tmp_path / "x.safetensors")
    got = load_file(tmp_path / "x.safetensors", device=0)
    for key, value in dict(x=want, none=want[:0], one=want[1, 1]).items():
        assert got[key].dtype == dtype and got[key].shape == value.shape
        assert got[key].cpu().contiguous().view(torch.uint8).equal(value.contiguous().view(torch.uint8)) if value.dim() else got[key].cpu() == value


@pytest.mark.parametrize("kind", ["F16", "Q8_0", "Q4_0"])
def test_gguf(original, tmp_path, kind):
    """A file as llama.cpp's converter writes it. Transformers unpacks it with numpy; the device's model has the CPU's very weights."""
    gguf = pytest.importorskip("gguf")
    quantization = gguf.GGMLQuantizationType[kind]
    writer = gguf.GGUFWriter(tmp_path / "model.gguf", "llama")
    for add, value in ((writer.add_context_length, 64), (writer.add_embedding_length, 32), (writer.add_block_count, 3), (writer.add_feed_forward_length, 64),
                       (writer.add_head_count, 4), (writer.add_head_count_kv, 2), (writer.add_layer_norm_rms_eps, 1e-6), (writer.add_vocab_size, 260)):
        add(value)
    writer.add_rope_dimension_count(8)
    names = {"embed_tokens": "token_embd", "model.norm": "output_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
             "self_attn.o_proj": "attn_output", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down", "input_layernorm": "attn_norm",
             "post_attention_layernorm": "ffn_norm", "model.": "", "layers.": "blk."}
    for key, value in original.state_dict().items():
        if key != "lm_head.weight":
            for ours, theirs in names.items():
                key = key.replace(ours, theirs)
            raw = value.numpy()
            if "attn_q" in key or "attn_k" in key:  # rotary pairs lie next to each other
                heads = 4 if "attn_q" in key else 2
                raw = raw.reshape(heads, 2, -1, raw.shape[1]).swapaxes(1, 2).reshape(raw.shape)
            if raw.ndim > 1:
                writer.add_tensor(key, gguf.quantize(np.ascontiguousarray(raw), quantization), raw_dtype=quantization)
            else:
                writer.add_tensor(key, raw)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    cpu = AutoModelForCausalLM.from_pretrained(tmp_path, gguf_file="model.gguf", dtype=torch.float32)
    device = AutoModelForCausalLM.from_pretrained(tmp_path, gguf_file="model.gguf", dtype=torch.float32, device_map="neuron")
    for key, value in device.state_dict().items():
        assert torch.equal(value.cpu(), cpu.state_dict()[key]), key
    check(device, cpu)
    torch.testing.assert_close(cpu.model.layers[1].self_attn.q_proj.weight, original.model.layers[1].self_attn.q_proj.weight, rtol=0, atol=0.2)


def test_infer_auto_device_map(original):
    """With the devices named, the plan is that of a GPU with the same memory; and it serves to dispatch."""
    plan = accelerate.infer_auto_device_map(empty(original.config), max_memory={0: "120KB", "cpu": "1GB"}, no_split_module_classes=["LlamaDecoderLayer"])
    assert plan["model.embed_tokens"] == 0 and plan["model.layers.0"] == 0 and plan["model.layers.2"] == "cpu"
    check(accelerate.dispatch_model(copy.deepcopy(original), plan), original, ("neuron", "meta"))


# With a number for the only device, `dispatch_model` leaves the model where it is: `is_neuron_available() and isinstance(device, int)` renames the device and skips
# `model.to` (accelerate/big_modeling.py), as for the other devices of that list. With hooks, or by name, it moves.
DISPATCH = {
    "name": ({"": "neuron"}, {}, ("neuron",)),
    "device": ({"": torch.device("neuron:0")}, {}, ("neuron",)),
    "hooks": ({"": "neuron"}, dict(force_hooks=True), ("neuron",)),
    "number and hooks": ({"": 0}, dict(force_hooks=True), ("neuron",)),
    "with the CPU": (layers("cpu"), {}, ("neuron", "meta")),
    "with the CPU, named": (layers("cpu", "neuron"), dict(offload_buffers=True), ("neuron", "meta")),
    "with the disk": (layers("disk"), {}, ("neuron", "meta")),
    "with the disk, named": (layers("disk", "neuron"), {}, ("neuron", "meta")),
    "main device": (layers("cpu", "neuron"), dict(main_device="neuron:0"), ("neuron", "meta")),
}


@pytest.mark.parametrize("device_map, options, places", DISPATCH.values(), ids=DISPATCH)
def test_dispatch_model(original, device_map, options, places, tmp_path):
    model = copy.deepcopy(original)
    # Accelerate knows tied weights by the address they had on the CPU. Freed, the address is given to a weight read from the disk later, which it then takes for the
    # tied one: wrong weights, on any device. What keeps the old tensors prevents it.
    kept = model.state_dict()
    model = accelerate.dispatch_model(model, device_map, offload_dir=tmp_path, **options)
    check(model, original, places)
    assert kept


OFFLOAD = {
    "to the CPU": lambda m, _: accelerate.cpu_offload(m, execution_device="neuron"),
    "to the CPU, by number": lambda m, _: accelerate.cpu_offload(m, execution_device=0, offload_buffers=True),
    "to the disk": lambda m, path: accelerate.disk_offload(m, path, execution_device=torch.device("neuron")),
}


@pytest.mark.parametrize("offload", OFFLOAD.values(), ids=OFFLOAD)
def test_offload(original, offload, tmp_path):
    model = copy.deepcopy(original)
    kept = model.state_dict()
    check(offload(model, tmp_path), original, ("meta",))
    assert kept


def test_offload_with_hook(original):
    """The whole model comes when it is called and goes when told, as Diffusers' `enable_model_cpu_offload` does with one model after another. Without a device it is
    the accelerator."""
    for options in (dict(execution_device="neuron"), {}):
        first, hook = accelerate.cpu_offload_with_hook(copy.deepcopy(original), **options)
        second, _ = accelerate.cpu_offload_with_hook(copy.deepcopy(original), prev_module_hook=hook, **options)
        assert first.device.type == "cpu"
        assert torch.allclose(first(IDS).logits.cpu(), answers(original)[0], atol=2e-4)
        assert first.device.type == "neuron"
        second(IDS)
        assert (first.device.type, second.device.type) == ("cpu", "neuron")


@pytest.mark.parametrize("files", ["folder", "shards"])
@pytest.mark.parametrize("device_map, places", [({"": 0}, ["neuron"]), (layers("cpu"), ["neuron", "meta"]), (layers("disk"), ["neuron", "meta"])],
                         ids=["whole", "cpu", "disk"])
def test_load_checkpoint_and_dispatch(request, original, files, device_map, places, tmp_path):
    model = empty(original.config)
    model = accelerate.load_checkpoint_and_dispatch(model, request.getfixturevalue(files), device_map=device_map, offload_folder=tmp_path)
    check(model, original, places)
    low = accelerate.load_checkpoint_and_dispatch(empty(original.config), request.getfixturevalue(files), device_map={"": 0}, dtype=torch.bfloat16)
    assert low.lm_head.weight.dtype == torch.bfloat16 and low.lm_head.weight.device.type == "neuron"


def test_load_checkpoint_by_strategy(original, folder):
    model = accelerate.load_checkpoint_and_dispatch(empty(original.config), folder, device_map="auto", max_memory={0: "120KB", "cpu": "1GB"},
                                                    no_split_module_classes=["LlamaDecoderLayer"])
    check(model, original, ("neuron", "meta"))


def test_accelerator_prepares_and_saves(original, tmp_path):
    accelerator = accelerate.Accelerator()
    model = accelerator.prepare_model(copy.deepcopy(original))
    check(model, original)
    accelerator.save_model(model, tmp_path, max_shard_size="50KB")
    back = accelerate.load_checkpoint_and_dispatch(empty(original.config), tmp_path, device_map={"": 0})
    check(back, original)
    accelerate.utils.release_memory(model)
