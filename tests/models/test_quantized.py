"""Quantised models on the device, natively: torchao's, packed int4, BitNet, checkpoints in float8, storage in float8.

What is not here has its reason in the libraries. torchao's `Int4WeightOnlyConfig` asks for a CUDA device or for the package mslk in each of its formats
(`IntxWeightOnlyConfig` of int4 asks for neither), its dynamic float8 for CUDA or XPU; Transformers' own float8, MXFP4 and GGUF layers want kernels that are made for
these, and load their checkpoints unpacked elsewhere. HQQ, Quanto and bitsandbytes are not among the packages, and with them go Transformers' quantised caches."""

import copy
import json

import pytest
import torch
from safetensors.torch import save_file
from torchao import quantization as ao
from torchao.quantization import IntxWeightOnlyConfig, PerGroup, PerRow, PerTensor, quantize_
from torchao.quantization.linear_quant_modules import Int4WeightOnlyQuantizer
from transformers import AutoModelForCausalLM, TorchAoConfig

SIZES = dict(vocab_size=272, hidden_size=128, num_attention_heads=4, num_key_value_heads=2, intermediate_size=256, num_hidden_layers=2, head_dim=32,
             max_position_embeddings=64, initializer_range=0.1)
IDS = torch.arange(3, 80, 7)[None]

CONFIGS = {
    "int8": lambda: ao.Int8WeightOnlyConfig(),
    "int8, groups": lambda: ao.Int8WeightOnlyConfig(granularity=PerGroup(32)),
    "int4": lambda: IntxWeightOnlyConfig(weight_dtype=torch.int4, granularity=PerGroup(32)),
    "int2": lambda: IntxWeightOnlyConfig(weight_dtype=torch.int2, granularity=PerGroup(32)),
    "float8": lambda: ao.Float8WeightOnlyConfig(),
    "float8 e5m2": lambda: ao.Float8WeightOnlyConfig(weight_dtype=torch.float8_e5m2),
    "int8 activations": lambda: ao.Int8DynamicActivationInt8WeightConfig(),
    "int8 activations, int4": lambda: ao.Int8DynamicActivationIntxWeightConfig(weight_dtype=torch.int4, weight_granularity=PerGroup(32)),
}
each_config = pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)


def parts(tensor):
    """The plain tensors in which a quantised one is kept."""
    if not hasattr(tensor, "__tensor_flatten__"):
        return [tensor]
    return [plain for name in tensor.__tensor_flatten__()[0] for plain in parts(getattr(tensor, name))]


def same_weights(got, want):
    for (name, g), (_, w) in zip(got.named_parameters(), want.named_parameters()):
        assert type(g) is type(w) and g.dtype == w.dtype, name
        for a, b in zip(parts(g), parts(w)):
            assert a.device.type == "neuron", name
            assert a.dtype == b.dtype and torch.equal(a.cpu().contiguous().view(torch.uint8), b.contiguous().view(torch.uint8)), name


def same_results(device, cpu, original):
    """As good as the CPU's: activations rounded to eight bits, or results to half precision, may be rounded the other way at a hair's difference."""
    with torch.no_grad():
        exact, theirs, ours = original(IDS).logits, cpu(IDS).logits.float(), device(IDS.to("neuron")).logits
    assert ours.device.type == "neuron"
    ours = ours.cpu().float()
    assert (ours - exact).abs().mean() <= 1.2 * (theirs - exact).abs().mean()
    assert (ours - theirs).abs().mean() <= 0.8 * (theirs - exact).abs().mean() + 1e-5
    assert torch.neuron.fallback_counts() == {}
    return ours, theirs


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@each_config
def test_loaded(original, folder, config, dtype):
    """Quantised while loading, on the device and on the CPU, and moved: the same bits, in the same classes."""
    cpu, device = (AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, device_map=d, quantization_config=TorchAoConfig(config())) for d in ("cpu", "neuron"))
    same_weights(device, cpu)
    moved = copy.deepcopy(cpu).to("neuron")
    same_weights(moved, cpu)
    ours, theirs = same_results(device, cpu, original)
    if dtype == torch.float32 and "Dynamic" not in type(config()).__name__:
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)
        assert device.generate(IDS.to("neuron"), max_new_tokens=6, do_sample=False).tolist() == cpu.generate(IDS, max_new_tokens=6, do_sample=False).tolist()
    with torch.no_grad():
        assert torch.equal(moved(IDS.to("neuron")).logits.cpu().float(), ours)


