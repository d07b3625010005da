"""Every causal language model of Transformers, tiny: the same weights and inputs on the CPU and on the device, and whether the results agree.

`examine(model_type, mode)` says "pass", "fail" or "CPU cannot", and why. The last is for what the CPU has no result of: it raises, gives NaN, has no static
cache, or compiles again. test_architectures.py asserts it, architectures_page.py writes docs/architectures.md from it.
"""

import copy
import dataclasses
import os
import re
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import nullcontext
from multiprocessing import get_context
from unittest import mock

import torch
import transformers
from tiny import configure, move
from torch._dynamo.utils import counters
from transformers.models.auto.configuration_auto import CONFIG_MAPPING
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES as NAMES

VOCABULARY, NEW = 128, 8
CANNOT = "CPU cannot"
# Small values of the fields that configurations call their sizes by, where the default is a positive number.
SIZES = {
    64: "hidden_size d_model n_embd emb_dim embed_dim lru_width word_embed_proj_dim backbone_hidden_size vision_output_dim projector_input_dim "
    "projector_output_dim out_hidden_size embedding_size hidden_size_global adapter_in_dim adapter_out_dim adapter_input_size",
    4: "num_attention_heads n_head n_heads num_heads encoder_attention_heads decoder_attention_heads attention_heads swa_num_attention_heads "
    "num_encoder_attention_heads num_decoder_attention_heads linear_num_heads linear_num_value_heads conf_num_attention_heads index_n_heads "
    "num_attention_heads_per_layer num_experts num_local_experts n_routed_experts moe_num_experts zero_expert_num index_topk",
    2: "num_key_value_heads num_kv_heads swa_num_key_value_heads linear_num_key_heads kv_n_heads n_langs n_group num_experts_per_tok moe_topk moe_k "
    "moe_top_k num_hidden_layers n_layer n_layers num_layers encoder_layers decoder_layers num_encoder_layers num_decoder_layers num_blocks "
    "num_global_layers depth",
    16: "head_dim swa_head_dim d_head dim_head attention_head_dim attention_head_size kv_channels linear_head_dim linear_key_head_dim linear_value_head_dim "
    "v_head_dim qk_nope_head_dim index_head_dim query_pre_attn_scalar mamba_head_dim",
    8: "qk_rope_head_dim rotary_dim sliding_window sliding_window_size attention_chunk_size attention_window_size window_size state_size "
    "local_attention_window_len keep_window_size mamba_d_state ssm_state_size time_step_rank mamba_dt_rank d_rel index_block_size chunk_size "
    "mamba_chunk_size",
    128: "intermediate_size encoder_ffn_dim decoder_ffn_dim ffn_dim d_inner dim_ff dff d_ff ffn_hidden_size intermediate_size_mlp feed_forward_size "
    "dense_intermediate_size vocab_size vocab_size_per_layer_input decoder_vocab_size audio_vocab_size max_position_embeddings n_positions n_ctx "
    "max_seq_len max_target_positions max_source_positions context_length rel_extent",
    32: "moe_intermediate_size shared_expert_intermediate_size shared_experts_intermediate_size shared_intermediate_size expert_ffn_hidden_size "
    "moe_shared_expert_intermediate_size router_hidden_size q_lora_rank kv_lora_rank o_lora_rank laurel_rank adapter_rank loop_gate_rank gated_norm_rank "
    "hc_lowrank hidden_size_per_layer_input image_size",
    1: "topk_group n_shared_experts num_shared_experts moe_num_shared_experts first_k_dense_replace num_dense_layers max_window_layers n_groups "
    "mamba_n_groups mamba_ngroups index_topk_blocks index_local_blocks",
    0: "num_nextn_predict_layers num_mtp_layers",
    VOCABULARY - 4: "unpadded_vocab_size",
}
SIZES = {name: size for size, names in SIZES.items() for name in names.split()}
TOKENS = dict(pad_token_id=0, bos_token_id=1, eos_token_id=2, decoder_start_token_id=1)
LAYERS = ("num_hidden_layers", "num_layers", "n_layer", "n_layers", "decoder_layers")
INDICES = ("moe_layers", "mlp_only_layers", "full_attn_idxs", "cross_attention_layers")  # lists of the layers that are special
MAMBA = dict(mamba_n_heads=8, mamba_d_head=16)
HYBRID = dict(num_hidden_layers=4, layer_types=["sliding_attention", "full_attention"] * 2, num_kv_shared_layers=2)  # the last two share the first two's keys

