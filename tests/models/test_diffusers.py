"""Diffusers' pipelines as users call them, on the device and on the CPU: tiny random components, a few steps, the same CPU generator.

Images are equal to 1e-3 of their range in float32. In bfloat16 they are as near to the exact ones as the CPU's. A fallback is an error (conftest.py).
"""

import gc

import numpy
import pytest
import torch

diffusers = pytest.importorskip("diffusers")
transformers = pytest.importorskip("transformers")
tokenizers = pytest.importorskip("tokenizers")
diffusers.utils.logging.set_verbosity_error()

PROMPT = "a small boat on a blue lake"
IMAGE = torch.linspace(0, 1, 3 * 32 * 32).view(1, 3, 32, 32).sin()
MASK = torch.zeros(1, 1, 32, 32)
MASK[..., 8:24, 8:24] = 1


# Components. Each family's function makes those of its pipeline for text to image (or video); the others take the same.


def tokenizer():
    words = {word: i for i, word in enumerate(["<pad>", "<s>", "</s>", "<unk>", *dict.fromkeys(PROMPT.split())])}
    rule = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="<unk>"))
    rule.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    rule.post_processor = tokenizers.processors.TemplateProcessing(single="<s> $A </s>", special_tokens=[("<s>", 1), ("</s>", 2)])
    names = dict(pad_token="<pad>", bos_token="<s>", eos_token="</s>", unk_token="<unk>")
    return transformers.PreTrainedTokenizerFast(tokenizer_object=rule, model_max_length=12, **names)


def clip(width=32, projection=True):
    sizes = dict(hidden_size=width, intermediate_size=37, num_attention_heads=4, num_hidden_layers=2, projection_dim=32, max_position_embeddings=12, vocab_size=20)
    kind = transformers.CLIPTextModelWithProjection if projection else transformers.CLIPTextModel
    return kind(transformers.CLIPTextConfig(**sizes, pad_token_id=0, bos_token_id=1, eos_token_id=2)).eval()


def t5(kind=transformers.T5EncoderModel):
    return kind(kind.config_class(vocab_size=20, d_model=32, d_ff=37, d_kv=8, num_layers=2, num_heads=4, dropout_rate=0.0)).eval()


def vae(channels=4, **more):
    blocks = dict(down_block_types=["DownEncoderBlock2D"] * 2, up_block_types=["UpDecoderBlock2D"] * 2, block_out_channels=[8, 16], norm_num_groups=4)
    return diffusers.AutoencoderKL(**blocks, latent_channels=channels, sample_size=32, **more).eval()


def unet(**more):
    blocks = dict(down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"), up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"), block_out_channels=(8, 16))
    return diffusers.UNet2DConditionModel(
        **dict(sample_size=16, layers_per_block=1, norm_num_groups=4, attention_head_dim=2, cross_attention_dim=32, **blocks) | more
    ).eval()


def sd():
    parts = dict(vae=vae(), text_encoder=clip(projection=False), tokenizer=tokenizer(), unet=unet(), scheduler=diffusers.PNDMScheduler(skip_prk_steps=True))
    return parts | dict(safety_checker=None, feature_extractor=None)


def sdxl():
    more = dict(addition_embed_type="text_time", addition_time_embed_dim=8, projection_class_embeddings_input_dim=80, cross_attention_dim=64)
    return dict(
        vae=vae(), text_encoder=clip(projection=False), tokenizer=tokenizer(), text_encoder_2=clip(), tokenizer_2=tokenizer(),
        unet=unet(transformer_layers_per_block=(1, 2), use_linear_projection=True, **more), scheduler=diffusers.EulerDiscreteScheduler(),
    )  # fmt: skip


def sd3():
    heads = dict(num_layers=2, attention_head_dim=8, num_attention_heads=4, joint_attention_dim=32, caption_projection_dim=32, pooled_projection_dim=64)
    return dict(
        transformer=diffusers.SD3Transformer2DModel(
            sample_size=16, patch_size=2, in_channels=16, out_channels=16, qk_norm="rms_norm", dual_attention_layers=(0,), pos_embed_max_size=16, **heads
        ).eval(),
        text_encoder=clip(16), tokenizer=tokenizer(), text_encoder_2=clip(16), tokenizer_2=tokenizer(), text_encoder_3=t5(), tokenizer_3=tokenizer(),
        vae=vae(16, shift_factor=0.06, scaling_factor=1.5, use_quant_conv=False, use_post_quant_conv=False), scheduler=diffusers.FlowMatchEulerDiscreteScheduler(),
    )  # fmt: skip


