"""The classes behind Transformers' pipelines: vision, speech, image and text, encoders and encoder-decoders, on the device and on the CPU.

A case is a class, its inputs, and what its tiny configuration needs beyond SMALL; weights and inputs are the same on both devices. Outputs are equal to 1e-4 of the
tensor's largest magnitude, gradients to 1e-3 of the number or 1e-4 of the model's largest; what generate() returns is equal. A fallback is an error (conftest.py).
"""

import copy
import dataclasses

import pytest
import torch

transformers = pytest.importorskip("transformers")
from tiny import configure, move  # noqa: E402

TOKENS = "tokens"  # labels: what is to be predicted is the input
IMAGE = 98  # the token that stands for a piece of an image
# What configurations call their sizes; each takes what it knows.
SMALL = dict(
    vocab_size=99, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, head_dim=8,
    max_position_embeddings=64, type_vocab_size=2, initializer_range=0.1, projection_dim=32,
    d_model=32, d_ff=64, d_kv=8, num_layers=2, num_heads=4, embed_dim=32, depth=2, image_size=32, patch_size=8,
    encoder_layers=2, encoder_attention_heads=4, encoder_ffn_dim=64, decoder_layers=2, decoder_attention_heads=4, decoder_ffn_dim=64,
    pad_token_id=0, bos_token_id=1, eos_token_id=2, decoder_start_token_id=1,
)  # fmt: skip


def sizes(kind):
    """What a configuration class knows of SMALL."""
    fields = {field.name for field in dataclasses.fields(kind)}
    names = {kind.attribute_map.get(name, name): value for name, value in SMALL.items()}
    return {name: value for name, value in names.items() if name in fields}


# Inputs: functions that make CPU tensors, called after the generator is seeded. Keyword arguments are further inputs, or functions that make those.


def made(inputs):
    return {name: value() if callable(value) else value for name, value in inputs.items()}


def ids(length=12, low=3, high=90):
    return torch.randint(low, high, (2, length))


def text(labels=None, **more):
    def make():
        mask = torch.ones(2, 12, dtype=torch.long)
        mask[1, 9:] = 0
        tokens = ids()
        return dict(input_ids=tokens, attention_mask=mask) | made(more) | ({} if labels is None else dict(labels=tokens if labels is TOKENS else labels))

    return make


def seq2seq():
    return text()() | dict(decoder_input_ids=ids(5))


def image(size=32, channels=3, **more):
    return lambda: dict(pixel_values=torch.randn(2, channels, size, size)) | made(more)


def picture_and_text(**more):
    return lambda: text()() | image()() | made(more)


def tell(pieces, token=IMAGE, labels=True, **pixels):
    """A prompt in which `pieces` tokens stand for the image."""

    def make():
        tokens = torch.cat([ids(3), torch.full((2, pieces), token), ids(5)], 1)
        given = dict(input_ids=tokens, attention_mask=torch.ones_like(tokens)) | image()() | made(pixels)
        if labels:
            given["labels"] = tokens.where(tokens != token, -100)
        if "image_grid_thw" in given:
            given["mm_token_type_ids"] = (tokens == token).long()
        return given

    return make


def patches(width, grid=(1, 4, 4)):
    """Images already cut to pieces, as the Qwen-VL processors do."""
    count = grid[0] * grid[1] * grid[2]
    return dict(pixel_values=lambda: torch.randn(2 * count, width), image_grid_thw=lambda: torch.tensor([grid] * 2))


def wave(length=800, **more):
    return lambda: dict(input_values=torch.randn(2, length)) | made(more)


def mel(*shape, **more):
    return lambda: dict(input_features=torch.randn(2, *shape)) | made(more)


def boxes(count=2):
    return [dict(class_labels=torch.tensor([1, 0][:count]), boxes=torch.rand(count, 4) * 0.4 + 0.3) for _ in range(2)]