# What a configuration needs beside that, by the model type of the whole or of a part.
CONFIGURATIONS = {
    "bamba": dict(attn_layer_indices=[1], **MAMBA),
    "blt": dict(num_hidden_layers=2, encoder_hash_byte_group_vocab=64, encoder_hash_byte_group_size=[3, 4]),
    "cohere_compass_text": dict(num_hidden_layers=2, layer_types=["sliding_attention", "full_attention"], rope_parameters=dict(full_attention=None,
        sliding_attention=dict(rope_type="default", rope_theta=10000.0, mrope_section=[3, 3, 2]))),
    "dbrx": dict(attn_config=dict(kv_n_heads=2, clip_qkv=8, rope_theta=10000.0), ffn_config=dict(hidden_size=64, ffn_hidden_size=32, moe_num_experts=4,
        moe_top_k=2)),
    "deepseek_v2": dict(num_experts_per_tok=2, first_k_dense_replace=1),
    "deepseek_v4": dict(compress_rates=dict(compressed_sparse_attention=2, heavily_compressed_attention=4)),
    "dory": dict(num_hidden_layers=4, n_input_layers=1, n_recurrent_layers=2, n_output_layers=1, layer_types=["sliding_attention", "full_attention"] * 2),
    "dots1": dict(n_routed_experts=4, num_experts_per_tok=2, n_shared_experts=1, first_k_dense_replace=1),
    "dots3_note_text": dict(head_dim=24),
    "falcon_h1": dict(mamba_d_ssm=128, **MAMBA),
    "gemma3n_text": HYBRID | dict(activation_sparsity_pattern=[0.95, 0.0] * 2, intermediate_size=128),
    "gemma4_text": HYBRID | dict(per_layer_config={1: dict(head_dim=32), 3: dict(head_dim=32)}),
    "gemma4_assistant": dict(text_config=dict(hidden_size_per_layer_input=0, vocab_size_per_layer_input=0, num_kv_shared_layers=4)),
    "gemma4_unified_assistant": dict(text_config=dict(num_kv_shared_layers=2)),
    "gpt_neo": dict(num_layers=2, attention_types=[[["global", "local"], 1]]),
    "granitemoehybrid": dict(num_hidden_layers=2, layer_types=["linear_attention", "full_attention"], **MAMBA),
    "jamba": dict(attn_layer_period=2, attn_layer_offset=1, expert_layer_period=2, expert_layer_offset=1),
    "lfm2": dict(num_hidden_layers=2, layer_types=["conv", "full_attention"]),
    "lfm2_moe": dict(num_hidden_layers=2, layer_types=["conv", "full_attention"]),
    "longcat_flash": dict(head_dim=8, qk_head_dim=24),
    "mamba2": dict(num_heads=8),
    "qwen4_exp_text": dict(indexer_n_heads=4, indexer_kv_heads=1, indexer_head_dim=16, indexer_budget=8, indexer_compress_ratio=2, ple_layer_ids=[1],
        ple_embed_dim=64, heads_per_ngram=2, ngram_vocab_size_base=50, make_ngram_vocab_size_divisible_by=8, split_ngram_parts=1, eos_token_id=2),
    "recurrent_gemma": dict(num_hidden_layers=3),
    "reformer": dict(num_hidden_layers=2, attn_layers=["local", "lsh"], axial_pos_shape=[4, 8], axial_pos_embds_dim=[32, 32], local_attn_chunk_length=4,
        lsh_attn_chunk_length=4, num_buckets=4, hash_seed=0, max_position_embeddings=32),
    "roc_bert": dict(pronunciation_vocab_size=16, pronunciation_embed_dim=16, shape_vocab_size=16, shape_embed_dim=16),
    "xlstm": dict(hidden_size=128, embedding_dim=128),
    "xmod": dict(default_language="en_XX"),
    "zamba": dict(num_hidden_layers=4, layers_block_type=["linear_attention", "hybrid"] * 2),
    "zaya": dict(num_experts_per_tok=1),
}  # fmt: skip