FLUX = dict(num_layers=1, num_single_layers=1, attention_head_dim=16, num_attention_heads=2)


def flux():
    sizes = dict(patch_size=1, in_channels=16, joint_attention_dim=32, pooled_projection_dim=32, axes_dims_rope=(4, 4, 8), guidance_embeds=True)
    return dict(
        transformer=diffusers.FluxTransformer2DModel(**sizes, **FLUX).eval(), vae=vae(shift_factor=0.06, use_quant_conv=False, use_post_quant_conv=False),
        text_encoder=clip(projection=False), tokenizer=tokenizer(), text_encoder_2=t5(), tokenizer_2=tokenizer(),
        scheduler=diffusers.FlowMatchEulerDiscreteScheduler(use_dynamic_shifting=True),
    )  # fmt: skip


def pixart(extra=True):
    heads = dict(num_layers=2, num_attention_heads=3, attention_head_dim=8, cross_attention_dim=24, caption_channels=32)
    size = 128 if extra else 16  # at 128 the pipeline tells the model the sizes
    transformer = diffusers.PixArtTransformer2DModel(sample_size=size, in_channels=4, out_channels=8, use_additional_conditions=extra, **heads).eval()
    return dict(tokenizer=tokenizer(), text_encoder=t5(), vae=vae(), transformer=transformer, scheduler=diffusers.DPMSolverMultistepScheduler())


def wan(**more):
    heads = dict(num_attention_heads=2, attention_head_dim=12, text_dim=32, freq_dim=16, ffn_dim=32, num_layers=2, rope_max_seq_len=32)
    return dict(
        tokenizer=tokenizer(), text_encoder=t5(transformers.UMT5EncoderModel),
        vae=diffusers.AutoencoderKLWan(base_dim=4, z_dim=16, dim_mult=[1, 1, 1, 1], num_res_blocks=1, temperal_downsample=[False, True, True]).eval(),
        scheduler=diffusers.UniPCMultistepScheduler(prediction_type="flow_prediction", use_flow_sigmas=True, flow_shift=3.0),
        transformer=diffusers.WanTransformer3DModel(**dict(in_channels=16, out_channels=16, **heads) | more).eval(),
    )  # fmt: skip


def wan_image():
    sizes = dict(hidden_size=16, intermediate_size=37, num_attention_heads=4, num_hidden_layers=2, image_size=32, patch_size=8)
    processor = transformers.CLIPImageProcessor(crop_size=32, size=32)
    encoder = transformers.CLIPVisionModelWithProjection(transformers.CLIPVisionConfig(**sizes)).eval()
    return wan(in_channels=36, image_dim=16, added_kv_proj_dim=24) | dict(image_processor=processor, image_encoder=encoder)


def stable_audio():
    heads = dict(num_layers=2, attention_head_dim=4, num_attention_heads=4, num_key_value_attention_heads=2, cross_attention_dim=4, cross_attention_input_dim=4)
    rates = dict(downsampling_ratios=[1, 2], channel_multiples=[2, 4], sampling_rate=16)
    return dict(
        transformer=diffusers.StableAudioDiTModel(sample_size=16, in_channels=3, out_channels=3, time_proj_dim=8, global_states_input_dim=8, **heads).eval(),
        vae=diffusers.AutoencoderOobleck(encoder_hidden_size=6, decoder_channels=3, decoder_input_channels=3, audio_channels=2, **rates).eval(),
        text_encoder=t5(), tokenizer=tokenizer(), scheduler=diffusers.EDMDPMSolverMultistepScheduler(),
        projection_model=diffusers.StableAudioProjectionModel(text_encoder_dim=32, conditioning_dim=4, min_value=0, max_value=32).eval(),
    )  # fmt: skip