@each_config
def test_quantize_(original, config):
    """The model is on the device when torchao quantises it."""
    cpu, device = copy.deepcopy(original), copy.deepcopy(original).to("neuron")
    quantize_(cpu, config())
    quantize_(device, config())
    same_weights(device, cpu)
    same_results(device, cpu, original)


@each_config
def test_one_layer(config):
    """Where inputs are equal, so are results; of whole numbers to the bit."""
    torch.manual_seed(0)
    cpu = torch.nn.Linear(128, 64)
    quantize_(cpu, config())
    device = copy.deepcopy(cpu).to("neuron")
    x = torch.randn(2, 5, 128)
    with torch.no_grad():
        want, got = cpu(x), device(x.to("neuron")).cpu()
        torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-5)
        if isinstance(config(), ao.Int8DynamicActivationInt8WeightConfig):
            assert torch.equal(got, want)
    torch.testing.assert_close(device.weight.dequantize().cpu(), cpu.weight.dequantize(), rtol=0, atol=0)


@pytest.mark.parametrize("name", ["int8", "int4", "float8"])
def test_saved_and_loaded(original, folder, tmp_path, name):
    """Checkpoints of quantised weights, written from the device and read on either."""
    device = AutoModelForCausalLM.from_pretrained(folder, device_map="neuron", quantization_config=TorchAoConfig(CONFIGS[name]()))
    device.save_pretrained(tmp_path)
    cpu = AutoModelForCausalLM.from_pretrained(tmp_path, device_map="cpu")
    same_weights(device, cpu)
    again = AutoModelForCausalLM.from_pretrained(tmp_path, device_map="neuron")
    same_weights(again, cpu)
    same_results(again, cpu, original)
    torch.save(device.state_dict(), tmp_path / "state")
    back = torch.load(tmp_path / "state", weights_only=False)
    assert all(p.device.type == "neuron" for p in back.values())


@pytest.mark.filterwarnings("error:backend 'neuron' runs a graph")
@pytest.mark.parametrize("name", ["int8", "int4", "float8", "int8 activations"])
def test_compiled(original, name):
    """Torchao is meant to be compiled: the whole model, and the decode step that Transformers compiles for a static cache."""
    torch._dynamo.reset()
    device = copy.deepcopy(original).to("neuron")
    quantize_(device, CONFIGS[name]())
    cpu = copy.deepcopy(original)
    quantize_(cpu, CONFIGS[name]())
    options = dict(max_new_tokens=6, do_sample=False)
    compiled = device.generate(IDS.to("neuron"), cache_implementation="static", **options)
    if name != "int8 activations":
        assert compiled.tolist() == cpu.generate(IDS, **options).tolist()
    device.forward = torch.compile(device.forward, backend="neuron", fullgraph=True)
    same_results(device, cpu, original)


def test_offloaded_layers_stay_quantised(original, folder):
    device_map = {"model.embed_tokens": 0, "model.layers.0": 0, "model.layers.1": "cpu", "model.norm": 0, "model.rotary_emb": 0, "lm_head": 0}
    config = TorchAoConfig(CONFIGS["int8"]())
    model = AutoModelForCausalLM.from_pretrained(folder, device_map=device_map, quantization_config=config)
    cpu = AutoModelForCausalLM.from_pretrained(folder, device_map="cpu", quantization_config=config)
    same_results(model, cpu, original)