def sizes(kind):
    """Small values for a configuration class, from those of its default: the fewest layers that show every kind, two at least."""
    own = CONFIGURATIONS.get(kind.model_type, {})
    try:
        default = vars(kind())
    except Exception:  # Gemma 4's assistant: its own defaults do not fit each other
        default = {field.name: field.default for field in dataclasses.fields(kind) if field.default is not dataclasses.MISSING}
    fields = {field.name: default.get(kind.attribute_map.get(field.name, field.name)) for field in dataclasses.fields(kind) if field.name not in own}
    count = next((fields[name] for name in LAYERS if isinstance(fields.get(name), int)), 0)
    by_layer = {name: value for name, value in fields.items() if isinstance(value, (list, tuple)) and len(value) == count > 1 and name not in INDICES}
    kinds = [repr([value[i] for value in by_layer.values()]) for i in range(count)]
    kept = sorted({kinds.index(each) for each in kinds})[:6]
    kept = [0, 1] if len(kept) == 1 else kept
    small = SIZES | (dict(num_key_value_heads=4) if "kv_lora_rank" in fields else {})  # heads made from one latent vector: no groups
    chosen, special = {}, VOCABULARY
    for name, value in fields.items():
        if name in kind.sub_configs:
            if value is None:
                chosen[name] = None
        elif name.endswith(("_token_id", "_token_index")) or name in ("unk_index", "mask_index"):
            if value is not None:
                special -= 1
                chosen[name] = TOKENS.get(name, special)
        elif name in INDICES and value and kept:
            chosen[name] = [kept.index(i) for i in value if i in kept]
        elif name in by_layer:
            chosen[name] = [small.get(name, value[i]) for i in kept]
        elif name.startswith("rope_") and isinstance(value, dict):
            chosen[name] = {key: 32 if key == "original_max_position_embeddings" else item for key, item in value.items() if key != "mrope_section"}
        elif name in ("initializer_range", "init_std", "embedding_initializer_range", "embed_init_std", "initializer_factor"):
            chosen[name] = 0.15
        elif name == "is_decoder":
            chosen[name] = True
        elif value is None and name in ("head_dim", "num_key_value_heads"):
            chosen[name] = small[name]
        elif type(value) is int and value > 0 and name in small and (name, value) != ("n_group", 1):
            chosen[name] = len(kept) if name in LAYERS and kept else small[name]
    if spec := default.get("_heterogeneity_spec"):  # what differs from layer to layer without being a list
        layers = {kept.index(i): values for i, values in spec.per_layer_overrides.items() if i in kept}
        chosen["per_layer_config"] = {
            i: {name: 2 * small[name] if name == "head_dim" else small.get(name, value) for name, value in values.items()} for i, values in layers.items()
        }
    return chosen | own


# Models


DRAFTS = {"gemma4_assistant": "gemma4", "gemma4_unified_assistant": "gemma4_unified"}  # a draft model and the one it drafts for


def build(model_type, dtype=torch.float32, **values):
    """The model with seeded random weights, on the CPU."""
    name = NAMES[model_type]
    kind = getattr(transformers, name if isinstance(name, str) else name[0])
    config = configure(CONFIG_MAPPING[model_type], values, sizes)
    if type(config) is not kind.config_class:  # the class is the text half of a composite
        config = next((part for part in vars(config).values() if type(part) is kind.config_class), config)
    torch.manual_seed(0)
    with without_timm(model_type):
        model = kind._from_config(config, dtype=dtype).eval()
    with torch.no_grad():  # noise where an initial 0 or 1 would hide what a parameter does; some weights are left as the memory was
        for p in model.parameters():
            if p.is_floating_point():
                p.nan_to_num_(0, 0, 0).clamp_(-100, 100).add_(torch.randn(p.shape), alpha=0.05)
    start = VOCABULARY if model_type.startswith("musicgen") else 1  # its codebooks have a token of their own for it
    model.generation_config = transformers.GenerationConfig(
        max_new_tokens=NEW, do_sample=False, num_beams=1, num_return_sequences=1, pad_token_id=0, bos_token_id=1, decoder_start_token_id=start,
        num_assistant_tokens=3, num_assistant_tokens_schedule="constant",
    )  # fmt: skip
    return model