PAIR = torch.tensor([0, 1])
SEGMENTS = torch.arange(2 * 64 * 64).view(2, 64, 64) // 3 % 2
CONV = dict(
    conv_dim=(16, 16, 16), conv_kernel=(8, 3, 3), conv_stride=(4, 2, 2), num_feat_extract_layers=3, num_conv_pos_embeddings=16, num_conv_pos_embedding_groups=2,
    mask_time_length=2,
)  # fmt: skip
RESNET = dict(model_type="resnet", embedding_size=8, hidden_sizes=[8, 8, 16, 16], depths=[1] * 4, out_features=["stage2", "stage3", "stage4"], layer_type="basic")
SWIN = dict(embed_dim=16, depths=[1, 1], num_heads=[2, 2], window_size=2, patch_size=4)
SWIN4 = dict(model_type="swin", embed_dim=8, depths=[1] * 4, num_heads=[1, 1, 2, 2], window_size=2, patch_size=4, out_features=[f"stage{i}" for i in (1, 2, 3, 4)])
ROPE = dict(rope_parameters=dict(rope_type="default", rope_theta=10000.0, mrope_section=[1, 1, 2]))

MODELS = {
    # encoders of text
    "BertForMaskedLM": (text(TOKENS), {}),
    "BertForSequenceClassification": (text(PAIR), {}),
    "BertForQuestionAnswering": (text(start_positions=PAIR, end_positions=PAIR + 3), {}),
    "RobertaForTokenClassification": (text(torch.arange(24).view(2, 12) % 2), {}),
    "XLMRobertaModel": (text(), {}),
    "DistilBertForMaskedLM": (text(TOKENS), dict(dim=32, hidden_dim=64, n_layers=2, n_heads=4)),
    "AlbertForMaskedLM": (text(TOKENS), dict(embedding_size=16)),
    "ElectraForPreTraining": (text(torch.arange(24).view(2, 12) % 2), dict(embedding_size=16)),
    "DebertaForMaskedLM": (text(TOKENS), dict(relative_attention=True, pos_att_type=["c2p", "p2c"])),
    "DebertaV2ForSequenceClassification": (text(PAIR), dict(relative_attention=True, pos_att_type=["c2p", "p2c"], position_buckets=8, share_att_key=True,
        norm_rel_ebd="layer_norm")),
    "ModernBertForMaskedLM": (text(TOKENS), dict(local_attention=4)),
    "MPNetModel": (text(), {}),
    "LongformerForMaskedLM": (text(TOKENS), dict(attention_window=4, max_position_embeddings=70)),
    "BigBirdForMaskedLM": (text(TOKENS), dict(attention_type="original_full")),
    "FNetForMaskedLM": (lambda: dict(input_ids=ids(), labels=ids()), {}),
    "RoFormerForMaskedLM": (text(TOKENS), dict(embedding_size=16)),
    "XLNetLMHeadModel": (text(), dict(n_layer=2, n_head=4, d_inner=64)),
    "XLMWithLMHeadModel": (text(), dict(emb_dim=32, n_layers=2, n_heads=4)),
    "FunnelForMaskedLM": (text(TOKENS), dict(block_sizes=[1, 1], d_head=8, n_head=4, d_inner=64, num_decoder_layers=1)),
    "CanineModel": (text(), dict(num_hash_buckets=64, local_transformer_stride=8)),
    "PerceiverForMaskedLM": (lambda: dict(inputs=ids(64), labels=ids(64)), dict(num_latents=8, d_latents=32, qk_channels=32, v_channels=32,
        num_self_attends_per_block=1, num_self_attention_heads=2, num_cross_attention_heads=2)),
    "LayoutLMForTokenClassification": (text(bbox=torch.tensor([[[1, 2, 30, 40]] * 12] * 2)), dict(max_2d_position_embeddings=64)),
    "DPRQuestionEncoder": (text(), {}),
    "NomicBertModel": (text(), {}),
    # encoder and decoder of text
    "T5ForConditionalGeneration": (seq2seq, {}),
    "MT5ForConditionalGeneration": (seq2seq, {}),
    "UMT5ForConditionalGeneration": (seq2seq, {}),
    "LongT5ForConditionalGeneration": (seq2seq, dict(local_radius=4)),
    "SwitchTransformersForConditionalGeneration": (seq2seq, dict(num_experts=4, num_sparse_encoder_layers=1, num_sparse_decoder_layers=1, num_decoder_layers=2)),
    "BartForConditionalGeneration": (seq2seq, {}),
    "MBartForConditionalGeneration": (seq2seq, {}),
    "PegasusForConditionalGeneration": (seq2seq, {}),
    "MarianMTModel": (seq2seq, {}),
    "BlenderbotForConditionalGeneration": (seq2seq, {}),
    "M2M100ForConditionalGeneration": (seq2seq, {}),
    "LEDForConditionalGeneration": (seq2seq, dict(attention_window=4, max_encoder_position_embeddings=64, max_decoder_position_embeddings=64)),
    "ProphetNetForConditionalGeneration": (seq2seq, dict(num_encoder_layers=2, num_decoder_layers=2, num_encoder_attention_heads=4,
        num_decoder_attention_heads=4)),
    "T5GemmaForConditionalGeneration": (seq2seq, {}),
    # vision
    "ViTForImageClassification": (image(labels=PAIR), {}),
    "DeiTForImageClassification": (image(labels=PAIR), {}),
    "BeitForImageClassification": (image(labels=PAIR), dict(use_relative_position_bias=True)),
    "ViTMAEForPreTraining": (image(noise=lambda: torch.rand(2, 16)), dict(decoder_hidden_size=32, decoder_num_hidden_layers=1, decoder_num_attention_heads=4,
        decoder_intermediate_size=64)),
    "ResNetForImageClassification": (image(64, labels=PAIR), {k: v for k, v in RESNET.items() if k != "model_type"}),
    "RegNetForImageClassification": (image(labels=PAIR), dict(embedding_size=8, hidden_sizes=[8, 16, 16, 32], depths=[1] * 4, groups_width=4)),
    "ConvNextForImageClassification": (image(labels=PAIR), dict(hidden_sizes=[8, 16], depths=[1, 1], num_stages=2, patch_size=4)),
    "ConvNextV2ForImageClassification": (image(labels=PAIR), dict(hidden_sizes=[8, 16], depths=[1, 1], num_stages=2, patch_size=4)),
    "SwinForImageClassification": (image(labels=PAIR), SWIN),
    "Swinv2ForImageClassification": (image(labels=PAIR), SWIN),
    "Swin2SRForImageSuperResolution": (image(16), SWIN | dict(image_size=16, patch_size=1, upscale=2, num_feature_upsample=8, num_channels_out=3)),
    "Dinov2ForImageClassification": (image(labels=PAIR), {}),
    "Dinov2WithRegistersModel": (image(), {}),
    "DINOv3ViTModel": (image(), {}),
    "IJepaModel": (image(), {}),
    "EfficientNetForImageClassification": (image(labels=PAIR), dict(width_coefficient=0.25, depth_coefficient=0.25, in_channels=[32, 16], out_channels=[16, 24],
        kernel_sizes=[3, 5], depthwise_padding=[], strides=[1, 2], num_block_repeats=[1, 1], expand_ratios=[1, 6], hidden_dim=320)),
    "MobileNetV2ForImageClassification": (image(64, labels=PAIR), dict(depth_multiplier=0.25)),
    "MobileViTForImageClassification": (image(64, labels=PAIR), dict(hidden_sizes=[16, 16, 16], neck_hidden_sizes=[4, 8, 8, 8, 8, 16, 32], patch_size=2)),
    "PoolFormerForImageClassification": (image(64, labels=PAIR), dict(depths=[1] * 4, hidden_sizes=[8, 8, 16, 16])),
    "CvtForImageClassification": (image(64, labels=PAIR), dict(embed_dim=[8, 16, 16], num_heads=[1, 2, 2], depth=[1, 2, 3])),
    "LevitForImageClassification": (image(64, labels=PAIR), dict(image_size=64, hidden_sizes=[16, 24, 32], num_attention_heads=[1, 2, 2], depths=[1, 1, 1],
        key_dim=[8, 8, 8], patch_size=16, mlp_ratio=[2, 2, 2], attention_ratio=[2, 2, 2])),
    "PvtV2ForImageClassification": (image(64, labels=PAIR), dict(hidden_sizes=[8, 8, 16, 16], depths=[1] * 4, num_attention_heads=[1, 1, 2, 2])),
    "FocalNetForImageClassification": (image(labels=PAIR), dict(embed_dim=16, depths=[1, 1], hidden_sizes=[16, 32], focal_levels=[1, 1], focal_windows=[3, 3],
        patch_size=4)),
    "HieraForImageClassification": (image(64, labels=PAIR), dict(embed_dim=8, image_size=[64, 64], patch_size=[7, 7], depths=[1] * 4, num_heads=[1, 1, 2, 2])),
    "SegformerForSemanticSegmentation": (image(64, labels=SEGMENTS), dict(depths=[1] * 4, hidden_sizes=[8, 8, 16, 16], num_attention_heads=[1, 1, 2, 2],
        decoder_hidden_size=16)),
    "UperNetForSemanticSegmentation": (image(64, labels=SEGMENTS), dict(backbone_config=RESNET | dict(out_features=SWIN4["out_features"]), hidden_size=16,
        auxiliary_channels=8, auxiliary_in_channels=16, pool_scales=[1, 2])),
    "DPTForDepthEstimation": (image(), dict(num_hidden_layers=4, backbone_out_indices=[0, 1, 2, 3], neck_hidden_sizes=[8, 8, 16, 16], fusion_hidden_size=16,
        is_hybrid=False, backbone_config=None)),
    "DepthAnythingForDepthEstimation": (image(), dict(backbone_config=dict(model_type="dinov2", num_hidden_layers=4, out_indices=[1, 2, 3, 4],
        reshape_hidden_states=False, apply_layernorm=True), patch_size=8, neck_hidden_sizes=[8, 8, 16, 16], fusion_hidden_size=16, reassemble_hidden_size=32,
        head_hidden_size=8)),
    "GLPNForDepthEstimation": (image(64), dict(depths=[1] * 4, hidden_sizes=[8, 8, 16, 16], num_attention_heads=[1, 1, 2, 2], decoder_hidden_size=16)),
    "DetrForObjectDetection": (image(64, labels=boxes), dict(backbone_config=RESNET, num_queries=6, auxiliary_loss=True)),
    "ConditionalDetrForObjectDetection": (image(64, labels=boxes), dict(backbone_config=RESNET, num_queries=6)),
    "DeformableDetrForObjectDetection": (image(64, labels=boxes), dict(backbone_config=RESNET, num_queries=6, num_feature_levels=4)),
    "RTDetrForObjectDetection": (image(64), dict(backbone_config=dict(model_type="rt_detr_resnet", embedding_size=8, hidden_sizes=[8, 8, 16, 16], depths=[1] * 4,
        layer_type="basic", out_features=["stage2", "stage3", "stage4"]), encoder_in_channels=[8, 16, 16], encoder_hidden_dim=32, decoder_in_channels=[32, 32,
        32], num_queries=6, num_denoising=0, decoder_n_points=2)),
    "YolosForObjectDetection": (image(labels=boxes), dict(image_size=[32, 32], num_detection_tokens=5)),
    "TableTransformerForObjectDetection": (image(64, labels=boxes), dict(backbone_config=RESNET, num_queries=6)),
    "MaskFormerForInstanceSegmentation": (image(64), dict(backbone_config=SWIN4, decoder_config=dict(model_type="detr", num_queries=6), fpn_feature_size=32,
        mask_feature_size=32)),
    "Mask2FormerForUniversalSegmentation": (image(64), dict(backbone_config=SWIN4, feature_size=32, mask_feature_size=32, hidden_dim=32, num_queries=6,
        dim_feedforward=32, encoder_feedforward_dim=32)),
    "SamModel": (image(64, input_points=lambda: torch.rand(2, 1, 2, 2) * 64), dict(vision_config=dict(image_size=64, patch_size=8, output_channels=16,
        window_size=4, global_attn_indexes=[1], num_pos_feats=8, mlp_dim=64), prompt_encoder_config=dict(hidden_size=16, image_size=64, patch_size=8,
        mask_input_channels=4), mask_decoder_config=dict(hidden_size=16, mlp_dim=32, num_attention_heads=2, iou_head_hidden_dim=16))),
    "VitMatteForImageMatting": (image(64, 4), dict(backbone_config=dict(model_type="vitdet", image_size=64, patch_size=16, num_channels=4,
        out_features=["stage2"]), convstream_hidden_sizes=[8, 8, 8], fusion_hidden_sizes=[16, 8, 8, 8])),
    "SuperPointForKeypointDetection": (image(64), dict(encoder_hidden_sizes=[8, 8, 8, 8], decoder_hidden_size=8, descriptor_decoder_dim=16)),
    "VideoMAEForVideoClassification": (lambda: dict(pixel_values=torch.randn(2, 4, 3, 32, 32), labels=PAIR), dict(num_frames=4)),
    "TimesformerForVideoClassification": (lambda: dict(pixel_values=torch.randn(2, 4, 3, 32, 32), labels=PAIR), dict(num_frames=4)),
    # images and text
    "CLIPModel": (picture_and_text(return_loss=True), {}),
    "CLIPTextModelWithProjection": (text(), {}),
    "SiglipModel": (picture_and_text(return_loss=True), dict(text_config=dict(projection_size=32))),
    "Siglip2Model": (lambda: text()() | dict(pixel_values=torch.randn(2, 16, 192), pixel_attention_mask=torch.ones(2, 16, dtype=torch.long),
        spatial_shapes=torch.tensor([[4, 4], [2, 8]])), dict(text_config=dict(projection_size=32), vision_config=dict(num_patches=16))),
    "AltCLIPModel": (picture_and_text(return_loss=True), dict(text_config=dict(project_dim=32))),
    "ChineseCLIPModel": (picture_and_text(return_loss=True), {}),
    "CLIPSegForImageSegmentation": (picture_and_text(), dict(extract_layers=[0, 1], reduce_dim=16, decoder_num_attention_heads=2, decoder_intermediate_size=32)),
    "OwlViTForObjectDetection": (lambda: text()() | image()(), dict()),
    "GroupViTModel": (picture_and_text(), dict(vision_config=dict(depths=[1, 1, 1], num_group_tokens=[8, 4, 0], num_output_groups=[8, 4, 4]))),
    "BlipForConditionalGeneration": (lambda: dict(input_ids=ids(), labels=ids()) | image()(), dict(text_config=dict(encoder_hidden_size=32))),
    "BlipForQuestionAnswering": (lambda: dict(input_ids=ids(), labels=ids(4)) | image()(), dict(text_config=dict(encoder_hidden_size=32))),
    "Blip2ForConditionalGeneration": (tell(8), dict(num_query_tokens=8, image_token_index=IMAGE, qformer_config=dict(encoder_hidden_size=32,
        cross_attention_frequency=1), text_config=dict(model_type="opt", word_embed_proj_dim=32, ffn_dim=64))),
    "GitForCausalLM": (picture_and_text(), {}),
    "ViltForQuestionAnswering": (picture_and_text(), {}),
    "Pix2StructForConditionalGeneration": (lambda: dict(flattened_patches=torch.rand(2, 8, 50).mul(4).floor(), attention_mask=torch.ones(2, 8),
        decoder_input_ids=ids(5)), dict(vision_config=dict(patch_embed_hidden_size=48, seq_len=8), text_config=dict())),
    "VisionEncoderDecoderModel": (lambda: image()() | dict(decoder_input_ids=ids(5)), dict(encoder=dict(model_type="vit"), decoder=dict(model_type="trocr",
        cross_attention_hidden_size=32))),
    "Florence2ForConditionalGeneration": (tell(17, labels=False), dict(image_token_id=IMAGE, text_config=dict(model_type="bart"), vision_config=dict(depths=[1,
        1], embed_dim=[16, 32], num_heads=[2, 2], num_groups=[2, 2], patch_size=[7, 3], patch_stride=[4, 2], patch_padding=[3, 1], patch_prenorm=[False, True],
        window_size=4, projection_dim=32))),
    "LlavaForConditionalGeneration": (tell(16), dict(image_token_index=IMAGE)),
    "VipLlavaForConditionalGeneration": (tell(16), dict(image_token_index=IMAGE, vision_feature_layers=[-1, -2], vision_config=dict(num_hidden_layers=3))),
    "LlavaNextForConditionalGeneration": (tell(36, pixel_values=lambda: torch.randn(2, 2, 3, 32, 32), image_sizes=lambda: torch.tensor([[32, 32], [32, 32]])),
        dict(image_token_index=IMAGE, image_grid_pinpoints=[[32, 32]])),
    "LlavaOnevisionForConditionalGeneration": (tell(36, pixel_values=lambda: torch.randn(2, 2, 3, 32, 32), image_sizes=lambda: torch.tensor([[32, 32], [32,
        32]])), dict(image_token_index=IMAGE, image_grid_pinpoints=[[32, 32]])),
    "Qwen2VLForConditionalGeneration": (tell(4, **patches(96)), dict(image_token_id=IMAGE, video_token_id=97, vision_start_token_id=96,
        vision_config=dict(patch_size=4, hidden_size=32, embed_dim=32), text_config=ROPE)),
    "Qwen2_5_VLForConditionalGeneration": (tell(4, **patches(96)), dict(image_token_id=IMAGE, video_token_id=97, vision_start_token_id=96,
        vision_config=dict(patch_size=4, out_hidden_size=32, window_size=8, fullatt_block_indexes=[1]), text_config=ROPE)),
    "Qwen3VLForConditionalGeneration": (tell(4, **patches(96)), dict(image_token_id=IMAGE, video_token_id=97, vision_start_token_id=96,
        vision_config=dict(patch_size=4, out_hidden_size=32, num_position_embeddings=16, deepstack_visual_indexes=[0, 1]), text_config=ROPE)),
    "Glm4vForConditionalGeneration": (tell(4, **patches(96)), dict(image_token_id=IMAGE, video_token_id=97, image_start_token_id=96, image_end_token_id=95,
        video_start_token_id=94, video_end_token_id=93, vision_config=dict(patch_size=4, out_hidden_size=32, image_size=16), text_config=ROPE)),
    "PaliGemmaForConditionalGeneration": (tell(16, token_type_ids=lambda: torch.tensor([[0] * 21 + [1] * 3] * 2)), dict(image_token_index=IMAGE,
        projection_dim=32, text_config=dict(head_dim=8))),
    "Gemma3ForConditionalGeneration": (tell(4, token_type_ids=lambda: torch.tensor([[0] * 3 + [1] * 4 + [0] * 5] * 2)), dict(image_token_id=IMAGE,
        mm_tokens_per_image=4, boi_token_id=97, eoi_token_id=96, text_config=dict(sliding_window=8))),
    "Idefics2ForConditionalGeneration": (tell(4, pixel_values=lambda: torch.randn(2, 1, 3, 32, 32)), dict(image_token_id=IMAGE,
        perceiver_config=dict(resampler_n_latents=4, resampler_depth=1, resampler_n_heads=2, resampler_head_dim=8, num_key_value_heads=1))),
    "Idefics3ForConditionalGeneration": (tell(4, pixel_values=lambda: torch.randn(2, 1, 3, 32, 32)), dict(image_token_id=IMAGE, scale_factor=2)),
    "SmolVLMForConditionalGeneration": (tell(4, pixel_values=lambda: torch.randn(2, 1, 3, 32, 32)), dict(image_token_id=IMAGE, scale_factor=2)),
    "InternVLForConditionalGeneration": (tell(4), dict(image_token_id=IMAGE, downsample_ratio=0.5, vision_config=dict(image_size=[32, 32], patch_size=[8, 8]))),
    "Mistral3ForConditionalGeneration": (tell(4, image_sizes=lambda: torch.tensor([[32, 32], [32, 32]])), dict(image_token_index=IMAGE,
        vision_config=dict(head_dim=8))),
    "AyaVisionForConditionalGeneration": (tell(4), dict(image_token_index=IMAGE, downsample_factor=2, vision_feature_layer=-1, alignment_intermediate_size=64)),
    "MllamaForConditionalGeneration": (lambda: dict(input_ids=torch.cat([torch.full((2, 1), IMAGE), ids()], 1), pixel_values=torch.randn(2, 1, 2, 3, 32, 32),
        aspect_ratio_ids=torch.tensor([[1], [2]]), aspect_ratio_mask=torch.ones(2, 1, 2, dtype=torch.long), cross_attention_mask=torch.ones(2, 13, 1, 2,
        dtype=torch.long)), dict(image_token_index=IMAGE, vision_config=dict(attention_heads=4, num_global_layers=1, max_num_tiles=2,
        supported_aspect_ratios=[[1, 1], [1, 2], [2, 1]], intermediate_layers_indices=[0], vision_output_dim=64), text_config=dict(cross_attention_layers=[1]))),
    # sound
    "WhisperForConditionalGeneration": (mel(16, 40, decoder_input_ids=lambda: ids(5)), dict(num_mel_bins=16, max_source_positions=20, max_target_positions=32,
        suppress_tokens=None, begin_suppress_tokens=None)),
    "WhisperForAudioClassification": (mel(16, 40, labels=PAIR), dict(num_mel_bins=16, max_source_positions=20)),
    "Wav2Vec2ForCTC": (wave(labels=lambda: ids(4)), CONV),
    "Wav2Vec2ForSequenceClassification": (wave(labels=PAIR), CONV),
    "Wav2Vec2ConformerForCTC": (wave(labels=lambda: ids(4)), CONV),
    "Wav2Vec2BertForCTC": (mel(24, 16), dict(feature_projection_input_dim=16, conv_depthwise_kernel_size=7, left_max_position_embeddings=4,
        right_max_position_embeddings=4)),
    "HubertForCTC": (wave(labels=lambda: ids(4)), CONV),
    "WavLMForXVector": (wave(2000, labels=PAIR), CONV | dict(tdnn_dim=[16, 16], tdnn_kernel=[3, 3], tdnn_dilation=[1, 2], xvector_output_dim=16)),
    "UniSpeechSatForCTC": (wave(labels=lambda: ids(4)), CONV),
    "SEWForCTC": (wave(labels=lambda: ids(4)), CONV | dict(squeeze_factor=2)),
    "Data2VecAudioForCTC": (wave(labels=lambda: ids(4)), CONV | dict(num_conv_pos_embeddings=2, conv_pos_kernel_size=5)),
    "SpeechT5ForSpeechToText": (wave(decoder_input_ids=lambda: ids(5)), CONV),
    "SpeechT5ForTextToSpeech": (lambda: dict(input_ids=ids(), decoder_input_values=torch.randn(2, 6, 16), speaker_embeddings=torch.randn(2, 24)),
        dict(num_mel_bins=16, speaker_embedding_dim=24, speech_decoder_prenet_units=16, speech_decoder_postnet_units=16)),
    "SpeechT5HifiGan": (lambda: dict(spectrogram=torch.randn(2, 10, 16)), dict(model_in_dim=16, upsample_initial_channel=16, upsample_rates=[4, 2],
        upsample_kernel_sizes=[8, 4], resblock_kernel_sizes=[3], resblock_dilation_sizes=[[1, 3]])),
    "Speech2TextForConditionalGeneration": (mel(40, 16, decoder_input_ids=lambda: ids(5)), dict(input_feat_per_channel=16, conv_channels=32,
        max_source_positions=64, max_target_positions=32)),
    "MoonshineForConditionalGeneration": (wave(2000, decoder_input_ids=lambda: ids(5)), dict(encoder_num_hidden_layers=2, decoder_num_hidden_layers=2,
        encoder_num_attention_heads=4, decoder_num_attention_heads=4)),
    "ASTForAudioClassification": (lambda: dict(input_values=torch.randn(2, 32, 16), labels=PAIR), dict(max_length=32, num_mel_bins=16, frequency_stride=4,
        time_stride=4)),
    "ClapModel": (lambda: text()() | mel(1, 64, 16)() | dict(is_longer=torch.tensor([[False], [False]])), dict(text_config=dict(projection_dim=32),
        audio_config=dict(spec_size=64, num_mel_bins=16, hidden_size=32, patch_size=4, patch_stride=[4, 4], depths=[1, 1], num_attention_heads=[2, 2],
        window_size=4, patch_embeds_hidden_size=16, enable_fusion=False))),
    "EncodecModel": (lambda: dict(input_values=torch.randn(2, 1, 400)), dict(num_filters=4, hidden_size=16, num_lstm_layers=1, upsampling_ratios=[4, 2],
        codebook_size=16, codebook_dim=16, target_bandwidths=[60.0])),
    "MimiModel": (lambda: dict(input_values=torch.randn(2, 1, 480)), dict(num_filters=4, upsampling_ratios=[4, 2], codebook_size=16, codebook_dim=32,
        vector_quantization_hidden_dimension=32, num_quantizers=3, num_semantic_quantizers=1, upsample_groups=32, sliding_window=8)),
    "DacModel": (lambda: dict(input_values=torch.randn(2, 1, 256)), dict(encoder_hidden_size=8, decoder_hidden_size=32, downsampling_ratios=[4, 2],
        upsampling_ratios=[2, 4], n_codebooks=2, codebook_size=16, codebook_dim=4)),
    "UnivNetModel": (mel(8, 16, noise_sequence=lambda: torch.randn(2, 8, 8)), dict(model_in_channels=8, model_hidden_channels=8, num_mel_bins=16,
        resblock_kernel_sizes=[3, 3], resblock_stride_sizes=[4, 4], resblock_dilation_sizes=[[1, 3], [1, 3]], kernel_predictor_hidden_channels=8)),
    "MusicgenForConditionalGeneration": (lambda: dict(input_ids=ids(), decoder_input_ids=torch.randint(0, 16, (4, 5))), dict(text_encoder=dict(model_type="t5"),
        audio_encoder=dict(model_type="encodec", num_filters=4, hidden_size=16, upsampling_ratios=[4, 2], codebook_size=16, codebook_dim=16,
        target_bandwidths=[60.0]), decoder=dict(vocab_size=16, num_codebooks=2, ffn_dim=64, max_position_embeddings=64, pad_token_id=15, bos_token_id=15))),
    # series
    "PatchTSTForPrediction": (lambda: dict(past_values=torch.randn(2, 32, 2), future_values=torch.randn(2, 8, 2)), dict(context_length=32, prediction_length=8,
        num_input_channels=2, patch_length=8, patch_stride=8, ffn_dim=64, loss="mse")),
    "PatchTSMixerForPrediction": (lambda: dict(past_values=torch.randn(2, 32, 2), future_values=torch.randn(2, 8, 2)), dict(context_length=32,
        prediction_length=8, num_input_channels=2, patch_length=8, patch_stride=8)),
}  # fmt: skip