def audioldm2():
    text = dict(hidden_size=8, intermediate_size=37, num_attention_heads=1, num_hidden_layers=1, vocab_size=20, projection_dim=16, pad_token_id=0)
    sound = dict(spec_size=8, window_size=4, num_mel_bins=8, depths=[1, 1], num_attention_heads=[1, 1], num_hidden_layers=1, hidden_size=192, patch_size=2)
    mel = dict(model_in_dim=8, sampling_rate=16000, upsample_initial_channel=16, upsample_rates=[2, 2], upsample_kernel_sizes=[4, 4])
    return dict(
        unet=diffusers.AudioLDM2UNet2DConditionModel(
            block_out_channels=(8, 16), layers_per_block=1, norm_num_groups=4, sample_size=16, in_channels=4, out_channels=4,
            cross_attention_dim=((None, 16, 32),) * 2,  # itself, the language model, T5
            down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"), up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"),
        ).eval(),
        vae=vae(in_channels=1, out_channels=1), scheduler=diffusers.DDIMScheduler(),
        text_encoder=transformers.ClapModel(
            transformers.ClapConfig(text_config=text, audio_config=sound | dict(projection_dim=16, patch_stride=2, patch_embed_input_channels=4), projection_dim=16)
        ).eval(),
        tokenizer=tokenizer(), text_encoder_2=t5(), tokenizer_2=tokenizer(), feature_extractor=transformers.ClapFeatureExtractor(),
        language_model=transformers.GPT2LMHeadModel(transformers.GPT2Config(n_embd=16, n_head=2, n_layer=1, vocab_size=20, n_positions=99)).eval(),
        projection_model=diffusers.AudioLDM2ProjectionModel(text_encoder_dim=16, text_encoder_1_dim=32, langauge_model_dim=16).eval(),
        vocoder=transformers.SpeechT5HifiGan(transformers.SpeechT5HifiGanConfig(**mel, normalize_before=False, initializer_range=0.2)).eval(),
    )  # fmt: skip


def controlled(family, kind, **more):
    """The components and a control net, whose last layers are not zero as they are before training."""

    def make():
        parts = family()
        from_model = kind.from_unet if "unet" in parts else kind.from_transformer
        net = from_model(parts.get("unet", parts.get("transformer")), **more).eval()
        for p in net.parameters():
            if not p.any():
                torch.nn.init.normal_(p, std=0.1)
        return parts | dict(controlnet=net)

    return make


PICTURE = dict(image=IMAGE, strength=0.7)
HOLE = PICTURE | dict(mask_image=MASK)
XL = dict(num_inference_steps=3, height=32, width=32)
VIDEO = dict(height=16, width=16, num_frames=5, num_inference_steps=2)
FRAMES = [numpy.linspace(0, 1, 16 * 16 * 3, dtype="float32").reshape(16, 16, 3) * i / 5 for i in range(1, 6)]
SQUARE = dict(height=32, width=32, use_resolution_binning=False)

TOLD = dict(prompt=None, prompt_embeds=torch.ones(1, 8, 32).cumsum(1).sin(), negative_prompt_embeds=torch.zeros(1, 8, 32))  # these two need ftfy for a prompt