def lower(model, model_type, dtype):
    """The model in `dtype` as from_pretrained(dtype=...) loads it: buffers, and what the class keeps in float32, stay as they are."""
    low = build(model_type, dtype)
    low.load_state_dict(model.state_dict())
    keep = getattr(model, "_keep_in_fp32_modules_strict", None) or ()
    for name, p in low.named_parameters():
        if p.is_floating_point():
            kept = any(re.search(rf"(^|\.){re.escape(each)}($|\.)", name) for each in keep)
            p.data = model.get_parameter(name).detach().to(torch.float32 if kept else dtype, copy=True)
    return low


def without_timm(model_type):
    """Gemma 3n's image tower comes from timm; text does not run it."""
    if model_type != "gemma3n":
        return nullcontext()
    auto = transformers.models.gemma3n.modeling_gemma3n.AutoModel
    made = auto.from_config
    return mock.patch.object(auto, "from_config", lambda config, **more: torch.nn.Identity() if "vision" in config.model_type else made(config, **more))


def drawn_on_cpu(model_type):
    """Reformer draws its hash functions where its vectors are: two generators draw different ones."""
    if model_type != "reformer":
        return nullcontext()
    draw = torch.randn
    return mock.patch.object(torch, "randn", lambda *size, device=None, **more: draw(*size, **more).to(device))


# Inputs


def inputs(model, model_type, mode):
    generate = mode in ("generate", "static")
    seed = torch.Generator().manual_seed(1)
    ids = torch.randint(5, 100, (2, 32 if (model_type, mode) == ("reformer", "backward") else 12), generator=seed)
    mask = torch.ones_like(ids)
    if model_type.startswith("musicgen"):  # a row for each codebook, and no padding
        rows = torch.randint(5, 100, (2 * model.num_codebooks, 12), generator=seed)
        return dict(input_ids=rows) | (dict(labels=rows.view(2, -1, 12).transpose(1, 2)) if mode == "backward" else {})
    if model_type in DRAFTS and not generate:  # in place of tokens, the states of the model it drafts for
        config = model.config.get_text_config()
        states = {}
        for kind, layer in zip(config.layer_types, config.per_layer_config):
            states[kind] = tuple(torch.randn(2, layer.num_key_value_heads, 12, layer.head_dim, generator=seed) for _ in "kv")
        width = 2 * model.config.backbone_hidden_size
        return dict(inputs_embeds=torch.randn(2, 1, width, generator=seed), shared_kv_states=states, position_ids=torch.full((2, 1), 12))
    if generate:
        ids[1, :2] = mask[1, :2] = 0
    given = dict(input_ids=ids, attention_mask=mask)
    if generate and model_type in DRAFTS:  # assisted generation takes one sequence
        return {name: value[:1] for name, value in given.items()}
    if mode == "backward":
        given["labels"] = ids
    if model_type == "git":
        size = model.config.vision_config.image_size
        given["pixel_values"] = torch.randn(2, 3, size, size, generator=seed)
    if model_type == "xlstm" and mode == "backward":  # its cache is updated in place, which backward cannot follow
        given["use_cache"] = False
    return given


# Modes: each gives (name, CPU tensor) of what is compared


class Cannot(Exception):
    """The CPU has no result to compare with."""


def on(device, tensor):
    assert tensor.device.type == device, f"the result is on {tensor.device}"
    return tensor.detach().float().cpu()


def forward(model, given, device):
    with torch.no_grad():
        output = model(**given)
    return {"logits": on(device, output["logits"] if "logits" in output else output[0])}