def tensors(value, name="output"):
    """(name, tensor) of whatever a model returns; caches are left out."""
    if isinstance(value, torch.Tensor):
        yield name, value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from tensors(item, key)
    elif isinstance(value, (tuple, list)):
        for i, item in enumerate(value):
            yield from tensors(item, f"{name}[{i}]")


def assert_same(got, want, what, tolerance=1e-4):
    assert got.shape == want.shape and got.dtype == want.dtype, what
    assert got.device.type == "neuron", what
    got = got.detach().cpu()
    if not want.is_floating_point():
        assert torch.equal(got, want), what
        return
    finite = want.detach().isfinite()
    assert torch.equal(got.isfinite(), finite), what
    bound = tolerance * max(1e-3, want.detach()[finite].abs().max().item() if finite.any() else 0)
    torch.testing.assert_close(got, want.detach(), rtol=0, atol=bound, equal_nan=True, msg=lambda text: f"{what}: {text}")


def outputs_and_gradients(model, inputs):
    outputs = dict(tensors(model(**inputs)))
    floats = [value for value in outputs.values() if value.is_floating_point() and value.requires_grad]
    if floats:  # a weighted sum: of a normalised output, a plain one has no gradient; the weights do not cancel
        loss = sum((value * torch.linspace(-0.5, 1, value.numel(), device=value.device).view_as(value)).nan_to_num(0, 0, 0).mean() for value in floats)
        loss.backward()
    return outputs, {name: p.grad for name, p in model.named_parameters() if p.grad is not None}