PIPELINES = {
    "StableDiffusionPipeline": (sd, {}),
    "StableDiffusionImg2ImgPipeline": (sd, PICTURE),
    "StableDiffusionInpaintPipeline": (sd, HOLE),
    "StableDiffusionControlNetPipeline": (controlled(sd, diffusers.ControlNetModel, conditioning_embedding_out_channels=(8, 16)), dict(image=IMAGE)),
    "StableDiffusionXLPipeline": (sdxl, {}),
    "StableDiffusionXLImg2ImgPipeline": (sdxl, PICTURE),
    "StableDiffusionXLInpaintPipeline": (sdxl, HOLE),
    "StableDiffusionXLControlNetPipeline": (controlled(sdxl, diffusers.ControlNetModel, conditioning_embedding_out_channels=(8, 16)), dict(image=IMAGE)),
    "StableDiffusion3Pipeline": (sd3, {}),
    "StableDiffusion3Img2ImgPipeline": (sd3, PICTURE),
    "StableDiffusion3InpaintPipeline": (sd3, HOLE | dict(height=32, width=32)),
    "StableDiffusion3ControlNetPipeline": (
        controlled(sd3, diffusers.SD3ControlNetModel, num_layers=1, num_extra_conditioning_channels=0),
        dict(control_image=IMAGE),
    ),
    "FluxPipeline": (flux, dict(height=32, width=32)),
    "FluxImg2ImgPipeline": (flux, PICTURE | dict(height=32, width=32)),
    "FluxInpaintPipeline": (flux, HOLE | dict(height=32, width=32)),
    "FluxControlNetPipeline": (controlled(flux, diffusers.FluxControlNetModel, **FLUX), dict(control_image=IMAGE, height=32, width=32)),
    "PixArtAlphaPipeline": (pixart, SQUARE),
    "PixArtSigmaPipeline": (lambda: pixart(False), SQUARE),
    "WanPipeline": (wan, VIDEO),
    "WanImageToVideoPipeline": (wan_image, VIDEO | TOLD | dict(image=IMAGE[..., :16, :16])),
    "StableAudioPipeline": (stable_audio, dict(audio_end_in_s=1.0)),
    "AudioLDM2Pipeline": (audioldm2, dict(transcription=PROMPT, audio_length_in_s=0.002, max_new_tokens=8)),
    "WanVideoToVideoPipeline": (wan, TOLD | dict(video=FRAMES, height=16, width=16, strength=0.7)),
}


def pipeline(name, device="cpu", dtype=torch.float32):
    torch.manual_seed(0)
    made = getattr(diffusers, name)(**PIPELINES[name][0]()).to(device, dtype)
    made.set_progress_bar_config(disable=True)
    return made


def picture(pipe, **more):
    """What the pipeline makes, on the CPU, from a CPU generator."""
    call = dict(prompt=PROMPT, num_inference_steps=3, output_type="pt", generator=torch.Generator("cpu").manual_seed(0))
    call |= PIPELINES[type(pipe).__name__][1] | more
    device = pipe._execution_device
    return pipe(**{name: value.to(device) if name.endswith("embeds") else value for name, value in call.items()})[0].float().cpu()


@pytest.fixture(autouse=True)
def no_fallback():
    yield
    assert torch.neuron.fallback_counts() == {}


def assert_same(got, want, tolerance=1e-3):
    assert want.std() > 0.01 and want.isfinite().all()
    torch.testing.assert_close(got, want, rtol=0, atol=tolerance)


@pytest.mark.parametrize("name", PIPELINES)
def test_pipeline(name):
    assert_same(picture(pipeline(name, "neuron")), picture(pipeline(name)))


FAMILIES = ["StableDiffusionPipeline", "StableDiffusionXLPipeline", "StableDiffusion3Pipeline", "FluxPipeline", "PixArtSigmaPipeline", "WanPipeline"]
families = pytest.mark.parametrize("name", FAMILIES)


@families
def test_bfloat16(name):
    exact, theirs = picture(pipeline(name)), picture(pipeline(name, dtype=torch.bfloat16))
    ours = picture(pipeline(name, "neuron", torch.bfloat16))
    assert (ours - exact).abs().mean() <= 1.25 * (theirs - exact).abs().mean()


@families
def test_saved_and_loaded_onto_the_device(name, tmp_path):
    made = pipeline(name)
    want = picture(made)
    made.save_pretrained(tmp_path)
    loaded = diffusers.DiffusionPipeline.from_pretrained(tmp_path, device_map="neuron")
    assert type(loaded) is type(made) and loaded.device.type == "neuron"
    assert_same(picture(loaded), want)


@families
@pytest.mark.parametrize("offload", ["enable_model_cpu_offload", "enable_sequential_cpu_offload"])
def test_offload(name, offload):
    want = picture(pipeline(name))

    def check(place):
        """The most memory it takes, weights included."""
        gc.collect()
        before = torch.neuron.memory_allocated()
        torch.neuron.reset_peak_memory_stats()
        made = pipeline(name)
        place(made)
        assert made._execution_device.type == "neuron"
        assert_same(picture(made), want)
        return torch.neuron.max_memory_allocated() - before, [part for part in made.components.values() if isinstance(part, torch.nn.Module)]

    whole, parts = check(lambda made: made.to("neuron"))
    assert all(part.device.type == "neuron" for part in parts)
    offloaded, parts = check(lambda made: getattr(made, offload)(device="neuron"))
    assert all(part.device.type in ("cpu", "meta") for part in parts)
    assert offloaded < whole