def backward(model, given, device):
    model.train()
    output = model(**given)
    loss = output.get("loss")
    if loss is None:  # a model that has none
        loss = output[0].float().log_softmax(-1)[..., 7].neg()
    loss.mean().backward()
    return {"loss": on(device, loss.mean())} | {name: p.grad.float().cpu() for name, p in model.named_parameters() if p.grad is not None}


def generate(model, given, device, **options):
    """Tokens; on the CPU the logits that chose them as well."""
    reference = device == "cpu"
    with torch.no_grad():
        output = model.generate(**given, return_dict_in_generate=True, output_logits=reference, **options)
    tokens = on(device, output.sequences).long()
    if reference and tokens.shape[-1] != given["input_ids"].shape[-1] + NEW:
        raise Cannot(f"generates {tokens.shape[-1] - given['input_ids'].shape[-1]} tokens, not {NEW}")
    return {"tokens": tokens} | ({"logits": torch.stack([step.float().cpu() for step in output.logits])} if reference else {})


def static(model, given, device):
    """With a static cache. On the CPU not compiled, which is of interest only where the device fails: it takes seconds."""
    if not model._supports_default_dynamic_cache():
        raise Cannot("has a cache of its own: takes no static one")
    if device == "cpu":
        return generate(model, given, device, cache_implementation="static", disable_compile=True)
    return compiled(model, given, device, "neuron")


def compiled(model, given, device, backend):
    """Twice, compiled: the second call has the tokens of the first and compiles nothing."""
    config = transformers.CompileConfig(backend=backend)
    config._compile_all_devices = True  # without it Transformers compiles for the devices of its own list only
    torch._dynamo.reset()
    calls, frames = [], [counters["frames"]["total"]]
    for _ in range(2):
        calls.append(generate(model, given, device, cache_implementation="static", compile_config=config))
        frames.append(counters["frames"]["total"])
    torch._dynamo.reset()
    assert frames[2] == frames[1], f"compiles {frames[2] - frames[1]} graphs in the second call"
    assert torch.equal(calls[0]["tokens"], calls[1]["tokens"]), "the second call has other tokens"
    return calls[0] | {"compiled": torch.tensor(frames[1] > frames[0])}


MODES = {"forward": forward, "backward": backward, "generate": generate, "static": static, "bfloat16": forward}


# Comparisons


def same_tokens(got, want, tolerance):
    """Equal, or where a row parts, a tie of the CPU's own logits."""
    tokens, wanted = (each["tokens"].flatten(0, -2) for each in (got, want))
    logits = want["logits"]  # step, row, token
    assert tokens.shape == wanted.shape, f"tokens of shape {list(tokens.shape)}, on the CPU {list(wanted.shape)}"
    for row, (mine, theirs) in enumerate(zip(tokens, wanted)):
        if torch.equal(mine, theirs):
            continue
        position = (mine != theirs).nonzero()[0].item()
        step = position - wanted.shape[1] + len(logits)
        gap = logits[step, row, theirs[position]] - logits[step, row, mine[position]] if step >= 0 else torch.inf
        scale = logits[step, row].abs().clamp(max=1e30).max()
        assert gap <= tolerance * scale, f"row {row}: {mine.tolist()}, on the CPU {theirs.tolist()}"


def distance(a, b):
    """Of the median position: a router's choice between equals may fall either way in bfloat16, and changes a position altogether."""
    assert torch.equal(a.isfinite(), b.isfinite()), "NaN where the CPU has none"
    a, b = a.where(b.isfinite(), 0), b.where(b.isfinite(), 0)
    return ((a - b).square().mean(-1).sqrt().median() / b.square().mean().sqrt()).item()