@pytest.mark.parametrize("name", MODELS)
def test_class(name):
    make, values = MODELS[name]
    kind = getattr(transformers, name)
    torch.manual_seed(0)
    cpu = kind(configure(kind.config_class, values, sizes)).eval()
    inputs = make()
    device = copy.deepcopy(cpu).to("neuron")
    there = move(inputs, "neuron")
    want, wanted_gradients = outputs_and_gradients(cpu, inputs)
    got, gradients = outputs_and_gradients(device, there)
    assert got.keys() == want.keys() and want
    for key in want:
        assert_same(got[key], want[key], key)
    assert gradients.keys() == wanted_gradients.keys()
    scale = max((g.abs().max().item() for g in wanted_gradients.values() if g.numel()), default=0)
    for key, expected in wanted_gradients.items():
        torch.testing.assert_close(gradients[key].cpu(), expected, rtol=1e-3, atol=1e-4 * scale, msg=lambda text: f"gradient of {key}: {text}")
    if cpu.can_generate() and (cpu.config.is_encoder_decoder or "pixel_values" in inputs):
        prompt = {key: value for key, value in inputs.items() if key not in ("labels", "decoder_input_ids")}
        for model in (cpu, device):
            model.generation_config.update(decoder_start_token_id=1, do_sample=False, max_new_tokens=6, min_new_tokens=6)
        assert_same(device.generate(**move(prompt, "neuron")), cpu.generate(**prompt), "generated")  # tokens or, of some, sound
    assert torch.neuron.fallback_counts() == {}