@families
@pytest.mark.parametrize("options", [dict(offload_type="block_level", num_blocks_per_group=1), dict(offload_type="leaf_level", use_stream=True)], ids=str)
def test_group_offload(name, options):
    made = pipeline(name)
    want = picture(made)
    made.enable_group_offload(onload_device=torch.device("neuron"), offload_device=torch.device("cpu"), **options)
    assert_same(picture(made), want)


def denoiser(pipe):
    return "unet" if hasattr(pipe, "unet") else "transformer"


@families
def test_compiled_denoiser(name):
    made, want = pipeline(name, "neuron"), picture(pipeline(name))
    part = denoiser(made)
    setattr(made, part, torch.compile(getattr(made, part), backend="neuron"))
    assert_same(picture(made), want)


@families
def test_autocast(name):
    """Weights in float32, products in bfloat16."""

    def made(device):
        with torch.autocast(device, torch.bfloat16):
            return picture(pipeline(name, device))

    exact, theirs, ours = picture(pipeline(name)), made("cpu"), made("neuron")
    assert (ours - exact).abs().mean() <= 1.5 * (theirs - exact).abs().mean()


@pytest.mark.parametrize("name", [FAMILIES[0], "FluxPipeline"])
def test_compiled_for_many_sizes(name):
    """The first size is compiled as it is, the second with sizes that are symbols; the third compiles nothing."""
    made, cpu = pipeline(name, "neuron"), pipeline(name)
    model = getattr(made, denoiser(made))
    model.compile(backend="neuron")
    torch._dynamo.utils.counters.clear()
    for height, width in ((32, 32), (48, 64), (64, 48)):
        compilations = torch._dynamo.utils.counters["stats"]["unique_graphs"]
        size = dict(height=height, width=width)
        assert_same(picture(made, **size), picture(cpu, **size))
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == compilations


@pytest.mark.parametrize("name", [FAMILIES[0], FAMILIES[1], "FluxPipeline", "WanPipeline"])  # the others do not say what is repeated in them
def test_compiled_blocks(name):
    made, want = pipeline(name, "neuron"), picture(pipeline(name))
    getattr(made, denoiser(made)).compile_repeated_blocks(backend="neuron", fullgraph=True)
    assert_same(picture(made), want)


@pytest.mark.parametrize("name", [name for name in FAMILIES if "PixArt" not in name])  # whose model takes no adapters
def test_lora(name, tmp_path):
    peft = pytest.importorskip("peft")
    teacher = pipeline(name)
    part = denoiser(teacher)
    model = getattr(teacher, part)
    model.add_adapter(peft.LoraConfig(r=4, target_modules=["to_q", "to_k", "to_v", "to_out.0"], init_lora_weights=False))
    teacher.save_lora_weights(tmp_path, **{f"{part}_lora_layers": peft.get_peft_model_state_dict(model)})

    def variants(pipe):
        yield "none", picture(pipe)
        pipe.load_lora_weights(tmp_path, adapter_name="style")
        yield "loaded", picture(pipe)
        pipe.set_adapters("style", 0.5)
        yield "half", picture(pipe)
        pipe.set_adapters("style", 1.0)
        pipe.fuse_lora()
        yield "fused", picture(pipe)
        pipe.unfuse_lora()
        yield "unfused", picture(pipe)
        pipe.unload_lora_weights()
        yield "unloaded", picture(pipe)

    got, want = dict(variants(pipeline(name, "neuron"))), dict(variants(pipeline(name)))
    for key in want:
        assert_same(got[key], want[key])
    assert not torch.allclose(want["loaded"], want["none"], atol=1e-2)
    assert_same(got["fused"], got["loaded"])
    assert_same(got["unloaded"], got["none"])