def compare(mode, got, want):
    if mode in ("generate", "static"):
        same_tokens(got, want, 1e-3)
        return
    assert got.keys() == want.keys(), f"gradients on one side only: {sorted(got.keys() ^ want.keys())[:3]}"
    scale = max(value.abs().max().item() for value in want.values() if value.numel())
    for name, value in want.items():
        finite = value.isfinite()
        assert got[name].shape == value.shape and torch.equal(got[name].isfinite(), finite), f"{name}: NaN where the CPU has none, or another shape"
        error = (got[name] - value)[finite].abs().max().item() if finite.any() else 0
        bound = 1e-3 * max(value[finite].abs().max().item(), 1e-2 * scale) if finite.any() else 0
        assert error <= bound, f"{name} differs by {error:.1e}, more than {bound:.1e}"


def examine(model_type, mode):
    """(verdict, reason) of one model type in one mode."""
    run = MODES[mode]
    torch.neuron.clear_op_tracking()
    try:
        # Cached decoding of Reformer has no path beyond one chunk of hashed keys.
        long = dict(lsh_attn_chunk_length=32) if model_type == "reformer" and mode in ("generate", "static") else {}
        cpu = build(model_type, **long)
        given = inputs(cpu, model_type, mode)
        low = lower(cpu, model_type, torch.bfloat16) if mode == "bfloat16" else cpu
        device, here = copy.deepcopy(low), given
        there = move(move(given, torch.bfloat16) if low is not cpu else given, "neuron")
        if model_type in DRAFTS and run in (generate, static):
            target = build(DRAFTS[model_type])
            here, there = dict(here, assistant_model=cpu), dict(there, assistant_model=device.to("neuron"))
            cpu, device = target, copy.deepcopy(target)
        with drawn_on_cpu(model_type):
            want = run(cpu, here, "cpu")
            if low is not cpu and mode == "bfloat16":
                own = distance(run(low, move(given, torch.bfloat16), "cpu")["logits"], want["logits"])
        if not all(value.isfinite().any() for value in want.values()) or mode == "backward" and not all(value.isfinite().all() for value in want.values()):
            raise Cannot("gives NaN")
    except Exception as error:
        return CANNOT, words(error)
    try:
        with drawn_on_cpu(model_type):
            got = run(device.to("neuron"), there, "neuron")
        if mode == "bfloat16":
            far = distance(got["logits"], want["logits"])
            assert far <= max(2 * own, 2**-8), f"{far:.1e} from float32, the CPU's bfloat16 {own:.1e}"
        else:
            compare(mode, got, want)
        assert torch.neuron.fallback_counts() == {}, f"fallbacks: {torch.neuron.fallback_counts()}"
        if mode == "static" and not got["compiled"]:
            assert not compiled(cpu, here, "cpu", "eager")["compiled"], "nothing was compiled"
            return "pass", "Transformers does not compile it, on the CPU neither"
    except Exception as error:
        if mode == "static":
            try:
                compiled(cpu, here, "cpu", "eager")
            except Exception as cannot:
                return CANNOT, words(cannot)
        return "fail", words(error)
    return "pass", ""


def words(error):
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [repr(error)]
    lines = lines[1:] if lines[0].endswith(":") and lines[1:] else lines
    kind = "" if isinstance(error, (Cannot, AssertionError)) else f"{type(error).__name__}: "
    return (kind + lines[0])[:200]


# Another process examines: a crash costs one case, and the next has a new process


def _start():
    import logging
    import warnings

    warnings.filterwarnings("ignore")
    transformers.logging.set_verbosity_error()
    logging.disable(logging.WARNING)


class Examiner:
    def __init__(self):
        os.environ.update(HF_HUB_OFFLINE="1", TORCH_NEURONX_FALLBACK="error")  # read by the new process's imports
        self.pool = None

    def __call__(self, model_type, mode, seconds=600):
        if self.pool is None:
            self.pool = ProcessPoolExecutor(1, get_context("spawn"), _start, max_tasks_per_child=100)
        try:
            return self.pool.submit(examine, model_type, mode).result(seconds)
        except (BrokenProcessPool, TimeoutError) as error:
            for process in list((self.pool._processes or {}).values()):
                process.kill()
            self.close()
            return "fail", "the process ended" if isinstance(error, BrokenProcessPool) else f"took more than {seconds} s"

    def close(self):
        if self.pool is not None:
            self.pool.shutdown()
            self.pool = None