def test_int4_quantizer(original):
    """torchao's layers of packed int4, made for any device that is not the CPU; the CPU's own differ in layout alone."""
    cpu, device = copy.deepcopy(original).to(torch.bfloat16), copy.deepcopy(original).to("neuron", torch.bfloat16)
    made = [Int4WeightOnlyQuantizer(groupsize=32, device=torch.device(d), padding_allowed=False).quantize(m) for d, m in (("cpu", cpu), ("neuron", device))]
    assert type(made[1].model.layers[0].mlp.up_proj).__name__ == "WeightOnlyInt4Linear" and made[1].model.layers[0].mlp.up_proj.weight.device.type == "neuron"
    same_results(made[1], made[0], original)


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2], ids=str)
def test_float8_storage(original, dtype):
    """Weights kept in eight bits and brought back for each product, as Diffusers' layerwise casting does."""
    def storing(model):
        for module in model.modules():
            if isinstance(module, torch.nn.Linear):
                module.to(dtype)
                module.register_forward_pre_hook(lambda m, _: m.to(torch.float32) and None)
                module.register_forward_hook(lambda m, *_: m.to(dtype) and None)
        return model

    cpu, device = storing(copy.deepcopy(original)), storing(copy.deepcopy(original).to("neuron"))
    assert device.lm_head.weight.dtype == dtype
    ours, theirs = same_results(device, cpu, original)
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)


def test_float8_checkpoint(original, tmp_path):
    """A checkpoint of the kind DeepSeek's are: blocks of float8 with a scale each. Without a GPU's kernels, Transformers unpacks it while loading."""
    block, state = 32, {}
    for name, w in original.state_dict().items():
        if "proj" in name:
            tiles = w.view(w.shape[0] // block, block, w.shape[1] // block, block)
            scale = tiles.abs().amax((1, 3)) / 448
            state[name] = (tiles / scale[:, None, :, None]).view_as(w).to(torch.float8_e4m3fn)
            state[name + "_scale_inv"] = scale
        else:
            state[name] = w.clone()
    save_file(state, tmp_path / "model.safetensors", metadata={"format": "pt"})
    config = original.config.to_dict() | dict(quantization_config=dict(quant_method="fp8", activation_scheme="dynamic", weight_block_size=[block, block]))
    (tmp_path / "config.json").write_text(json.dumps(config))
    cpu, device = (AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float32, device_map=d) for d in ("cpu", "neuron"))
    same_weights(device, cpu)
    ours, theirs = same_results(device, cpu, original)
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)


@pytest.fixture
def compiling_for_neuron():
    """`torch.compile` without a backend is Inductor, which has no neuron device; PyTorch lets a program say what else it should be."""
    torch.compiler.set_default_backend("neuron")
    yield
    torch.compiler.set_default_backend(None)


@pytest.mark.parametrize("linear", ["bitlinear", "autobitlinear"])
def test_bitnet(original, tmp_path, linear, compiling_for_neuron):
    """Weights of -1, 0 and 1, four in a byte, as Microsoft's checkpoints have them. Transformers compiles the function that unpacks them."""
    from transformers.integrations.bitnet import pack_weights

    state = {}
    for name, w in original.state_dict().items():
        if "proj" in name:
            scale = 1 / w.abs().mean().clamp(min=1e-5)
            state[name] = pack_weights((w * scale).round().clamp(-1, 1))
            state[name.replace("weight", "weight_scale")] = scale.reshape(1)
        else:
            state[name] = w.clone()
    save_file(state, tmp_path / "model.safetensors", metadata={"format": "pt"})
    quantization = dict(quant_method="bitnet", linear_class=linear, quantization_mode="offline", modules_to_not_convert=["lm_head"])
    (tmp_path / "config.json").write_text(json.dumps(original.config.to_dict() | dict(quantization_config=quantization)))
    cpu, device = (AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float32, device_map=d) for d in ("cpu", "neuron"))
    assert type(device.model.layers[0].mlp.up_proj).__name__.lower() == linear
    same_results(device, cpu, original)


def test_granularities():
    """Row, group and tensor: torchao's choice of scales on the device."""
    torch.manual_seed(0)
    for granularity in (PerRow(), PerTensor(), PerGroup(16)):
        cpu = torch.nn.Linear(64, 32)
        device = copy.deepcopy(cpu).to("neuron")
        config = ao.Int8WeightOnlyConfig(granularity=granularity)
        quantize_(cpu, config)
        quantize_(device, config)
        same_weights(device, cpu)
        x = torch.randn(3, 64)
        torch.testing.assert_close(device(x.to("neuron")).cpu(), cpu(x), rtol=1e-5, atol=1e-5)