UNETS = FAMILIES[:2]
SWITCHES = {
    "vae slicing": (lambda pipe: pipe.vae.enable_slicing(), FAMILIES),
    "vae tiling": (lambda pipe: pipe.vae.enable_tiling(), FAMILIES),
    "attention slicing": (lambda pipe: pipe.enable_attention_slicing(1), FAMILIES),
    "channels last": (lambda pipe: pipe.unet.to(memory_format=torch.channels_last), UNETS),
    "fused projections": (lambda pipe: getattr(pipe, denoiser(pipe)).fuse_qkv_projections(), [*UNETS, "FluxPipeline", "PixArtSigmaPipeline", "WanPipeline"]),
    "FreeU": (lambda pipe: pipe.enable_freeu(0.9, 0.2, 1.2, 1.4), UNETS),
    "native attention": (lambda pipe: getattr(pipe, denoiser(pipe)).set_attention_backend("native"), FAMILIES),
    "first block cache": (lambda pipe: pipe.transformer.enable_cache(diffusers.FirstBlockCacheConfig(threshold=0.2)), ["FluxPipeline", "WanPipeline"]),
    "pyramid attention": (
        lambda pipe: pipe.transformer.enable_cache(
            diffusers.PyramidAttentionBroadcastConfig(spatial_attention_block_skip_range=2, current_timestep_callback=lambda: pipe.current_timestep)
        ),
        ["FluxPipeline", "WanPipeline"],
    ),
    "float8 weights": (
        lambda pipe: getattr(pipe, denoiser(pipe)).enable_layerwise_casting(storage_dtype=torch.float8_e4m3fn, compute_dtype=torch.float32), FAMILIES
    ),
}  # fmt: skip


@pytest.mark.parametrize("switch, name", [(switch, name) for switch, (_, names) in SWITCHES.items() for name in names])
def test_switch(switch, name):
    def made(device):
        pipe = pipeline(name, device)
        SWITCHES[switch][0](pipe)
        return picture(pipe, **{} if name == "WanPipeline" else dict(num_images_per_prompt=2), height=64, width=64)  # larger than a tile

    assert_same(made("neuron"), made("cpu"))


def test_generators():
    """Noise comes from the CPU's generator, or for this device's from its own; without any, torch.manual_seed() decides."""

    def seeded(device):
        torch.manual_seed(5)
        return picture(pipeline(FAMILIES[0], device), generator=None)

    assert_same(seeded("neuron"), seeded("cpu"))
    pipe = pipeline(FAMILIES[0], "neuron")
    first, again, other = (picture(pipe, generator=torch.Generator("neuron").manual_seed(seed)) for seed in (3, 3, 4))
    assert torch.equal(first, again) and not torch.allclose(first, other, atol=1e-2)
    listed = picture(pipe, prompt=[PROMPT] * 2, generator=[torch.Generator("neuron").manual_seed(seed) for seed in (3, 4)])
    assert_same(listed, torch.cat([first, other]))


@families
@pytest.mark.parametrize("checkpointing", [False, True])
def test_training(name, checkpointing):
    """Three steps of fine-tuning as the example scripts do them: what they predict of the noise, AdamW, and a moving average of the weights."""

    def losses(device):
        pipe = pipeline(name, device)
        model = getattr(pipe, denoiser(pipe)).train()
        if checkpointing:
            model.enable_gradient_checkpointing()
        average = diffusers.training_utils.EMAModel(model.parameters(), decay=0.9)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        seen = []
        call = model.forward

        def keep(*args, **kwargs):
            seen.append((args, kwargs))
            return call(*args, **kwargs)

        model.forward = keep  # the inputs of a step are those the pipeline makes
        picture(pipe)
        model.forward = call
        for args, kwargs in seen[:3]:
            output = model(*args, **kwargs)[0]
            target = torch.linspace(-1, 1, output.numel(), device=device).view_as(output)
            loss = torch.nn.functional.mse_loss(output, target)
            loss.backward()
            norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
            average.step(model.parameters())
            yield from (loss.item(), norm.item())
        average.copy_to(model.parameters())
        yield sum(p.detach().abs().sum().item() for p in model.parameters())

    assert list(losses("neuron")) == pytest.approx(list(losses("cpu")), rel=1e-4)
